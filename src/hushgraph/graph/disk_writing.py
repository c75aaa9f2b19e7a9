"""The folder of `hushgraph.graph.disk`, written: a new one appears whole or not at all, and can be taken up again.

Edges are dealt out first and put in order then (`hushgraph.graph.buckets`). How far that is stands in `state.json` of
the folder to be, so that a process that was killed can be followed by one that goes on. So few edges that they never
leave memory are dealt out again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.files.reading import read_json
from hushgraph.files.writing import write_whole
from hushgraph.graph.buckets import Buckets, Lists, Pairs, cut, in_order
from hushgraph.graph.disk_reading import FORMAT, HEADER, OFFSET_TYPE, OFFSETS, SOURCE_TYPE, SOURCES
from hushgraph.graph.packed import checked_edges
from hushgraph.graph.sums import LEAST_COMPILED, kernels_for

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is (0: not known)."""


def nobody(stage: str, done: int, total: int) -> None:
    """Watches no progress."""


_STATE, _SORTING = "state.json", "sort"
_EDGES_BETWEEN_STATES = 1 << 26
_EDGES_AT_ONCE = 1 << 18


@dataclass
class _State:
    """How far the work in a folder is: parts of the input read, in so many times dealt out, then ranges written."""

    entries: int
    read: int = 0
    times: int = 0
    loops: int = 0
    is_dealt: bool = False
    ranges: int = 0
    num_edges: int = 0

    @classmethod
    def kept(cls, work: Path, entries: int) -> _State:
        """What is kept in a folder of work with parts of the same size; else the beginning."""
        if (work / _STATE).is_file():
            found = read_json(work / _STATE)
            if found.keys() == vars(cls(entries)).keys() and found["entries"] == entries:
                return cls(**found)
        return cls(entries)

    def keep(self, work: Path) -> None:
        """Write it down at once."""
        write_whole(work / _STATE, json.dumps(vars(self)))


def write_edges(
    work: Path, blocks: Iterable[Tensor], num_nodes: int, entries: int, *, both: bool, progress: Progress
) -> None:
    """Put blocks of `[2, E]` edges in order in the folder `work`, or go on with what was begun there.

    About `entries` edges are held at a time; with `both`, each edge is stored in both directions.
    """
    parts = _parts(blocks, num_nodes, _in_part(entries), both)
    first = _first_parts(parts)
    kernels = kernels_for(sum(len(part[0]) for part in first))
    sorting = work / _SORTING
    sorting.mkdir(exist_ok=True)
    if kernels is None:
        seen = _Seen()
        lists = in_order(map(seen.without_loops, chain(first, parts)), sorting, num_nodes, entries, None)
        write_lists(lists, work, num_nodes, seen=seen, symmetric=both)
    else:
        with Buckets(sorting, num_nodes, entries, kernels) as buckets:
            _write_in_ranges(work, chain(first, parts), buckets, _State.kept(work, _in_part(entries)), both, progress)
    (work / _STATE).unlink(missing_ok=True)  # first: it must not outlive what it tells of
    shutil.rmtree(sorting)


def _write_in_ranges(
    work: Path, parts: Iterable[Pairs], buckets: Buckets, state: _State, both: bool, progress: Progress
) -> None:
    buckets.return_to(state.times, state.loops)
    _deal_out(work, state, buckets, parts, progress)
    with _Written(work, buckets.nodes(state.ranges)[0] if state.ranges else 0, state.num_edges) as written:
        for number in range(state.ranges, len(buckets)):
            for lists in buckets.lists(number):
                written.add(lists)
            written.skip_to(buckets.nodes(number)[1])
            if state.is_dealt and written.num_edges - state.num_edges >= _EDGES_BETWEEN_STATES:
                state.ranges, state.num_edges = number + 1, written.num_edges
                state.keep(work)
            progress("edges put in order", number + 1, len(buckets))
        written.finish(buckets.num_nodes, _Seen(buckets.size, buckets.loops), symmetric=both)


def _deal_out(work: Path, state: _State, buckets: Buckets, parts: Iterable[Pairs], progress: Progress) -> None:
    """Read all parts; those that were dealt out before are only passed by, so that whoever makes them sees them."""

    def keep() -> None:
        buckets.store()
        state.times, state.loops = buckets.times, buckets.loops
        state.keep(work)

    kept_at = seen = 0
    for number, (major, minor) in enumerate(parts):
        seen += len(major)
        if number < state.read or state.is_dealt:
            continue
        buckets.add(major, minor)
        progress("edges read", seen, 0)
        if seen - kept_at >= _EDGES_BETWEEN_STATES:
            buckets.flush()
            state.read, kept_at = number + 1, seen
            keep()
    if not state.is_dealt:
        buckets.finish()
        state.is_dealt = buckets.is_stored  # else all are in memory still
        if state.is_dealt:
            keep()


