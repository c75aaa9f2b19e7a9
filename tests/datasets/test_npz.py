"""Graph files: what is written is read back, and what is wrong is refused with a reason."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets.built_in import campus
from hushgraph.datasets.npz import read_npz, write_npz
from hushgraph.datasets.splits import MASKS, has_split, to_torch_csr
from hushgraph.errors import InputError
from small_graphs import random_graph

# A path 0 - 1 - 2 - 3 and the isolated node 4.
PATH_EDGES = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], dtype=np.int32)
FEATURES = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [1, 1, 0], [0, 0, 1]], dtype=np.uint8)


def _arrays(**changes: Any) -> dict[str, Any]:
    csr = sparse.csr_matrix(FEATURES)
    arrays = {
        "edge_index": PATH_EDGES,
        "y": np.array([0, 1, -1, 1, 0]),
        "class_names": np.array(["cat", "dog"]),
        "x_data": csr.data,
        "x_indices": csr.indices,
        "x_indptr": csr.indptr,
        "x_shape": np.array(csr.shape),
    }
    arrays.update(changes)
    return {name: value for name, value in arrays.items() if value is not None}


def _save(folder: Path, **changes: Any) -> Path:
    path = folder / "toy.npz"
    np.savez(path, **_arrays(**changes))
    return path


def test_reads_sparse_features_labels_and_names(tmp_path: Path) -> None:
    data = read_npz(_save(tmp_path))
    assert data.x.layout == torch.sparse_csr
    assert data.x.dtype == torch.float32
    assert data.x.to_dense().tolist() == FEATURES.tolist()
    assert data.edge_index.dtype == torch.int64
    assert data.edge_index.tolist() == PATH_EDGES.tolist()
    assert data.y.tolist() == [0, 1, -1, 1, 0]
    assert data.class_names == ["cat", "dog"]
    assert data.name == "toy"
    assert data.num_nodes == 5
    assert not has_split(data)


def test_reads_dense_features(tmp_path: Path) -> None:
    none = dict.fromkeys(("x_data", "x_indices", "x_indptr", "x_shape"))
    data = read_npz(_save(tmp_path, x=FEATURES.astype(np.float64), **none))
    assert data.x.layout == torch.strided
    assert data.x.dtype == torch.float32
    assert data.x.tolist() == FEATURES.tolist()


def test_a_file_without_features_needs_a_word(tmp_path: Path) -> None:
    path = _save(tmp_path, x_data=None, x_indices=None, x_indptr=None, x_shape=None)
    with pytest.raises(InputError, match="features='constant'"):
        read_npz(path)
    assert read_npz(path, features="constant").x.tolist() == [[1.0]] * 5
    with pytest.raises(InputError, match="'required' or 'constant'"):
        read_npz(path, features="none")


def test_masks_are_taken_as_they_are(tmp_path: Path) -> None:
    masks = {name: np.arange(5) % 3 == number for number, name in enumerate(MASKS)}
    data = read_npz(_save(tmp_path, **masks))
    assert [torch.nonzero(data[name]).flatten().tolist() for name in MASKS] == [[0, 3], [1, 4], [2]]


def test_chooses_among_several_splits(tmp_path: Path) -> None:
    shifts = np.array([[(node + shift) % 3 for node in range(5)] for shift in (0, 1)])
    path = _save(tmp_path, **{f"{name}s": shifts == number for number, name in enumerate(MASKS)})
    assert torch.nonzero(read_npz(path).train_mask).flatten().tolist() == [0, 3]
    assert torch.nonzero(read_npz(path, split=1).test_mask).flatten().tolist() == [1, 4]
    with pytest.raises(InputError, match="from 0 to 1; got 2"):
        read_npz(path, split=2)
    with pytest.raises(InputError, match="no train_masks"):
        read_npz(_save(tmp_path), split=1)


def test_keep_mask_gives_the_task_subgraph(tmp_path: Path) -> None:
    keep = np.array([False, True, False, True, True])
    y = np.array([-1, 1, -1, 0, 0])
    path = _save(tmp_path, y=y, keep_mask=keep, class_names=None, class_years=np.array([2004, 2005]))
    task = read_npz(path)
    assert task.node_ids.tolist() == [1, 3, 4]
    assert task.y.tolist() == [1, 0, 0]
    assert task.edge_index.shape == (2, 0)
    assert task.x.to_dense().tolist() == FEATURES[keep].tolist()
    assert task.class_names == ["2004", "2005"]
    everything = read_npz(path, task=False)
    assert everything.num_nodes == 5
    assert "node_ids" not in everything


def test_separate_split_file(tmp_path: Path) -> None:
    keep = np.array([True, True, False, True, True])
    path = _save(tmp_path, keep_mask=keep)
    split = tmp_path / "split.npz"
    masks = {name: np.arange(4) % 3 == number for number, name in enumerate(MASKS)}
    np.savez(split, node_ids=np.array([0, 1, 3, 4]), **masks)
    data = read_npz(path, split)
    assert data.node_ids[data.train_mask].tolist() == [0, 4]
    with pytest.raises(InputError, match="task subgraph"):
        read_npz(path, split, task=False)
    np.savez(split, node_ids=np.array([0, 2, 3, 4]), **masks)
    with pytest.raises(InputError, match="belongs to another graph"):
        read_npz(path, str(split))


def test_number_of_classes(tmp_path: Path) -> None:
    path = _save(tmp_path, class_names=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "class_names" not in read_npz(path)  # the labels, which may be private, do not declare them
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_npz(path, num_classes=4).class_names == ["0", "1", "2", "3"]
    with pytest.raises(InputError, match=r"from 0 to 0 in y; got 1"):
        read_npz(path, num_classes=1)
    with pytest.raises(InputError, match="expected 3 classes; got 2 in class_names"):
        read_npz(_save(tmp_path), num_classes=3)


def test_one_direction_needs_a_word(tmp_path: Path) -> None:
    path = _save(tmp_path, edge_index=PATH_EDGES[:, :5])
    with pytest.raises(InputError, match="both directions"):
        read_npz(path)
    assert read_npz(path, directed=True).edge_index.shape == (2, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "missing: y; found: class_names, edge_index"),
        ({"edge_index": PATH_EDGES.T}, r"edge_index of shape \(2, any\); got \(6, 2\)"),
        ({"edge_index": PATH_EDGES.astype(float)}, "edge_index to hold integers; got dtype float64"),
        ({"edge_index": PATH_EDGES + 2}, "from 0 to 4 .* got values from 2 to 5"),
        ({"edge_index": PATH_EDGES - 1}, "got values from -1 to 2"),
        ({"edge_index": np.array([[1, 2], [1, 2]])}, "without self loops; got 2"),
        ({"edge_index": np.array([[0, 1, 0, 1], [1, 0, 1, 0]])}, "without duplicates; got 2"),
        ({"y": np.array([0, 1, -2, 1, 0])}, "got -2"),
        ({"y": np.array([0, 1, 7, 1, 0])}, "from 0 to 1 in y; got 7"),
        ({"y": np.zeros((5, 1), int)}, r"y of shape \(any\)"),
        ({"y": np.zeros(0, int)}, "at least one node"),
        ({"x_indptr": None}, "missing: x_indptr"),
        ({"x_shape": np.array([4, 3])}, "x_shape with 5 rows"),
        ({"x_shape": np.array([5, 2])}, "x_indices from 0 to 1"),
        ({"x_indptr": np.array([0, 2, 1, 3, 5, 6])}, "x_indptr to rise"),
        ({"x_indptr": np.array([0, 2, 2, 3, 5, 7])}, "x_indptr to rise"),
        ({"x_data": np.ones(3)}, r"x_data of shape \(6\); got \(3,\)"),
        ({"x_data": np.full(6, np.nan)}, "finite numbers in x_data"),
        ({"train_mask": np.ones(5, bool)}, "missing: val_mask, test_mask"),
        ({"keep_mask": np.ones(5, int)}, "keep_mask to hold booleans"),
        ({"class_names": np.array([["a", "b"]])}, "class_names of shape"),
        ({"y": np.array([0, 1, None, 1, 0], dtype=object)}, "pickled objects, which are never loaded"),
        ({name: np.ones(5, bool) for name in MASKS}, "5 nodes in more than one"),
        ({f"{name}s": np.ones((2, 4), bool) for name in MASKS}, r"shape \(any, 5\); got \(2, 4\)"),
    ],
)
def test_refuses_wrong_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_npz(_save(tmp_path, **changes))
    assert "toy.npz" in str(caught.value)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.npz; there is none"):
        read_npz(tmp_path / "absent.npz")


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_round_trip(tmp_path_factory: Any, count: int, seed: int, sparse_x: bool, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 300, (count, 3)) if whole else rng.random((count, 3)) * (rng.random((count, 3)) < 0.5)
    upper = np.triu(rng.random((count, count)) < 0.4, 1)
    y = rng.integers(-1, 3, count)
    part = np.where(y < 0, -1, rng.integers(3, size=count))
    data = Data(
        x=to_torch_csr(sparse.csr_matrix(x)) if sparse_x else torch.from_numpy(x).float(),
        edge_index=torch.from_numpy(np.argwhere(upper | upper.T).T.copy()),
        y=torch.from_numpy(y),
        class_names=["a", "b", "c"],
        **{name: torch.from_numpy(part == number) for number, name in enumerate(MASKS)},
    )
    read = read_npz(write_npz(data, tmp_path_factory.mktemp("round") / "g"))
    assert read.x.layout == data.x.layout
    assert torch.equal(read.x.to_dense(), data.x.to_dense())
    for key in ("edge_index", "y", *MASKS):
        assert torch.equal(read[key], data[key]), key
    assert read.class_names == data.class_names


def test_writes_edges_in_order_and_small_features_as_bytes(tmp_path: Path) -> None:
    data = campus(300)
    shuffled = data.clone()
    shuffled.edge_index = data.edge_index[:, torch.randperm(data.edge_index.shape[1])]
    path = write_npz(shuffled, tmp_path / "campus.npz")
    assert [file.name for file in tmp_path.iterdir()] == ["campus.npz"]
    with np.load(path, allow_pickle=False) as stored:
        assert stored["x_data"].dtype == np.uint8
        assert stored["edge_index"].dtype == np.int32
    assert torch.equal(read_npz(path).edge_index, data.edge_index)


def test_a_declared_number_of_classes_is_kept(tmp_path: Path) -> None:
    graph = random_graph(1)
    graph.class_names = None
    graph.num_classes = 7
    assert read_npz(write_npz(graph, tmp_path / "graph.npz")).class_names == [str(number) for number in range(7)]
