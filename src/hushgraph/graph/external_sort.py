"""Sorting more pairs than fit in memory: sorted runs on disk, then one pass over ranges of keys.

Pairs of node numbers are packed into int64 (see `hushgraph.graph.edges.pack`). Writing is by plain file writes, so a
full disk is an error and never a crash; reading is by `readinto`, so a short file is an error too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

import numpy as np

from hushgraph.errors import InputError
from hushgraph.files.remote import RemoteFile

OWNER = 1 << 32
_SMALLEST_RUN = 1 << 10


def external_sort(
    chunks: Iterable[np.ndarray], folder: Path, entries_in_memory: int, *, whole_majors: bool = False
) -> Iterator[np.ndarray]:
    """The packed pairs of `chunks`, sorted, as arrays that follow one another.

    About `entries_in_memory` pairs are held at a time. Equal pairs are always in one array, and with `whole_majors` so
    are all pairs of one major number (a list longer than the limit is then one array).
    """
    room = max(entries_in_memory, _SMALLEST_RUN)
    runs = [_SortedRun(_write_run(part, folder, number)) for number, part in enumerate(_full_parts(chunks, room))]
    share = max(room // max(len(runs), 1), 1)
    while any(run.left for run in runs):
        bound = _next_bound(runs, share, whole_majors)
        piece = np.concatenate([run.take_below(bound) for run in runs])
        piece.sort()
        yield piece
    for run in runs:
        run.path.unlink()


class _SortedRun:
    """A sorted file of int64 read from front to back, with a binary search for the next cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._length = path.stat().st_size // 8
        self._position = 0

    @property
    def left(self) -> int:
        return self._length - self._position

    def peek(self, ahead: int) -> int | None:
        """The value `ahead` places from here, if the run is that long."""
        if ahead >= self.left:
            return None
        return int(self._read(self._position + ahead, 1)[0])

    def take_below(self, bound: int | None) -> np.ndarray:
        """All values from here that are below `bound` (all that are left when there is none)."""
        count = self.left if bound is None else self._count_below(bound)
        values = self._read(self._position, count)
        self._position += count
        return values

    def _count_below(self, bound: int) -> int:
        low, high = 0, self.left
        while low < high:
            middle = (low + high) // 2
            value = self.peek(middle)
            if value is not None and value < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, first: int, count: int) -> np.ndarray:
        return read_array(self.path, np.dtype("<i8"), first, count)


def read_array(path: Path | RemoteFile, dtype: np.dtype, first: int, count: int) -> np.ndarray:
    """`count` values of a flat file from position `first`; refuses a file that ends before."""
    if isinstance(path, RemoteFile):
        found = path.read(first * dtype.itemsize, count * dtype.itemsize) if count else b""
        return np.frombuffer(bytearray(found), dtype=dtype)
    values = np.empty(count, dtype=dtype)
    if count:
        with path.open("rb", buffering=0) as file:
            read_into(file, first * dtype.itemsize, values.view(np.uint8).data)
    return values


def read_into(file: FileIO, begin: int, room: memoryview) -> None:
    """Fill some bytes with those of the file from `begin` on; refuses a file that ends before."""
    file.seek(begin)
    while len(room):
        got = file.readinto(room)
        if not got:
            name = Path(os.fsdecode(file.name)).name
            raise InputError(
                f"expected {len(room)} bytes more in '{name}' from {begin} on; got a file that ends before"
            )
        room = room[got:]


def _next_bound(runs: list[_SortedRun], share: int, whole_majors: bool) -> int | None:
    """A key such that no run has more than `share` values below it; None when everything left fits."""
    ahead = [value for run in runs if (value := run.peek(share)) is not None]
    if not ahead:
        return None
    lowest = min(value for run in runs if (value := run.peek(0)) is not None)
    bound = min(ahead)
    if whole_majors:
        bound -= bound % OWNER
    if bound > lowest:
        return bound
    return lowest - lowest % OWNER + OWNER if whole_majors else lowest + 1


def _full_parts(chunks: Iterable[np.ndarray], room: int) -> Iterator[np.ndarray]:
    """Cut and join the chunks into arrays of exactly `room` pairs (the last one shorter)."""
    buffer = np.empty(room, dtype=np.int64)
    filled = 0
    for chunk in chunks:
        taken = 0
        while taken < len(chunk):
            count = min(room - filled, len(chunk) - taken)
            buffer[filled : filled + count] = chunk[taken : taken + count]
            filled, taken = filled + count, taken + count
            if filled == room:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _write_run(values: np.ndarray, folder: Path, number: int) -> Path:
    values.sort()
    path = folder / f"run-{number}.tmp"  # in the place of what a killed process left
    with path.open("wb") as file:
        file.write(values.astype("<i8", copy=False).data)
    return path