def _in_part(entries: int) -> int:
    """Edges of a part: as many as are dealt out at once, or as stay in the processor's cache between two looks."""
    return max(min(entries // 2, _EDGES_AT_ONCE), 1)


def _parts(blocks: Iterable[Tensor], num_nodes: int, entries: int, both: bool) -> Iterator[Pairs]:
    """Targets and sources, a part at a time."""
    for block in blocks:
        for begin in range(0, block.shape[1], entries):
            source, target = checked_edges(block[:, begin : begin + entries], num_nodes)
            yield target, source
            if both:
                yield source, target


def _first_parts(parts: Iterator[Pairs]) -> list[Pairs]:
    """As many parts as it takes to see that compiled loops are worth it."""
    taken: list[Pairs] = []
    for part in parts:
        taken.append(part)
        if sum(len(one[0]) for one in taken) >= LEAST_COMPILED:
            break
    return taken


@dataclass
class _Seen:
    """How many edges there were, repeated ones too, and how many from a node to itself beside them."""

    edges: int = 0
    loops: int = 0

    def without_loops(self, pairs: Pairs) -> Pairs:
        """Count some edges, and take those from a node to itself away."""
        keep = pairs[0] != pairs[1]
        count = int(np.count_nonzero(keep))
        self.edges, self.loops = self.edges + count, self.loops + len(keep) - count
        return pairs[0][keep], pairs[1][keep]


def write_lists(
    lists: Iterable[Lists], work: Path, num_nodes: int, *, seen: _Seen | None = None, symmetric: bool = False
) -> None:
    """Write lists by target, in order and without repeats, to the folder `work`, which is then complete."""
    with _Written(work) as written:
        for part in lists:
            written.add(part)
        written.finish(num_nodes, seen or _Seen(written.num_edges), symmetric=symmetric)


class _Written:
    """The two arrays while they are written, front to back, from node `next_node` on."""

    def __init__(self, work: Path, next_node: int = 0, num_edges: int = 0) -> None:
        self.work, self.next_node, self.num_edges = work, next_node, num_edges
        self._offsets = HashedFile(work / OFFSETS, next_node * OFFSET_TYPE.itemsize)
        self._sources = HashedFile(work / SOURCES, num_edges * SOURCE_TYPE.itemsize)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._offsets.close()
        self._sources.close()

    def add(self, lists: Lists) -> None:
        first, last, offsets, sources = lists
        self.skip_to(first)
        self._sources.write(sources.astype(SOURCE_TYPE, copy=False))
        self._offsets.write((offsets[:-1] - offsets[0] + self.num_edges).astype(OFFSET_TYPE, copy=False))
        self.num_edges, self.next_node = self.num_edges + len(sources), last

    def skip_to(self, node: int) -> None:
        """Nodes without a list."""
        if node > self.next_node:
            self._offsets.write(np.full(node - self.next_node, self.num_edges, dtype=OFFSET_TYPE))
            self.next_node = node

    def finish(self, num_nodes: int, seen: _Seen, *, symmetric: bool) -> None:
        self.skip_to(num_nodes + 1)
        self._offsets.close()
        self._sources.close()
        header = {
            "format": FORMAT,
            "num_nodes": num_nodes,
            "num_edges": self.num_edges,
            "repeated": seen.edges - self.num_edges,
            "self_loops": seen.loops,
            "sha256": {OFFSETS: self._offsets.digest(), SOURCES: self._sources.digest()},
            **({"symmetric": True} if symmetric else {}),
        }
        write_whole(self.work / HEADER, (json.dumps(header, indent=2) + "\n").encode())


class HashedFile:
    """A file written front to back whose SHA-256 is known at the end; its first `begin` bytes may be there already."""

    def __init__(self, path: Path, begin: int = 0) -> None:
        self._hash = hashlib.sha256()
        if begin:
            cut(path, begin)
            with path.open("rb") as file:
                self._hash = hashlib.file_digest(file, "sha256")
        self._file = path.open("ab" if begin else "wb")

    def write(self, values: np.ndarray) -> None:
        """Append the bytes of an array."""
        self._file.write(values.data)
        self._file.flush()
        self._hash.update(values.data)

    def digest(self) -> str:
        """The hash of all that was written."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Make sure that it is on the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


# Folders


@contextmanager
def new_folder(target: Path, *, made_from: str | None = None) -> Iterator[Path]:
    """A temporary folder beside `target` that becomes `target` when all went well and vanishes otherwise.

    With `made_from`, which names all that goes into it, work that was stopped from outside stays and is used by the
    next one made from the same.
    """
    if target.exists():
        raise InputError(f"expected a new folder; got '{target}', which exists; choose another name or delete it")
    target.parent.mkdir(parents=True, exist_ok=True)
    begins = f".{target.name}.partial-"
    if made_from is None:
        work = Path(tempfile.mkdtemp(prefix=begins, dir=target.parent))
    else:
        work = target.parent / f"{begins}{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
        work.mkdir(mode=0o700, exist_ok=True)
    try:
        with told_if_full(target.parent):
            yield work
            work.rename(target)
    except BaseException as error:
        if made_from is None or isinstance(error, Exception):
            shutil.rmtree(work, ignore_errors=True)
        raise


@contextmanager
def told_if_full(folder: Path) -> Iterator[None]:
    """An error in the words of this package where the disk has no room left."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"expected room on disk for the sorted edges in '{folder}'; got a full disk; free about 12 bytes for "
                "each direction of an edge, 16 for a degree cap, and try again"
            ) from error
        raise
