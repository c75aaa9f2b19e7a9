"""Edges a chunk at a time, from arrays in memory, `.npy` files or `.npz` archives. No pickle is ever loaded."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import checked_edges

EdgeSource = Tensor | str | Path | Iterable[Tensor]


def edge_chunks(edges: EdgeSource, num_nodes: int, entries: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Checked (sources, targets) in chunks of about `entries` edges.

    `edges` is a `[2, E]` tensor, an iterable of such tensors, the path of a `.npy` file with that array, or of a
    `.npz` archive with an array named `edge_index`.
    """
    parts: Iterable[Tensor]
    if isinstance(edges, str | Path):
        parts = _from_file(Path(edges), entries)
    else:
        parts = [edges] if isinstance(edges, Tensor) else edges
    for part in parts:
        for piece in torch.split(part, entries, dim=1):
            yield checked_edges(piece, num_nodes)


def _from_file(path: Path, entries: int) -> Iterator[Tensor]:
    if not path.is_file():
        raise InputError(f"expected an edge file; got '{path}', which does not exist; check the path")
    if path.suffix == ".npy":
        return _stream(path.open("rb"), path.open("rb"), path, entries)
    if path.suffix == ".npz":
        return _from_archive(path, entries)
    raise InputError(f"expected a .npy or .npz file of edges; got '{path.name}'; save the edge index with numpy.save")


def _from_archive(path: Path, entries: int) -> Iterator[Tensor]:
    try:
        archive = zipfile.ZipFile(path)
        first, second = archive.open("edge_index.npy"), archive.open("edge_index.npy")
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"expected an array 'edge_index' in '{path.name}'; got {error}; check the archive") from error
    return _stream(first, second, path, entries)


def _stream(sources: IO[bytes], targets: IO[bytes], path: Path, entries: int) -> Iterator[Tensor]:
    """Read the two rows of one stored array side by side through two handles."""
    with sources, targets:
        dtype, count = _array_header(sources, path)
        _array_header(targets, path)
        targets.seek(count * dtype.itemsize, io.SEEK_CUR)
        for start in range(0, count, entries):
            size = min(entries, count - start)
            rows = [_read_exactly(stream, size, dtype, path) for stream in (sources, targets)]
            yield torch.from_numpy(np.stack(rows).astype(np.int64))


def _array_header(stream: IO[bytes], path: Path) -> tuple[np.dtype, int]:
    try:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(stream)
    except ValueError as error:
        raise InputError(f"expected a numpy array in '{path.name}'; got {error}; save it with numpy.save") from error
    if len(shape) != 2 or shape[0] != 2 or fortran or dtype.kind not in "iu":
        raise InputError(
            f"expected integers of shape [2, E] in row order in '{path.name}'; got {dtype} of shape {list(shape)}; "
            "save numpy.ascontiguousarray(edge_index)"
        )
    return dtype, shape[1]


def _read_exactly(stream: IO[bytes], size: int, dtype: np.dtype, path: Path) -> np.ndarray:
    raw = stream.read(size * dtype.itemsize)
    if len(raw) != size * dtype.itemsize:
        raise InputError(f"expected {size} more edges in '{path.name}'; got a file that ends before; copy it again")
    return np.frombuffer(raw, dtype=dtype)
