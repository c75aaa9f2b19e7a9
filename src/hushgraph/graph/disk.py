"""Edges on disk, sorted by destination, for graphs that do not fit in memory.

A folder holds `header.json` (sizes and checksums), `offsets.bin` (int64, one more than nodes) and `sources.bin` (int32,
one per edge): the arrays of `MemoryEdges`. `DiskEdges.write` sorts them outside memory and moves the finished folder
into place in one step: what is there is whole. All that is computed from it equals, bit for bit, what `MemoryEdges`
computes.

The files hold the private edges as they are. Keep them where the raw data may be kept, and delete them with it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.degree import capped
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.external_sort import external_sort, read_array
from hushgraph.graph.packed import INT32_LIMIT, checked_edges, distinct, pack, swapped, unpack_minor
from hushgraph.graph.sums import Quantized, Run, check_quantized, run_sums, sum_runs, summed_by_source, target_runs
from hushgraph.noise.source import NoiseSource
from hushgraph.text import write_whole

FORMAT = "hushgraph edges 1"
MEMORY_LIMIT = 1 << 28
_OFFSETS, _SOURCES = "offsets.bin", "sources.bin"
_OFFSET_TYPE, _SOURCE_TYPE = np.dtype("<i8"), np.dtype("<i4")
_BYTES_PER_ENTRY = 40  # buffer, sorted copy and what the cap needs beside them
# Edges a block holds when the limit allows more: small enough for the processor's cache, so that what was read from
# the file is still near when it is used.
_FASTEST_BLOCK = 1 << 20


class DiskEdges:
    """A folder of edges opened for reading: an `Edges` of any size. `memory_limit` bytes are used at a time.

    Opening checks the header and the sizes; `verify` reads everything. Repeated edges and self loops were left out
    when the folder was written; `repeated` and `self_loops` tell how many.
    """

    def __init__(self, folder: str | Path, memory_limit: int = MEMORY_LIMIT) -> None:
        self.folder = Path(folder)
        self.memory_limit = memory_limit
        self._header = _read_header(self.folder)

    @classmethod
    def open(cls, folder: str | Path, *, memory_limit: int = MEMORY_LIMIT) -> DiskEdges:
        """The edges in a folder that `write` made."""
        return cls(folder, memory_limit)

    @classmethod
    def write(
        cls,
        folder: str | Path,
        edges: Tensor | Iterable[Tensor],
        num_nodes: int,
        *,
        memory_limit: int = MEMORY_LIMIT,
    ) -> DiskEdges:
        """Write `[2, E]` edges, or blocks of such edges, to a new folder, using about `memory_limit` bytes.

        The result equals `MemoryEdges.from_edge_index(edges, num_nodes).coalesce()` without self loops.

        Edge cases: an existing folder is refused; after an error or a crash there is no folder, at most a temporary
        one whose name says `partial`.
        """
        blocks = [edges] if isinstance(edges, Tensor) else edges
        entries = _entries(memory_limit)
        loops = _Loops()
        with _new_folder(Path(folder)) as work:
            pairs = (loops.left_out(part) for part in _packed_by_target(blocks, num_nodes, max(entries // 4, 1)))
            _write_edges(external_sort(pairs, _subfolder(work, "sort"), entries), work, num_nodes, loops)
        return cls(folder, memory_limit)

    # Sizes

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones included."""
        return int(self._header["num_nodes"])

    @property
    def num_edges(self) -> int:
        """How many directed edges are stored."""
        return int(self._header["num_edges"])

    @property
    def repeated(self) -> int:
        """How many edges were left out because they repeated another."""
        return int(self._header["repeated"])

    @property
    def self_loops(self) -> int:
        """How many edges were left out because they led from a node to itself."""
        return int(self._header["self_loops"])

    # What `Edges` asks for

    def in_degree(self) -> Tensor:
        """How many edges end at each node, int64."""
        return torch.from_numpy(np.diff(self._offsets(0, self.num_nodes)))

    def out_degree(self) -> Tensor:
        """How many edges start at each node, int64."""
        counts = torch.zeros(self.num_nodes, dtype=torch.int64)
        for begin in range(0, self.num_edges, _entries(self.memory_limit)):
            sources = self._sources(begin, min(begin + _entries(self.memory_limit), self.num_edges))
            counts += torch.bincount(torch.from_numpy(sources), minlength=self.num_nodes)
        return counts

    def out_sums(self, values: Tensor) -> Tensor:
        """For every node, the exact sum of the whole numbers below 2^20 that the nodes it sends to have, int64."""
        return summed_by_source(self._sum_runs(1), values)

    def is_symmetric(self) -> bool:
        """True when every edge has its reverse. The first call sorts all edges by sender."""
        return self._symmetric

    @cached_property
    def _symmetric(self) -> bool:
        begin = 0
        for turned in self._sorted_by_source():
            if not np.array_equal(unpack_minor(turned), self._sources(begin, begin + len(turned))):
                return False
            begin += len(turned)
        return torch.equal(self.in_degree(), self.out_degree())

    def pairs_by_source(self) -> Iterator[np.ndarray]:
        """All edges as sorted numbers `source << 32 | target`, a part at a time, those that are equal in one part."""
        # Of a symmetric graph the same numbers come sorted by target; they are sorted only where that is not known.
        return self._pairs() if vars(self).get("_symmetric") else self._sorted_by_source()

    def _sorted_by_source(self) -> Iterator[np.ndarray]:
        with (
            _told_if_full(self.folder.parent),
            tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=f".{self.folder.name}.sorting-") as work,
        ):
            yield from external_sort(map(swapped, self._pairs()), Path(work), _entries(self.memory_limit))

    def sum(self, rows: Quantized) -> Tensor:
        """For every node, the exact sum of the rows of the nodes that send to it: int64 `[nodes, columns]`."""
        check_quantized(rows, self.num_nodes)
        return sum_runs(self._sum_runs(rows.shape[1]), rows, self.num_edges)

    def sum_blocks(self, rows: Quantized) -> Iterator[tuple[int, int, Tensor]]:
        """The same in runs of nodes, in order: (first, last, sums of the nodes from `first` up to `last`).

        What a run needs beside the rows is within the memory limit, unless a single node has more in-neighbors.
        """
        check_quantized(rows, self.num_nodes)
        return run_sums(self._sum_runs(rows.shape[1]), rows, self.num_edges)

    def _sum_runs(self, columns: int) -> Iterator[Run]:
        targets = max(self.memory_limit // 2 // (16 + 12 * columns), 1)
        entries = min(max(self.memory_limit // 2 // _SOURCE_TYPE.itemsize, 1), _FASTEST_BLOCK)
        for first, last, offsets, sources in self._runs(entries, targets):
            yield first, last, torch.from_numpy(offsets), torch.from_numpy(sources)

    def cap(self, max_degree: int, noise: NoiseSource) -> DiskEdges:
        """The edges left when every sender keeps at most `max_degree` distinct targets: see `degree.capped`.

        They are written to a temporary folder beside this one, which is removed with the object returned.
        """
        entries = _entries(self.memory_limit)

        def kept(work: Path) -> Iterator[np.ndarray]:
            turned = map(swapped, self._pairs())
            by_sender = external_sort(turned, _subfolder(work, "by-sender"), entries, whole_majors=True)
            parts = (swapped(capped(part, max_degree, noise)) for part in by_sender)
            return external_sort(parts, _subfolder(work, "sort"), entries)

        return self._part("capped", kept)

    def ending_at(self, receivers: Tensor) -> DiskEdges:
        """The edges that end at a node of the boolean mask `receivers`, in a temporary folder as for `cap`."""
        mask = receivers.numpy()
        return self._part("received", lambda work: (part[mask[part >> 32]] for part in self._pairs()))

    def _part(self, kind: str, kept: Callable[[Path], Iterator[np.ndarray]]) -> DiskEdges:
        """Some of the edges, in a temporary folder beside this one, which is removed with the object returned."""
        place = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=f".{self.folder.name}.{kind}-"))
        try:
            with _new_folder(place / "edges") as work:
                _write_edges(kept(work), work, self.num_nodes, _Loops())
            result = DiskEdges(place / "edges", self.memory_limit)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        weakref.finalize(result, _remove, place, os.getpid())
        return result

    def edge_index(self) -> Tensor:
        """All edges as a `[2, E]` int64 tensor, sorted by target and then by source: in memory."""
        return self.load().edge_index()

    def edge_blocks(self) -> Iterator[Tensor]:
        """The same, a part at a time."""
        for packed in self._pairs():
            yield torch.from_numpy(np.stack((packed & 0xFFFFFFFF, packed >> 32)))

    def load(self) -> MemoryEdges:
        """The edges in memory."""
        wide = self.num_edges >= INT32_LIMIT
        offsets = self._offsets(0, self.num_nodes).astype(np.int64 if wide else np.int32)
        return MemoryEdges(torch.from_numpy(offsets), torch.from_numpy(self._sources(0, self.num_edges)))

    def mapped(self) -> tuple[np.ndarray, np.ndarray]:
        """Offsets (int64) and senders (int32) as they lie on the disk; the system reads what is looked at."""
        files = ((_OFFSETS, _OFFSET_TYPE, self.num_nodes + 1), (_SOURCES, _SOURCE_TYPE, self.num_edges))
        offsets, sources = (
            np.asarray(np.memmap(self.folder / name, kind, "r", shape=(count,))) if count else np.empty(0, kind)
            for name, kind, count in files
        )
        return offsets, sources

    def verify(self) -> None:
        """Read both files and compare their checksums with the header."""
        for name in (_OFFSETS, _SOURCES):
            with (self.folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self._header["sha256"][name]:
                raise InputError(f"expected the stored checksum of '{name}'; got another one; write the edges again")

    # Reading

    def _offsets(self, first: int, last: int) -> np.ndarray:
        """Where the lists of targets `first .. last` begin: `last - first + 1` positions, int64."""
        return read_array(self.folder / _OFFSETS, _OFFSET_TYPE, first, last - first + 1)

    def _sources(self, begin: int, end: int) -> np.ndarray:
        """The senders stored at positions `begin .. end`, int32."""
        return read_array(self.folder / _SOURCES, _SOURCE_TYPE, begin, end - begin)

    def _runs(self, entries: int, targets: int) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Runs of targets: (first, last, offsets, sources) with at most so many of each, one target at least."""
        for start in range(0, self.num_nodes, targets):
            offsets = self._offsets(start, min(start + targets, self.num_nodes))
            for first, last in target_runs(torch.from_numpy(offsets), entries):
                part = offsets[first : last + 1]
                yield start + first, start + last, part, self._sources(int(part[0]), int(part[-1]))

    def _pairs(self) -> Iterator[np.ndarray]:
        """All edges as sorted pairs `target << 32 | source`, a part at a time."""
        entries = max(_entries(self.memory_limit) // 4, 1)
        for first, last, offsets, sources in self._runs(entries, entries):
            yield pack(np.repeat(np.arange(first, last), np.diff(offsets)), sources)


class _Loops:
    """Counts the self loops that it takes away."""

    def __init__(self) -> None:
        self.count = 0

    def left_out(self, packed: np.ndarray) -> np.ndarray:
        loops = packed >> 32 == packed & 0xFFFFFFFF
        self.count += int(np.count_nonzero(loops))
        return packed[~loops]


def _entries(memory_limit: int) -> int:
    """How many pairs are sorted at a time."""
    return max(memory_limit // _BYTES_PER_ENTRY, 1)


def _packed_by_target(blocks: Iterable[Tensor], num_nodes: int, entries: int) -> Iterator[np.ndarray]:
    for block in blocks:
        for part in torch.split(block, entries, dim=1):
            source, target = checked_edges(part, num_nodes)
            yield pack(target, source)


def _write_edges(pieces: Iterator[np.ndarray], folder: Path, num_nodes: int, loops: _Loops) -> None:
    """Stream sorted pairs `target << 32 | source` into the two arrays and the header."""
    num_edges, given, next_node = 0, 0, 0
    with _HashedFile(folder / _OFFSETS) as offsets, _HashedFile(folder / _SOURCES) as sources:
        for piece in pieces:
            pairs = distinct(piece)
            sources.write(unpack_minor(pairs).astype(_SOURCE_TYPE, copy=False))
            # A node's list begins where its first pair would stand; nodes after the last one seen wait for more.
            last_seen = int(pairs[-1] >> 32)
            nodes = np.arange(next_node, last_seen + 1, dtype=np.int64)
            offsets.write((num_edges + np.searchsorted(pairs, nodes << 32)).astype(_OFFSET_TYPE, copy=False))
            given, num_edges, next_node = given + len(piece), num_edges + len(pairs), max(next_node, last_seen + 1)
        offsets.write(np.full(num_nodes + 1 - next_node, num_edges, dtype=_OFFSET_TYPE))
    header = {
        "format": FORMAT,
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "repeated": given - num_edges,
        "self_loops": loops.count,
        "sha256": {_OFFSETS: offsets.digest(), _SOURCES: sources.digest()},
    }
    write_whole(folder / "header.json", (json.dumps(header, indent=2) + "\n").encode())


class _HashedFile:
    """A file written front to back whose SHA-256 is known at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    def write(self, values: np.ndarray) -> None:
        self._file.write(values.data)
        self._hash.update(values.data)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> _HashedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that becomes `target` when all went well and vanishes otherwise."""
    if target.exists():
        raise InputError(f"expected a new folder; got '{target}', which exists; choose another name or delete it")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        with _told_if_full(target.parent):
            yield work
            for rest in work.iterdir():
                if rest.is_dir():
                    shutil.rmtree(rest)
            work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _told_if_full(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HushgraphError(
                f"expected room on disk for the sorted edges in '{folder}'; got a full disk; free about 12 bytes per "
                "edge, 20 for a degree cap, and try again"
            ) from error
        raise


def _read_header(folder: Path) -> dict[str, Any]:
    try:
        header = json.loads((folder / "header.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"expected a folder of edges; got '{folder}' ({error}); make one with write") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"expected the format '{FORMAT}' in '{folder}'; got another one; write the edges again")
    problems = []
    for name in (_OFFSETS, _SOURCES):
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if found != _expected_size(name, header):
            problems.append(
                f"expected {_expected_size(name, header)} bytes in '{name}'; got {found}; copy or write it again"
            )
    InputError.collect(problems)
    return header


def _expected_size(name: str, header: dict[str, Any]) -> int:
    if name == _OFFSETS:
        return _OFFSET_TYPE.itemsize * (int(header["num_nodes"]) + 1)
    return _SOURCE_TYPE.itemsize * int(header["num_edges"])


def _remove(folder: Path, process: int) -> None:
    """Remove a temporary folder, but not from a forked child: the parent still uses it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _subfolder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path
