"""Sparse features: the same entries whichever way they go."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from hushgraph.datasets.sparse import choose_rows, to_scipy, to_torch_csr

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
