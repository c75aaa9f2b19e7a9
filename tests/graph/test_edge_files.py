"""Edges from arrays and files, in chunks; wrong files are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.edge_files import EdgeSource, edge_chunks

EDGES = np.array([[0, 3, 1, 2, 2, 0, 1], [1, 2, 0, 3, 0, 2, 1]])


def joined(edges: EdgeSource, entries: int) -> tuple[list[list[int]], int]:
    chunks = list(edge_chunks(edges, 4, entries))
    longest = max((len(source) for source, _ in chunks), default=0)
    return [[int(v) for chunk in chunks for v in chunk[row]] for row in (0, 1)], longest


@pytest.mark.parametrize("entries", [1, 3, 7, 100])
@pytest.mark.parametrize("kind", ["tensor", "iterator", "npy", "npz", "compressed"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_source_gives_the_same_edges(tmp_path: Path, entries: int, kind: str, dtype: type) -> None:
    array = EDGES.astype(dtype)
    path = tmp_path / ("edges.npy" if kind == "npy" else "edges.npz")
    save = {"npy": np.save, "npz": lambda p, a: np.savez(p, edge_index=a)}
    save["compressed"] = lambda p, a: np.savez_compressed(p, edge_index=a, other=np.zeros(3))
    edges: EdgeSource = path
    if kind == "tensor":
        edges = torch.from_numpy(array)
    elif kind == "iterator":
        edges = (torch.from_numpy(part) for part in np.array_split(array, 3, axis=1))
    else:
        save[kind](path, array)
    found, longest = joined(edges, entries)
    assert found == EDGES.tolist()
    assert longest <= entries


def test_an_empty_file_gives_no_edges(tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.zeros((2, 0), dtype=np.int64))
    assert joined(tmp_path / "none.npy", 5) == ([[], []], 0)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), "integers of shape"),
        (np.zeros((3, 2), dtype=np.int64), "integers of shape"),
        (np.asfortranarray(np.zeros((2, 3), dtype=np.int64)), "row order"),
        (np.array([[0, 9], [1, 1]]), "from 0 to 3"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "edges.npy", array)
    with pytest.raises(InputError, match=message):
        list(edge_chunks(tmp_path / "edges.npy", 4, 10))


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[object()], [object()]]), allow_pickle=True)
    with pytest.raises(InputError, match="integers of shape"):
        list(edge_chunks(tmp_path / "edges.npy", 4, 10))


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n")
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    (tmp_path / "bad.npy").write_bytes(b"not an array")
    np.savez(tmp_path / "other.npz", edges=EDGES)
    np.save(tmp_path / "short.npy", EDGES)
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-9])
    for name, message in [
        ("edges.csv", ".npy or .npz"),
        ("bad.npz", "'edge_index'"),
        ("bad.npy", "numpy array"),
        ("other.npz", "'edge_index'"),
        ("short.npy", "ends before"),
        ("missing.npy", "does not exist"),
    ]:
        with pytest.raises(InputError, match=message):
            list(edge_chunks(tmp_path / name, 4, 10))
