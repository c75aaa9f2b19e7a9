"""Putting more edges in order than fit in memory: dealt out to files by ranges of nodes, then sorted file by file.

Every range of nodes has a file of pairs. Dealing them out and sorting one file are compiled loops that compare nothing
(`hushgraph.graph.kernels`), so the time grows with the number of edges alone. Without numba, for few edges, and for a
range too crowded for memory, `hushgraph.graph.external_sort` does the same with sorted runs.

Writing is by plain file writes, so a full disk is an error and never a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from hushgraph.graph.external_sort import external_sort, read_array
from hushgraph.graph.packed import pack, unpack_minor
from hushgraph.graph.sums import kernels_for

Pairs = tuple[np.ndarray, np.ndarray]
"""Two node numbers per edge: the one that edges are put in order by, and the other."""
Lists = tuple[int, int, np.ndarray, np.ndarray]
"""Some nodes: (first, last + 1, where each one's list begins and the last one ends, all lists, each ascending)."""

_MOST_RANGE_BITS = 8  # so many files are written to in turn
_PAIR = np.dtype("<i8")


class Buckets:
    """Files of pairs, one for each range of nodes; `entries` pairs are sorted in memory at a time.

    `sizes` are the pairs in each file. Edges that lead from a node to itself are left out and counted in `loops`.
    """

    def __init__(self, folder: Path, num_nodes: int, entries: int, kernels: ModuleType) -> None:
        self.folder, self.num_nodes, self.entries, self._kernels = folder, num_nodes, entries, kernels
        self._shift = max((num_nodes - 1).bit_length() - _MOST_RANGE_BITS, 0)
        self.sizes = np.zeros((max(num_nodes - 1, 0) >> self._shift) + 1, dtype=np.int64)
        self.loops = 0
        self._waiting: list[Pairs] = []

    def __len__(self) -> int:
        return len(self.sizes)

    def nodes(self, number: int) -> tuple[int, int]:
        """The range of nodes of one file: (first, last + 1)."""
        first = number << self._shift
        return first, min(first + (1 << self._shift), self.num_nodes)

    def add(self, major: np.ndarray, minor: np.ndarray) -> None:
        """Deal out some edges by their `major` nodes, at once or with later ones: a few long writes beat many."""
        self._waiting.append((major, minor))
        if sum(len(part[0]) for part in self._waiting) >= self.entries // 2:
            self.flush()

    def flush(self) -> None:
        """Deal out what is waiting."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        major, minor = waiting[0] if len(waiting) == 1 else (np.concatenate(column) for column in zip(*waiting))
        pairs, ends = np.empty(len(major), dtype=np.int64), np.zeros(len(self) + 1, dtype=np.int64)
        self._kernels.deal_out(major, minor, self._shift, pairs, ends)
        pairs = pairs.astype(_PAIR, copy=False)
        for number in np.flatnonzero(np.diff(ends)).tolist():
            with open(f"{self.folder}/range-{number}.tmp", "ab") as file:  # a path takes longer
                file.write(pairs[ends[number] : ends[number + 1]].data)
        self.sizes += np.diff(ends)
        self.loops += len(major) - int(ends[-1])

    def return_to(self, sizes: Iterable[int], loops: int) -> None:
        """Forget what was dealt out beyond these sizes."""
        self.sizes, self.loops = np.array(list(sizes), dtype=np.int64), loops
        for number, size in enumerate(self.sizes.tolist()):
            if self._path(number).exists():
                with self._path(number).open("r+b") as file:
                    file.truncate(size * _PAIR.itemsize)

    def lists(self, number: int) -> Iterator[Lists]:
        """The lists of one range of nodes: at once or, where they are too many for memory, a part at a time."""
        size = int(self.sizes[number])
        if size > self.entries:
            sorted_parts = external_sort(self._parts(number), self.folder, self.entries, whole_majors=True)
            yield from map(_lists_of, sorted_parts)
            return
        (first, last), pairs = self.nodes(number), self._read(number, 0, size)
        minor, major = pairs.view(np.int32).reshape(-1, 2).T  # the low half comes first
        offsets, minors = np.empty(last - first + 1, dtype=np.int64), np.empty(size, dtype=np.int32)
        self._kernels.by_target(minor, major, offsets, minors, self.num_nodes)
        yield first, last, offsets, minors

    def drop(self, number: int) -> None:
        """Remove the file of one range."""
        self._path(number).unlink(missing_ok=True)

    def _parts(self, number: int) -> Iterator[np.ndarray]:
        before = self.nodes(number)[0] << 32
        for begin in range(0, int(self.sizes[number]), self.entries):
            yield self._read(number, begin, min(self.entries, int(self.sizes[number]) - begin)) + before

    def _read(self, number: int, begin: int, count: int) -> np.ndarray:
        return read_array(self._path(number), _PAIR, begin, count)

    def _path(self, number: int) -> Path:
        return self.folder / f"range-{number}.tmp"


def in_order(
    pairs: Iterable[Pairs], folder: Path, num_nodes: int, entries: int, kernels: ModuleType | None
) -> Iterator[Lists]:
    """The lists of all nodes that have one, by way of files in `folder`; about `entries` pairs are held at a time.

    No pair has the same node twice. With compiled loops, `pairs` must come in parts of about `entries`.
    """
    if kernels is None:
        packed = (pack(*part) for part in pairs)
        yield from map(_lists_of, external_sort(packed, folder, entries, whole_majors=True))
        return
    buckets = Buckets(folder, num_nodes, entries, kernels)
    for part in pairs:
        buckets.add(*part)
    buckets.flush()
    for number in range(len(buckets)):
        yield from buckets.lists(number)
        buckets.drop(number)


def _lists_of(packed: np.ndarray) -> Lists:
    """Sorted pairs that hold whole lists."""
    first, last = int(packed[0] >> 32), int(packed[-1] >> 32) + 1
    return first, last, np.searchsorted(packed, np.arange(first, last + 1) << 32), unpack_minor(packed)


def distinct_lists(lists: Lists, kernels: ModuleType | None = None) -> Lists:
    """The lists without what repeats: they are changed in place. With `kernels`, compiled loops that are there."""
    first, last, offsets, minors = lists
    kernels = kernels or kernels_for(len(minors))
    if kernels is not None:
        return first, last, offsets, minors[: kernels.drop_repeats(offsets, minors)]
    new = np.ones(len(minors), dtype=bool)
    np.not_equal(minors[1:], minors[:-1], out=new[1:])
    new[offsets[:-1][offsets[:-1] < offsets[1:]]] = True
    if new.all():
        return lists
    kept = np.concatenate(([0], np.cumsum(new)))
    return first, last, kept[offsets], minors[new]
