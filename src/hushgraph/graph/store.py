"""A graph on disk, sorted by destination, for graphs that do not fit in memory.

A folder holds `header.json` (sizes and checksums), `offsets.bin` (int64, one more than nodes) and `sources.bin` (int32,
one per edge): the arrays of `InNeighbors`. `ingest` writes it with one external sort by destination, after another
one by sender when lists are capped, and moves the finished folder into place in one step: what is there is whole.

The files hold the private edges as they are. Keep them where the raw data may be kept, and delete them with it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.degree import capped, distinct
from hushgraph.graph.edge_files import EdgeSource, edge_chunks
from hushgraph.graph.edges import INT32_LIMIT, InNeighbors, pack, unpack_minor
from hushgraph.graph.external_sort import external_sort, read_array
from hushgraph.noise.source import NoiseSource

FORMAT = "hushgraph graph 1"
_OFFSETS, _SOURCES = "offsets.bin", "sources.bin"
_OFFSET_TYPE, _SOURCE_TYPE = np.dtype("<i8"), np.dtype("<i4")
_BYTES_PER_ENTRY = 40  # buffer, sorted copy and what the cap needs beside them


def ingest(
    edges: EdgeSource,
    folder: str | Path,
    *,
    num_nodes: int,
    memory_limit: int,
    max_degree: int | None = None,
    noise: NoiseSource | None = None,
) -> BlockedGraph:
    """Write `edges` to a new folder, sorted by destination, using about `memory_limit` bytes.

    Repeated edges are stored once. With `max_degree` every sender's list is capped first, exactly as
    `cap_owned_lists` does it with the same noise source. The result equals
    `InNeighbors.from_edge_index(edges, num_nodes).coalesce()`.

    Edge cases: an existing folder is refused; after an error or a crash there is no folder, at most a temporary one
    whose name says `partial`.
    """
    target = Path(folder)
    if target.exists():
        raise InputError(f"expected a new folder; got '{target}', which exists; choose another name or delete it")
    if max_degree is not None and noise is None:
        raise InputError("expected a noise source for the degree cap; got none; give noise=NoiseSource.from_os()")
    entries = max(memory_limit // _BYTES_PER_ENTRY, 1)
    with _new_folder(target) as work:
        packed = (pack(s, t) for s, t in edge_chunks(edges, num_nodes, max(entries // 4, 1)))
        if max_degree is not None and noise is not None:
            by_sender = external_sort(packed, _subfolder(work, "by-sender"), entries, whole_majors=True)
            packed = (capped(piece, max_degree, noise) for piece in by_sender)
        by_target = external_sort(map(_swapped, packed), _subfolder(work, "by-target"), entries)
        _write_graph(by_target, work, num_nodes, max_degree)
    return BlockedGraph(target)


class BlockedGraph:
    """A graph folder opened for reading. Opening checks the header and the sizes; `verify` reads everything."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._header = _read_header(self.folder)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones included."""
        return int(self._header["num_nodes"])

    @property
    def num_edges(self) -> int:
        """How many directed edges are stored."""
        return int(self._header["num_edges"])

    @property
    def max_degree(self) -> int | None:
        """The cap on senders' lists that was applied, if any."""
        value = self._header["max_degree"]
        return None if value is None else int(value)

    @property
    def num_bytes(self) -> int:
        """Size of the stored arrays."""
        return _expected_size(_OFFSETS, self._header) + _expected_size(_SOURCES, self._header)

    def offsets(self, first: int, last: int) -> np.ndarray:
        """Where the lists of targets `first .. last` begin: `last - first + 1` positions, int64."""
        return read_array(self.folder / _OFFSETS, _OFFSET_TYPE, first, last - first + 1)

    def sources(self, begin: int, end: int) -> np.ndarray:
        """The senders stored at positions `begin .. end`, int32."""
        return read_array(self.folder / _SOURCES, _SOURCE_TYPE, begin, end - begin)

    def load(self) -> InNeighbors:
        """The whole graph in memory."""
        wide = self.num_edges >= INT32_LIMIT
        offsets = self.offsets(0, self.num_nodes).astype(np.int64 if wide else np.int32)
        return InNeighbors(torch.from_numpy(offsets), torch.from_numpy(self.sources(0, self.num_edges)))

    def verify(self) -> None:
        """Read both files and compare their checksums with the header."""
        for name in (_OFFSETS, _SOURCES):
            with (self.folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self._header["sha256"][name]:
                raise InputError(f"expected the stored checksum of '{name}'; got another one; ingest the graph again")


def _write_graph(pieces: Iterator[np.ndarray], folder: Path, num_nodes: int, max_degree: int | None) -> None:
    """Stream sorted pairs `target << 32 | source` into the two arrays and the header."""
    num_edges, next_node = 0, 0
    with _HashedFile(folder / _OFFSETS) as offsets, _HashedFile(folder / _SOURCES) as sources:
        for piece in pieces:
            pairs = distinct(piece)
            sources.write(unpack_minor(pairs).astype(_SOURCE_TYPE, copy=False))
            # A node's list begins where its first pair would stand; nodes after the last one seen wait for more.
            last_seen = int(pairs[-1] >> 32)
            nodes = np.arange(next_node, last_seen + 1, dtype=np.int64)
            offsets.write((num_edges + np.searchsorted(pairs, nodes << 32)).astype(_OFFSET_TYPE, copy=False))
            num_edges, next_node = num_edges + len(pairs), max(next_node, last_seen + 1)
        offsets.write(np.full(num_nodes + 1 - next_node, num_edges, dtype=_OFFSET_TYPE))
    digests = {_OFFSETS: offsets.digest(), _SOURCES: sources.digest()}
    header = {
        "format": FORMAT,
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "max_degree": max_degree,
        "sha256": digests,
    }
    _write_durably(folder / "header.json", (json.dumps(header, indent=2) + "\n").encode())


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
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        yield work
        for rest in work.glob("by-*"):
            shutil.rmtree(rest)
        work.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HushgraphError(
                f"expected room on disk for the sorted edges in '{target.parent}'; got a full disk; free about 12 "
                "bytes per edge, 20 with a degree cap, and ingest again"
            ) from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _read_header(folder: Path) -> dict[str, Any]:
    try:
        header = json.loads((folder / "header.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"expected a graph folder; got '{folder}' ({error}); make one with ingest") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"expected the format '{FORMAT}' in '{folder}'; got another one; ingest the graph again")
    problems = []
    for name in (_OFFSETS, _SOURCES):
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if found != _expected_size(name, header):
            problems.append(
                f"expected {_expected_size(name, header)} bytes in '{name}'; got {found}; copy or ingest it again"
            )
    InputError.collect(problems)
    return header


def _expected_size(name: str, header: dict[str, Any]) -> int:
    if name == _OFFSETS:
        return _OFFSET_TYPE.itemsize * (int(header["num_nodes"]) + 1)
    return _SOURCE_TYPE.itemsize * int(header["num_edges"])


def _swapped(packed: np.ndarray) -> np.ndarray:
    return pack(packed & 0xFFFFFFFF, packed >> 32)


def _subfolder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
