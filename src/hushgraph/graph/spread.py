"""Edges whose sums are computed by several workers, each for some of the destinations.

A worker reads the lists of its destinations from the file, here or behind a URL, and adds up whole numbers: no worker
needs what another one has. Whole numbers have one sum, so it does not matter how destinations are divided, who adds
them up, or whether somebody had to do it again. Nothing random happens on a worker: a mechanism adds noise to the sums,
once, when they have come back. Proof: docs/proofs/aggregation.md.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.base import Executor, begin_early, on_every_machine
from hushgraph.files.remote import RemoteFile, is_url, json_of
from hushgraph.graph.disk import MEMORY_LIMIT, DiskEdges
from hushgraph.graph.disk_reading import HEADER, SOURCE_TYPE, SOURCES, refuse_other_lists
from hushgraph.graph.edges import longest_list
from hushgraph.graph.external_sort import read_array
from hushgraph.graph.labels import QuantizedLabels
from hushgraph.graph.quantized import QuantizedRows
from hushgraph.graph.sums import Quantized, adder, check_quantized, room_for_sums, summed_by_source, target_runs

FEW_NODES = 200_000
"""Below so many nodes, workers take longer to start and to be sent rows than adding up takes (docs/scale.md)."""
_LEAST_ENTRIES, _MOST_ENTRIES = 1 << 20, 1 << 24
_PARTS_EACH = 8  # of a worker, so that all end at about the same time
_FASTEST_BLOCK = 1 << 20


@dataclass(frozen=True)
class Part:
    """Some destinations, and where their lists are: `offsets` say so, in a file or in what is sent along."""

    first: int
    offsets: np.ndarray
    file: str
    seal: str
    sent: np.ndarray | None = None

    @property
    def last(self) -> int:
        """One more than the last destination."""
        return self.first + len(self.offsets) - 1

    def sources(self, begin: int, end: int) -> np.ndarray:
        """The senders stored at positions `begin .. end`."""
        if self.sent is not None:
            return self.sent[begin - int(self.offsets[0]) : end - int(self.offsets[0])]
        return read_array(_opened(self.file, self.seal), SOURCE_TYPE, begin, end - begin)

    def runs(self, num_nodes: int) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """The lists, in parts that stay in the cache; destinations are numbered from 0."""
        offsets, is_read_elsewhere = _tensor(self.offsets), self.sent is None and is_url(self.file)
        for first, last in target_runs(offsets, _FASTEST_BLOCK):
            part = offsets[first : last + 1]
            found = self.sources(int(part[0]), int(part[-1]))
            if is_read_elsewhere:  # nobody has looked at it
                refuse_other_lists(self.first + first, part.numpy(), found, num_nodes)
            yield first, last, part, _tensor(found)


class SpreadEdges(DiskEdges):
    """`DiskEdges` whose sums the workers of an executor compute; all else is done here.

    Workers that see this machine's files, or the URL, read the lists themselves; those of a shortened graph, which is
    on this machine alone, are sent to workers elsewhere.
    """

    def __init__(
        self,
        folder: str | Path,
        memory_limit: int = MEMORY_LIMIT,
        *,
        executor: Executor,
        elsewhere: RemoteFile | None = None,
        is_sent: bool = False,
    ) -> None:
        super().__init__(folder, memory_limit, elsewhere=elsewhere)
        self.executor, self.is_sent = executor, is_sent
        if not (executor.is_here or is_sent):  # before anything is charged
            on_every_machine(executor, require_graph, self._named())
        begin_early(executor)

    def sum(self, rows: Quantized, *, narrow: bool = False) -> Tensor:
        """For every node, the exact sum of the rows of the nodes that send to it: int64 `[nodes, columns]`.

        With `narrow`, int32 if no list is so long that a sum could need more.
        """
        check_quantized(rows, self.num_nodes)
        found = room_for_sums(rows, self.num_nodes, longest_list(self) if narrow else None).numpy()
        for first, sums in self._sums(rows):
            part = found[first : first + len(sums)]
            part[:] = sums
            if part.itemsize < sums.itemsize and not np.array_equal(part, sums):
                raise _strange("sums that the lengths of the lists allow")
        return torch.from_numpy(found)

    def _sums(self, rows: Quantized) -> Iterator[tuple[int, np.ndarray]]:
        room = self.memory_limit // (16 * max(rows.shape[1], 1) * max(self.executor.count, 1))
        handed_out, done = deque[Part](), 0
        parts = _noted(self._parts(max(room, 1)), handed_out)
        for sums in self.executor.map(part_sums, parts, Sent.of(rows)):
            part = handed_out.popleft() if handed_out else None
            shape = None if part is None else (part.last - part.first, rows.shape[1])
            if part is None or not isinstance(sums, np.ndarray) or sums.shape != shape or sums.dtype.kind != "i":
                raise _strange("whole sums, one row for each node of a part")
            yield part.first, sums
            done = part.last
        if done != self.num_nodes:
            raise _strange(f"sums of {self.num_nodes} nodes")

    def out_degree(self) -> Tensor:
        """How many edges start at each node, int64."""
        return self._by_sender(torch.ones(self.num_nodes, dtype=torch.int64))

    def out_sums(self, values: Tensor) -> Tensor:
        """For every node, the exact sum of the whole numbers below 2^20 that the nodes it sends to have, int64."""
        return self._by_sender(values)

    def _by_sender(self, values: Tensor) -> Tensor:
        total = torch.zeros(self.num_nodes, dtype=torch.int64)
        entries = max(self.num_edges // max(self.executor.count, 1), _LEAST_ENTRIES)
        handed_out = deque[Part]()
        parts = _noted(self._parts(self.num_nodes, entries), handed_out)
        for found in self.executor.map(part_out_sums, parts, values.numpy()):
            part = handed_out.popleft() if handed_out else None
            fits = isinstance(found, np.ndarray) and found.shape == (self.num_nodes,) and found.dtype.kind == "i"
            if part is None or not fits:
                raise _strange("one whole number for each node and part")
            total += torch.from_numpy(np.array(found))
        if handed_out:
            raise _strange("an answer about every part")
        return total

    def _parts(self, most_targets: int, entries: int | None = None) -> Iterator[Part]:
        """The destinations, in parts of about as many entries each."""
        fair = self.num_edges // (_PARTS_EACH * max(self.executor.count, 1))
        entries = min(max(fair, _LEAST_ENTRIES), _MOST_ENTRIES) if entries is None else entries
        file, seal = self._named()
        for start in range(0, self.num_nodes, most_targets):
            offsets = self._offsets(start, min(start + most_targets, self.num_nodes))
            for first, last in target_runs(torch.from_numpy(offsets), entries):
                part = Part(start + first, offsets[first : last + 1], file, seal)
                yield replace(part, sent=self._sources(*self._ends(part))) if self.is_sent else part

    def _named(self) -> tuple[str, str]:
        """The file of senders, for workers, and its checksum."""
        place = self._sources_file
        file = place.url if isinstance(place, RemoteFile) else str(place.absolute())
        return file, str(self._header["sha256"][SOURCES])

    def _ends(self, part: Part) -> tuple[int, int]:
        return int(part.offsets[0]), int(part.offsets[-1])

    def _opened(self, folder: Path) -> DiskEdges:
        return SpreadEdges(folder, self.memory_limit, executor=self.executor, is_sent=not self.executor.is_here)


@dataclass(frozen=True)
class Sent:
    """Quantized rows as they travel: plain arrays, which workers of one machine share."""

    arrays: tuple[np.ndarray, ...]
    columns: int | None
    bits: int
    step: float

    @classmethod
    def of(cls, rows: Quantized) -> Sent:
        """Rows, or labels, whose classes fit in fewer bytes."""
        if isinstance(rows, QuantizedRows):
            return cls((rows.values.numpy(),), None, rows.bits, rows.step)
        narrow = np.uint8 if rows.columns < 1 << 8 else np.uint16
        arrays = (rows.classes.numpy().astype(narrow), rows.hot.numpy(), rows.cold.numpy())
        return cls(arrays, rows.columns, rows.bits, rows.step)

    def rows(self) -> Quantized:
        """The inverse of `of`."""
        tensors = [_tensor(one) for one in self.arrays]
        if self.columns is None:
            return QuantizedRows(tensors[0], self.bits, self.step)
        classes, hot, cold = tensors
        return QuantizedLabels(classes, self.columns, hot, cold, self.bits, self.step)


def _noted(parts: Iterator[Part], handed_out: deque[Part]) -> Iterator[Part]:
    """The parts; those that somebody took are noted, without what is sent along."""
    for part in parts:
        handed_out.append(replace(part, sent=None))
        yield part


def _strange(expected: str) -> HushgraphError:
    return HushgraphError(
        f"workers: expected {expected}; got something else. Nothing was released; use another executor, or none"
    )


def _tensor(array: np.ndarray) -> Tensor:
    """The array as a tensor that nobody writes to: it may lie in memory that workers share."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.from_numpy(array)


