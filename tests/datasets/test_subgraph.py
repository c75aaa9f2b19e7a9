"""Sparse features keep their entries; induced subgraphs are those of a plain computation with loops."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets.splits import choose_rows, induced, to_scipy, to_torch_csr
from hushgraph.errors import InputError


def _graph(count: int, seed: int, sparse_x: bool = False) -> Data:
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(rng.random((count, count)) < 0.3)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    x = rng.random((count, 3)).astype(np.float32)
    return Data(
        x=to_torch_csr(sparse.csr_matrix(x)) if sparse_x else torch.from_numpy(x),
        edge_index=torch.from_numpy(pairs.T.copy()),
        edge_attr=torch.arange(len(pairs)),
        y=torch.from_numpy(rng.integers(3, size=count)),
        train_mask=torch.from_numpy(rng.random(count) < 0.5),
        class_names=["a", "b", "c"],
        num_nodes=count,
    )


@given(st.integers(2, 12), st.integers(0, 50), st.booleans(), st.data())
def test_matches_the_plain_computation(count: int, seed: int, sparse_x: bool, draw: st.DataObject) -> None:
    data = _graph(count, seed, sparse_x)
    keep = draw.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    part = induced(data, torch.tensor(keep))
    kept = [node for node in range(count) if keep[node]]
    place = {node: number for number, node in enumerate(kept)}
    expected = [
        (place[s], place[t], number)
        for number, (s, t) in enumerate(data.edge_index.t().tolist())
        if keep[s] and keep[t]
    ]
    found = list(zip(*part.edge_index.tolist(), part.edge_attr.tolist()))
    assert found == expected
    assert part.node_ids.tolist() == kept
    assert part.num_nodes == len(kept)
    assert part.y.tolist() == data.y[kept].tolist()
    assert part.train_mask.tolist() == data.train_mask[kept].tolist()
    assert part.x.layout == data.x.layout
    assert torch.equal(part.x.to_dense(), data.x.to_dense()[kept])
    assert part.class_names == ["a", "b", "c"]
    assert data.num_nodes == count


def test_ids_refer_to_the_first_graph() -> None:
    first = induced(_graph(8, 0), torch.arange(8) >= 2)
    second = induced(first, torch.arange(6) % 2 == 1)
    assert second.node_ids.tolist() == [3, 5, 7]


def test_refuses_other_masks() -> None:
    with pytest.raises(InputError, match=r"boolean mask of shape \(4,\)"):
        induced(_graph(4, 0), torch.ones(3, dtype=torch.bool))
    with pytest.raises(InputError, match="boolean mask"):
        induced(_graph(4, 0), torch.ones(4))


MATRICES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.sampled_from([0.0, 0.0, 1.0, -2.5]),
)


@given(MATRICES, st.randoms(use_true_random=False))
def test_round_trip_and_rows(dense: np.ndarray, random: object) -> None:
    x = to_torch_csr(sparse.csr_matrix(dense))
    assert x.layout == torch.sparse_csr
    np.testing.assert_array_equal(x.to_dense().numpy(), dense)
    np.testing.assert_array_equal(to_scipy(x).toarray(), dense)
    np.testing.assert_array_equal(to_scipy(x.to_sparse_coo()).toarray(), dense)
    np.testing.assert_array_equal(to_scipy(torch.from_numpy(dense)).toarray(), dense)
    rows = torch.tensor([random.randrange(len(dense)) for _ in range(4)])  # type: ignore[attr-defined]
    assert torch.equal(choose_rows(x, rows).to_dense(), torch.from_numpy(dense)[rows])
    assert torch.equal(choose_rows(torch.from_numpy(dense), rows), torch.from_numpy(dense)[rows])


def test_duplicates_are_added_up_and_the_source_is_left_alone() -> None:
    matrix = sparse.csr_matrix((np.float32([1, 2, 4]), [1, 0, 1], [0, 3]), shape=(1, 2))
    assert to_torch_csr(matrix).to_dense().tolist() == [[2.0, 5.0]]
    assert matrix.indices.tolist() == [1, 0, 1]


def test_no_warning_reaches_the_user() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_torch_csr(sparse.identity(3)).to_dense().tolist() == np.eye(3).tolist()
