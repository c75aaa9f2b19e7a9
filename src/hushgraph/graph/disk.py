"""Edges on disk, sorted by destination, for graphs that do not fit in memory.

A folder holds `header.json` (sizes and checksums), `offsets.bin` (int64, one more than nodes) and `sources.bin` (int32,
one per edge): the arrays of `MemoryEdges`. `DiskEdges.write` sorts them outside memory and moves the finished folder
into place in one step: what is there is whole. All that is computed from it equals, bit for bit, what `MemoryEdges`
computes.

The files hold the private edges as they are. Keep them where the raw data may be kept, and delete them with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.files.remote import RemoteFile
from hushgraph.graph.buckets import Lists, Pairs, in_order
from hushgraph.graph.degree import capped
from hushgraph.graph.disk_reading import (
    OFFSET_TYPE,
    OFFSETS,
    SOURCE_TYPE,
    SOURCES,
    read_header,
    refuse_other_lists,
    refuse_strangers,
    verify,
)
from hushgraph.graph.disk_writing import (
    Progress,
    new_folder,
    nobody,
    told_if_full,
    write_edges,
    write_lists,
)
from hushgraph.graph.edges import MemoryEdges, lists_at, longest_list
from hushgraph.graph.external_sort import read_array
from hushgraph.graph.packed import INT32_LIMIT, pack, unpack_minor
from hushgraph.graph.sums import (
    Quantized,
    Run,
    check_quantized,
    counted_by_source,
    kernels_for,
    sum_runs,
    summed_by_source,
    target_runs,
)
from hushgraph.noise.source import NoiseSource

MEMORY_LIMIT = 1 << 28
_BYTES_PER_ENTRY = 40  # buffer, sorted copy and what the cap needs beside them
# Edges a block holds when the limit allows more: small enough for the processor's cache, so that what was read from
# the file is still near when it is used.
_FASTEST_BLOCK = 1 << 20


class DiskEdges:
    """A folder of edges opened for reading: an `Edges` of any size. `memory_limit` bytes are used at a time.

    `open` reads and checks everything once; a folder that was just written is taken as it is. Repeated edges and self
    loops were left out when the folder was written; `repeated` and `self_loops` tell how many. With `elsewhere`, the
    file of senders is behind that URL, and the folder holds the others.
    """

    def __init__(
        self, folder: str | Path, memory_limit: int = MEMORY_LIMIT, *, elsewhere: RemoteFile | None = None
    ) -> None:
        self.folder = Path(folder)
        self.memory_limit = memory_limit
        self._header = read_header(self.folder, elsewhere)
        self._sources_file = elsewhere or self.folder / SOURCES
        self._is_verified = False

    @classmethod
    def open(cls, folder: str | Path, *, memory_limit: int = MEMORY_LIMIT) -> DiskEdges:
        """The edges in a folder that `write` made; one that was changed since, or holds no such lists, is refused."""
        found = cls(folder, memory_limit)
        found.verify()
        return found

    @classmethod
    def write(
        cls,
        folder: str | Path,
        edges: Tensor | Iterable[Tensor],
        num_nodes: int,
        *,
        memory_limit: int = MEMORY_LIMIT,
        both: bool = False,
        made_from: str | None = None,
        progress: Progress = nobody,
    ) -> DiskEdges:
        """Write `[2, E]` edges, or blocks of such edges, to a new folder, using about `memory_limit` bytes.

        The result equals `MemoryEdges.from_edge_index(edges, num_nodes).coalesce()` without self loops. With `both`,
        every edge is stored in both directions. With `made_from`, a name of these very edges, what a killed process
        left of the same work is used, and a folder that is complete is taken as it is.

        Blocks are read more than once: whoever makes them leaves them as they are.

        Edge cases: an existing folder is refused; after an error or a crash there is no folder, at most a temporary
        one whose name says `partial`.
        """
        blocks = [edges] if isinstance(edges, Tensor) else edges
        if made_from is not None and Path(folder).exists():
            for _ in blocks:
                pass  # whoever makes them wants to see them all
            return cls(folder, memory_limit)
        with new_folder(Path(folder), made_from=made_from) as work:
            write_edges(work, blocks, num_nodes, _entries(memory_limit), both=both, progress=progress)
        written = cls(folder, memory_limit)
        written._is_verified = True
        return written

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
        size = min(_entries(self.memory_limit), _FASTEST_BLOCK)
        begins = range(0, self.num_edges, size)
        parts = (torch.from_numpy(self._sources(begin, min(begin + size, self.num_edges))) for begin in begins)
        return counted_by_source(parts, self.num_nodes, self.num_edges)

    def out_sums(self, values: Tensor) -> Tensor:
        """For every node, the exact sum of the whole numbers below 2^20 that the nodes it sends to have, int64."""
        return summed_by_source(self._sum_runs(1), values)

    def is_symmetric(self) -> bool:
        """True when every edge has its reverse. The first call sorts all edges by sender."""
        return self._symmetric

    @cached_property
    def _symmetric(self) -> bool:
        if self._header.get("symmetric") is True:  # written in both directions
            return True
        begin = 0
        for _, _, _, targets in self._by_source():
            if not np.array_equal(targets, self._sources(begin, begin + len(targets))):
                return False
            begin += len(targets)
        return torch.equal(self.in_degree(), self.out_degree())

    @property
    def _is_known_symmetric(self) -> bool:
        """Written in both directions, or found to be symmetric before."""
        return self._header.get("symmetric") is True or bool(vars(self).get("_symmetric"))

    def require_symmetric(self) -> None:
        """Refuse a folder whose header calls it symmetric and whose edges are not.

        The edges and the same edges turned round are one set exactly if keyed hashes of both have the same sum, but for
        a chance of about 2^-64: the key is drawn here, so nobody could have fitted a file to it.
        """
        if self._header.get("symmetric") is not True:
            return  # nothing was believed
        key = np.uint64(secrets.randbits(64))
        if sum(self._balances(key)) % (1 << 64):
            raise InputError(
                f"{self.folder}: expected every edge in both directions, as its header says; got others. The folder "
                "was changed after it was written; import the graph again"
            )

    def _balances(self, key: np.uint64) -> Iterator[int]:
        """What the hashes of some edges add up to, less those of the same edges turned round."""
        kernels = self._kernels()
        if kernels is not None:
            for first, _, offsets, sources in self._lists():
                yield int(kernels.balance(first, offsets, sources, key))
            return
        for targets, sources in self._pairs():
            for sign, pairs in ((1, pack(targets, sources)), (-1, pack(sources, targets))):
                yield sign * int(hashes(pairs.astype(np.uint64), key).sum(dtype=np.uint64))

    def pairs_by_source(self) -> Iterator[np.ndarray]:
        """All edges as sorted numbers `source << 32 | target`, a part at a time, those that are equal in one part."""
        # Of a symmetric graph the same numbers come sorted by target; they are sorted only where that is not known.
        for first, last, offsets, others in self._lists() if self._is_known_symmetric else self._by_source():
            yield pack(np.repeat(np.arange(first, last), np.diff(offsets)), others)

    def _by_source(self) -> Iterator[Lists]:
        """The targets of every source."""
        with self._place("sorting") as place, told_if_full(place):
            yield from in_order(self._turned(), place, self.num_nodes, _entries(self.memory_limit), self._kernels())

    def sum(self, rows: Quantized, *, narrow: bool = False) -> Tensor:
        """For every node, the exact sum of the rows of the nodes that send to it: int64 `[nodes, columns]`.

        With `narrow`, int32 if no list is so long that a sum could need more. What is read at a time is within the
        memory limit, unless a single node has more in-neighbors.
        """
        check_quantized(rows, self.num_nodes)
        longest = longest_list(self) if narrow else None
        return sum_runs(self._sum_runs(rows.shape[1]), rows, self.num_edges, longest)

    def _sum_runs(self, columns: int) -> Iterator[Run]:
        targets = max(self.memory_limit // 2 // (16 + 12 * columns), 1)
        entries = min(max(self.memory_limit // 2 // SOURCE_TYPE.itemsize, 1), _FASTEST_BLOCK)
        for first, last, offsets, sources in self._runs(entries, targets):
            yield first, last, torch.from_numpy(offsets), torch.from_numpy(sources)

    def cap(self, max_degree: int, noise: NoiseSource) -> DiskEdges:
        """The edges left when every sender keeps at most `max_degree` distinct targets: see `degree.capped`.

        They are written to a temporary folder beside this one, which is removed with the object returned.
        """
        entries, kernels = _entries(self.memory_limit), self._kernels()

        def kept() -> Iterator[Pairs]:
            for first, last, offsets, targets in self._by_source():
                owners = np.repeat(np.arange(first, last), np.diff(offsets))
                pairs = capped(pack(owners, targets), max_degree, noise)
                yield unpack_minor(pairs), (pairs >> 32).astype(np.int32)

        with self._place("sorting") as place:
            return self._part("capped", in_order(kept(), place, self.num_nodes, entries, kernels))

    def ending_at(self, receivers: Tensor) -> DiskEdges:
        """The edges that end at a node of the boolean mask `receivers`, in a temporary folder as for `cap`."""
        mask, kernels = receivers.numpy(), self._kernels()

        def kept() -> Iterator[Lists]:
            for first, last, offsets, sources in self._lists():
                yield first, last, *lists_at(mask[first:last], offsets, sources, kernels)

        return self._part("received", kept())

    def _part(self, kind: str, lists: Iterator[Lists]) -> DiskEdges:
        """Some of the edges, in a temporary folder beside this one, which is removed with the object returned."""
        place = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=f".{self.folder.name}.{kind}-"))
        try:
            with new_folder(place / "edges") as work:
                write_lists(lists, work, self.num_nodes)
            result = self._opened(place / "edges")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        weakref.finalize(result, _remove, place, os.getpid())
        return result

    def _opened(self, folder: Path) -> DiskEdges:
        """Edges in another folder, used as these are."""
        return DiskEdges(folder, self.memory_limit)

    @contextmanager
    def _place(self, kind: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=f".{self.folder.name}.{kind}-") as place:
            yield Path(place)

    def _kernels(self) -> ModuleType | None:
        return kernels_for(self.num_edges)

    def edge_index(self) -> Tensor:
        """All edges as a `[2, E]` int64 tensor, sorted by target and then by source: in memory."""
        return self.load().edge_index()

    def edge_blocks(self) -> Iterator[Tensor]:
        """The same, a part at a time."""
        for targets, sources in self._pairs():
            yield torch.from_numpy(np.stack((sources, targets)).astype(np.int64))

    def load(self) -> MemoryEdges:
        """The edges in memory; a header that calls them symmetric is not taken at its word."""
        self.require_symmetric()
        wide = self.num_edges >= INT32_LIMIT
        offsets, sources = self._all_lists()
        found = MemoryEdges(torch.from_numpy(offsets.astype(np.int64 if wide else np.int32)), torch.from_numpy(sources))
        return found.known_symmetric() if self._is_known_symmetric else found

    def mapped(self) -> tuple[np.ndarray, np.ndarray]:
        """Offsets (int64) and senders (int32) as they lie on the disk; the system reads what is looked at."""
        if isinstance(self._sources_file, RemoteFile):
            return self._all_lists()
        files = ((OFFSETS, OFFSET_TYPE, self.num_nodes + 1), (SOURCES, SOURCE_TYPE, self.num_edges))
        offsets, sources = (
            np.asarray(np.memmap(self.folder / name, kind, "r", shape=(count,))) if count else np.empty(0, kind)
            for name, kind, count in files
        )
        return offsets, sources

    def verify(self) -> None:
        """Compare both files with the header, and every number in them with what it may be.

        Senders that are elsewhere are looked at as they are read.
        """
        verify(self.folder, self._header, None if self._is_elsewhere else self.folder / SOURCES)
        self._is_verified = True

    def verify_once(self) -> None:
        """The same, unless this object did it before or wrote the files."""
        if not self._is_verified:
            self.verify()

    @property
    def _is_elsewhere(self) -> bool:
        return isinstance(self._sources_file, RemoteFile)

    # Reading

    def _offsets(self, first: int, last: int) -> np.ndarray:
        """Where the lists of targets `first .. last` begin: `last - first + 1` positions, int64."""
        return read_array(self.folder / OFFSETS, OFFSET_TYPE, first, last - first + 1)

    def _sources(self, begin: int, end: int) -> np.ndarray:
        """The senders stored at positions `begin .. end`, int32."""
        found = read_array(self._sources_file, SOURCE_TYPE, begin, end - begin)
        return refuse_strangers(found, self.num_nodes) if self._is_elsewhere else found

    def _listed(self, first: int, offsets: np.ndarray) -> np.ndarray:
        """The senders of the lists of the nodes from `first` on; lists that are elsewhere are judged here."""
        found = self._sources(int(offsets[0]), int(offsets[-1]))
        return refuse_other_lists(first, offsets, found, self.num_nodes) if self._is_elsewhere else found

    def _all_lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Where all lists begin, and their senders."""
        offsets = self._offsets(0, self.num_nodes)
        return offsets, self._listed(0, offsets)

    def _runs(self, entries: int, targets: int) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Runs of targets: (first, last, offsets, sources) with at most so many of each, one target at least."""
        for start in range(0, self.num_nodes, targets):
            offsets = self._offsets(start, min(start + targets, self.num_nodes))
            for first, last in target_runs(torch.from_numpy(offsets), entries):
                part = offsets[first : last + 1]
                yield start + first, start + last, part, self._listed(start + first, part)

    def _lists(self) -> Iterator[Lists]:
        """All lists, a part at a time."""
        entries = max(_entries(self.memory_limit) // 4, 1)
        return self._runs(entries, entries)

    def _pairs(self) -> Iterator[Pairs]:
        """The targets and the sources of all edges, in order, a part at a time, int32."""
        for first, last, offsets, sources in self._lists():
            yield np.repeat(np.arange(first, last, dtype=np.int32), np.diff(offsets)), sources

    def _turned(self) -> Iterator[Pairs]:
        return ((sources, targets) for targets, sources in self._pairs())


def _entries(memory_limit: int) -> int:
    """How many pairs are sorted at a time."""
    return max(memory_limit // _BYTES_PER_ENTRY, 1)


def hashes(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Keyed hashes of 64-bit numbers: two rounds of multiply and shift, the key added before each."""
    for _ in range(2):
        values = values + key
        values ^= values >> np.uint64(30)
        values *= np.uint64(0xBF58476D1CE4E5B9)
        values ^= values >> np.uint64(27)
    return values


def _remove(folder: Path, process: int) -> None:
    """Remove a temporary folder, but not from a forked child: the parent still uses it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