def part_sums(part: Part, sent: Sent) -> np.ndarray:
    """The sums of one part's destinations, in 32 bits where they fit."""
    rows = sent.rows()
    found = room_for_sums(rows, part.last - part.first, int(np.diff(part.offsets).max(initial=0)))
    add = adder(rows, int(part.offsets[-1] - part.offsets[0]))
    for first, last, offsets, sources in part.runs(rows.shape[0]):
        add(offsets, sources, found[first:last])
    return found.numpy()


def part_out_sums(part: Part, values: np.ndarray) -> np.ndarray:
    """For every node, the sum of the values of this part's destinations to which it sends."""
    lists = part.runs(len(values))
    runs = ((part.first + first, part.first + last, offsets, sources) for first, last, offsets, sources in lists)
    return summed_by_source(runs, torch.from_numpy(np.array(values))).numpy()


def require_graph(place: tuple[str, str]) -> None:
    """Refuse a machine that does not have the graph that was meant at its place."""
    _opened(*place)


@lru_cache(maxsize=8)
def _opened(file: str, seal: str) -> Path | RemoteFile:
    """The file of senders, if it is the one that was meant: another machine may have something else in its place."""
    place = RemoteFile(file) if is_url(file) else Path(file)
    header = (
        RemoteFile(f"{file.removesuffix(SOURCES)}{HEADER}")
        if isinstance(place, RemoteFile)
        else place.with_name(HEADER)
    )
    try:
        found = json_of(header)["sha256"][SOURCES]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"workers: expected the graph at {file} on every machine; got none on one ({error}). Put it where all see "
            "it: a shared folder, or an object store (a URL)"
        ) from error
    if found != seal:
        raise InputError(f"workers: expected the same graph at {file} on every machine; got another on one; copy it")
    return place
