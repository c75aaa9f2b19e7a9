"""The folder of `hushgraph.graph.disk`, judged before it is used: its header, its checksums, and every number in it.

Whoever walks through the lists takes them at their word and looks up rows by the numbers in them. A list that ends
before it begins, a node that is not there, or an edge that is there twice would be read from foreign memory, or move a
sum by more than one edge may.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named, read_json, require_fields
from hushgraph.files.remote import RemoteFile
from hushgraph.graph.external_sort import read_array

FORMAT = "hushgraph edges 1"
HEADER, OFFSETS, SOURCES = "header.json", "offsets.bin", "sources.bin"
OFFSET_TYPE, SOURCE_TYPE = np.dtype("<i8"), np.dtype("<i4")
_COUNTS = ("num_nodes", "num_edges", "repeated", "self_loops")
_AT_ONCE = 1 << 20


def read_header(folder: Path, elsewhere: RemoteFile | None = None) -> dict[str, Any]:
    """The header of a folder of edges, if its files have the size it says; that of senders may be elsewhere."""
    header = read_json(folder / HEADER, of="a folder of edges")
    if header.get("format") != FORMAT:
        raise InputError(f"expected the format '{FORMAT}' in '{folder}'; got another one; write the edges again")
    require_fields(header, {**dict.fromkeys(_COUNTS, int), "sha256": dict}, folder / HEADER)
    problems = [
        f"{folder / HEADER}: expected {name} to be at least 0; got {header[name]}"
        for name in _COUNTS
        if header[name] < 0
    ]
    sizes = {
        OFFSETS: OFFSET_TYPE.itemsize * (header["num_nodes"] + 1),
        SOURCES: SOURCE_TYPE.itemsize * header["num_edges"],
    }
    for name, size in sizes.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if elsewhere is not None and name == SOURCES:
            found = elsewhere.size() or 0
        if found != size:
            problems.append(f"expected {size} bytes in '{name}'; got {found}; copy or write it again")
    InputError.collect(problems)
    return header


def verify(folder: Path, header: dict[str, Any], senders: Path | None) -> None:
    """Read both files: their checksums are those of the header, and their lists are lists of distinct neighbors.

    Without `senders`, what can be said without them.
    """
    offsets, sources = hashlib.sha256(), hashlib.sha256()
    count, begin = header["num_nodes"], 0
    with damage_named(folder, do="Write the edges again"):
        for first in range(0, max(count, 1), _AT_ONCE):
            last = min(first + _AT_ONCE, count)
            ends = read_array(folder / OFFSETS, OFFSET_TYPE, first, last - first + 1)
            offsets.update(ends[:-1].data if last < count else ends.data)
            if ends[0] != begin or (ends[1:] < ends[:-1]).any() or ends[-1] > header["num_edges"]:
                raise ValueError("its lists do not follow one another")
            begin = int(ends[-1])
            if senders is not None:
                _verify_lists(senders, first, ends, count, sources)
        if begin != header["num_edges"]:
            raise ValueError("its lists do not hold all of its edges")
    for name, found in ((OFFSETS, offsets), *([] if senders is None else [(SOURCES, sources)])):
        if found.hexdigest() != header["sha256"].get(name):
            raise InputError(f"expected the stored checksum of '{name}'; got another one; write the edges again")


def _verify_lists(senders: Path, first: int, ends: np.ndarray, num_nodes: int, digest: Any) -> None:
    """The lists of the nodes from `first` on, a part at a time."""
    before = -1
    for begin in range(int(ends[0]), int(ends[-1]), _AT_ONCE):
        end = min(begin + _AT_ONCE, int(ends[-1]))
        found = read_array(senders, SOURCE_TYPE, begin, end - begin)
        digest.update(found.data)
        refuse_strangers(found, num_nodes)
        owner = int(np.searchsorted(ends, begin, side="right")) - 1
        until = int(np.searchsorted(ends, end, side="left"))
        places = np.clip(ends[owner : until + 1], begin, end)
        owners = np.repeat(np.arange(first + owner, first + until, dtype=SOURCE_TYPE), np.diff(places))
        starts = np.zeros(len(found) + 1, dtype=bool)
        starts[places - begin] = True
        starts[0] = int(ends[owner]) == begin
        rises = np.diff(found, prepend=SOURCE_TYPE.type(before)) > 0
        if not (rises | starts[:-1]).all() or (found == owners).any():
            raise ValueError("a list is not in order, names a node twice, or its own node")
        before = int(found[-1])


def are_distinct_others(first: int, offsets: np.ndarray, sources: np.ndarray) -> bool:
    """Whether the lists of the nodes from `first` on ascend, name nobody twice and not their own node.

    They are `sources[offsets[i] - offsets[0] : offsets[i + 1] - offsets[0]]`.
    """
    rises = np.ones(len(sources) + 1, dtype=bool)
    np.greater(sources[1:], sources[:-1], out=rises[1:-1])
    rises[offsets - offsets[0]] = True  # where a list begins
    owners = np.repeat(np.arange(first, first + len(offsets) - 1, dtype=SOURCE_TYPE), np.diff(offsets))
    return bool(rises.all()) and not bool((sources == owners).any())


def refuse_other_lists(first: int, offsets: np.ndarray, sources: np.ndarray, num_nodes: int) -> np.ndarray:
    """The senders, if they are lists of distinct neighbors: of files elsewhere, which are judged as they are read."""
    refuse_strangers(sources, num_nodes)
    if not are_distinct_others(first, offsets, sources):
        raise InputError("edges: expected lists of distinct neighbors; got others; write the edges again")
    return sources


def refuse_strangers(found: np.ndarray, num_nodes: int) -> np.ndarray:
    """The senders, if each is one of the nodes."""
    if len(found) and not 0 <= found.min() <= found.max() < num_nodes:
        raise InputError(f"edges: expected senders among the {num_nodes:,} nodes; got others; write the edges again")
    return found
