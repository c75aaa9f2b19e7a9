"""Putting more edges in order than fit in memory: dealt out by ranges of nodes, then sorted range by range.

Pairs are dealt out to a buffer, and what does not fit there goes to one file: each time the buffer is full, all of it
in one write. The pairs of a range thus lie in as many places as the buffer was dealt out to. Dealing them out and
sorting a range are compiled loops that compare nothing (`hushgraph.graph.bucket_kernels`), so the time grows with the
number of edges alone. Without numba, for few edges, and for a range too crowded for memory,
`hushgraph.graph.external_sort` does the same with sorted runs.

Writing is by plain file writes, so a full disk is an error and never a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from types import ModuleType

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.external_sort import external_sort, read_array, read_into
from hushgraph.graph.packed import pack, unpack_minor

Pairs = tuple[np.ndarray, np.ndarray]
"""Two node numbers per edge: the one that edges are put in order by, and the other."""
Lists = tuple[int, int, np.ndarray, np.ndarray]
"""Some nodes: (first, last + 1, where each one's list begins and the last one ends, all lists, each ascending)."""

_RANGE_BITS = 8  # so many ranges have their ends in the nearest cache while pairs are dealt out
_MOST_SHORT_RANGE_BITS = 12  # more of them, if pairs take half the room then
_LONG_RANGE_BITS = 10  # of graphs so large that they do not
_SHORT_BITS = 32
_BUFFER_BYTES = 8  # of the buffer, for each of the pairs that are sorted at a time
_AT_ONCE = 1 << 20  # pairs that are unpacked
_PLACE = np.dtype("<i8")


class Buckets:
    """Pairs by ranges of nodes, in a buffer and in files of `folder`; `entries` pairs are sorted in memory at a time.

    A pair is the number of the one node within its range and that of the other: 4 bytes where they fit, else 8. Edges
    that lead from a node to itself are left out and counted in `loops`. All is dealt out before lists are asked for.
    """

    def __init__(self, folder: Path, num_nodes: int, entries: int, kernels: ModuleType) -> None:
        from hushgraph.graph import bucket_kernels  # numba takes a second to load

        self.folder, self.num_nodes, self.entries = folder, num_nodes, entries
        self._kernels, self._loops = kernels, bucket_kernels
        bits = max((num_nodes - 1).bit_length(), 1)
        range_bits = max(2 * bits - _SHORT_BITS, _RANGE_BITS)  # the fewest with which two nodes take four bytes
        self._is_short = range_bits <= _MOST_SHORT_RANGE_BITS
        self._shift = max(bits - (range_bits if self._is_short else _LONG_RANGE_BITS), 0)
        self._minor_bits = bits if self._is_short else 32
        self._pair = np.dtype(np.uint32 if self._is_short else np.int64)
        self._buffer = np.empty(_BUFFER_BYTES * entries // self._pair.itemsize, dtype=self._pair)
        self._counts = np.zeros((max(num_nodes - 1, 0) >> self._shift) + 1, dtype=np.int64)
        self._waiting: list[Pairs] = []
        self._edges_waiting = 0
        self._places: list[np.ndarray] = []  # where each range begins, and the last one ends, each time
        self._stored_times = self._stored = self._size = self.loops = 0
        self._file: FileIO | None = None

    def __enter__(self) -> Buckets:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def size(self) -> int:
        """How many pairs were dealt out."""
        return self._size

    @property
    def times(self) -> int:
        """How many times pairs were dealt out."""
        return len(self._places)

    @property
    def is_stored(self) -> bool:
        """Whether pairs are in files: from the first time on that the buffer was full."""
        return self._stored_times > 0

    def nodes(self, number: int) -> tuple[int, int]:
        """The nodes of one range: (first, last + 1)."""
        first = number << self._shift
        return first, min(first + (1 << self._shift), self.num_nodes)

    # Dealing out

    def add(self, major: np.ndarray, minor: np.ndarray) -> None:
        """Deal out some edges by their `major` nodes, at once or with later ones: a few long pieces beat many."""
        self._loops.count_ranges(major, minor, self._shift, self._counts)
        self._waiting.append((major, minor))
        self._edges_waiting += len(major)
        if self._edges_waiting >= self.entries:
            self.flush()

    def flush(self) -> None:
        """Deal out what is waiting."""
        if not self._waiting:
            return
        places = np.concatenate(([0], np.cumsum(self._counts))) + self._size
        count = int(places[-1]) - self._size
        if self._size + count - self._stored > len(self._buffer):
            self.store()
        if count > len(self._buffer):
            self._buffer = np.empty(count, dtype=self._pair)
        to = places[:-1] - self._stored
        for major, minor in self._waiting:
            self._loops.deal_out(major, minor, self._shift, self._minor_bits, to, self._buffer)
        self.loops += self._edges_waiting - count
        self._size += count
        self._places.append(places)
        self._waiting.clear()
        self._edges_waiting = 0
        self._counts[:] = 0

    def finish(self) -> None:
        """Deal out what is waiting. What the buffer does not hold alone goes to the files, and the buffer is freed."""
        self.flush()
        if self.is_stored:
            self._empty_buffer()

    def _empty_buffer(self) -> None:
        self.store()
        self._buffer = np.empty(0, dtype=self._pair)

    def store(self) -> None:
        """Append what is in the buffer to the files."""
        for path, values in (
            (self._pairs_path, self._buffer[: self._size - self._stored]),
            (self._places_path, np.array(self._places[self._stored_times :], dtype=_PLACE)),
        ):
            with path.open("ab") as file:
                file.write(values.data)
        self._stored, self._stored_times = self._size, self.times

    def return_to(self, times: int, loops: int) -> None:
        """Take the files as they were when pairs had been dealt out so many times, and forget what came later."""
        width = len(self) + 1
        cut(self._places_path, times * width * _PLACE.itemsize)
        found = read_array(self._places_path, _PLACE, 0, times * width).reshape(times, width)
        self._places, self.loops = list(found), loops
        self._size = self._stored = int(found[-1, -1]) if times else 0
        self._stored_times = times
        cut(self._pairs_path, self._size * self._pair.itemsize)

    # Lists

    def lists(self, number: int) -> Iterator[Lists]:
        """The lists of one range, no node twice in one: at once or, if too long for memory, a part at a time."""
        pieces = [(int(places[number]), int(places[number + 1])) for places in self._places]
        size = sum(end - begin for begin, end in pieces)
        if size > self.entries:
            self._empty_buffer()
            sorted_parts = external_sort(self._packed(number, pieces), self.folder, self.entries, whole_majors=True)
            yield from (distinct_lists(_lists_of(part), self._loops) for part in sorted_parts)
            return
        first, last = self.nodes(number)
        pairs = self._gathered(pieces, size)
        if self.is_stored:
            self._refuse_strangers(pairs, last - first)
        offsets, minors = np.empty(last - first + 1, dtype=np.int64), np.empty(size, dtype=np.int32)
        if self._is_short:
            bits = self._minor_bits
            count = self._loops.distinct_by_major(pairs, bits + self._shift, bits, offsets, minors)
            yield first, last, offsets, minors[:count]
            return
        minor, major = pairs.view(np.int32).reshape(-1, 2).T  # the low half comes first
        self._kernels.by_target(minor, major, offsets, minors, self.num_nodes)
        yield distinct_lists((first, last, offsets, minors), self._loops)

    def _refuse_strangers(self, pairs: np.ndarray, nodes: int) -> None:
        """A file that somebody changed must not lead the loops, which check nothing, to foreign memory."""
        largest = int(pairs.view(f"u{pairs.itemsize}").max(initial=0))
        minors = pairs[:0] if self._is_short else pairs.view(np.uint32)[::2]  # the low half comes first
        if largest >> self._minor_bits >= nodes or int(minors.max(initial=0)) >= self.num_nodes:
            raise InputError(f"expected pairs of nodes in '{self._pairs_path.name}'; got others; start again")

    def remove(self) -> None:
        """Remove the files."""
        self._close()
        self._pairs_path.unlink(missing_ok=True)
        self._places_path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _packed(self, number: int, pieces: list[tuple[int, int]]) -> Iterator[np.ndarray]:
        """The pairs of one range with whole numbers of nodes."""
        first, bits = self.nodes(number)[0], self._minor_bits
        parts = [(at, min(at + _AT_ONCE, end)) for begin, end in pieces for at in range(begin, end, _AT_ONCE)]
        for begin, end in parts:
            pairs = self._gathered([(begin, end)], end - begin)
            yield pack((pairs >> bits).astype(np.int64) + first, pairs & ((1 << bits) - 1))

    def _gathered(self, pieces: list[tuple[int, int]], size: int) -> np.ndarray:
        """The pairs of some pieces, of the file or of the buffer, one after the other."""
        pairs = np.empty(size, dtype=self._pair)
        if self.is_stored and self._file is None:
            self._file = self._pairs_path.open("rb", buffering=0)
        room, bytes_each, filled = pairs.view(np.uint8).data, self._pair.itemsize, 0
        for begin, end in pieces:
            count = end - begin
            if begin >= self._stored:
                pairs[filled : filled + count] = self._buffer[begin - self._stored : end - self._stored]
            elif count:
                assert self._file is not None
                read_into(self._file, begin * bytes_each, room[filled * bytes_each : (filled + count) * bytes_each])
            filled += count
        return pairs

    @property
    def _pairs_path(self) -> Path:
        return self.folder / "pairs.tmp"

    @property
    def _places_path(self) -> Path:
        return self.folder / "places.tmp"


def cut(path: Path, size: int) -> None:
    """Cut off what a file has beyond a size; refuses one that ends before."""
    with path.open("ab") as file:
        if file.tell() < size:
            raise InputError(f"expected {size} bytes in '{path.name}'; got {file.tell()}; start again")
        file.truncate(size)


def in_order(
    pairs: Iterable[Pairs], folder: Path, num_nodes: int, entries: int, kernels: ModuleType | None
) -> Iterator[Lists]:
    """The lists of all nodes that have one, by way of files in `folder`; about `entries` pairs are held at a time.

    No pair has the same node twice, and no list will. With compiled loops, `pairs` must come in parts of about
    `entries`.
    """
    if kernels is None:
        packed = (pack(*part) for part in pairs)
        sorted_parts = external_sort(packed, folder, entries, whole_majors=True)
        yield from (distinct_lists(_lists_of(part)) for part in sorted_parts)
        return
    with Buckets(folder, num_nodes, entries, kernels) as buckets:
        for part in pairs:
            buckets.add(*part)
        buckets.finish()
        for number in range(len(buckets)):
            yield from buckets.lists(number)
        buckets.remove()


def _lists_of(packed: np.ndarray) -> Lists:
    """Sorted pairs that hold whole lists."""
    first, last = int(packed[0] >> 32), int(packed[-1] >> 32) + 1
    return first, last, np.searchsorted(packed, np.arange(first, last + 1) << 32), unpack_minor(packed)


def distinct_lists(lists: Lists, loops: ModuleType | None = None) -> Lists:
    """The lists without what repeats: they are changed in place. With `loops`, compiled ones (`bucket_kernels`)."""
    first, last, offsets, minors = lists
    if loops is not None:
        return first, last, offsets, minors[: loops.drop_repeats(offsets, minors)]
    new = np.ones(len(minors), dtype=bool)
    np.not_equal(minors[1:], minors[:-1], out=new[1:])
    new[offsets[:-1][offsets[:-1] < offsets[1:]]] = True
    if new.all():
        return lists
    kept = np.concatenate(([0], np.cumsum(new)))
    return first, last, kept[offsets], minors[new]
