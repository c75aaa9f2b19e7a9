from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph import rows as sparse
from hushgraph.graph.rows import dense_rows, for_many_steps, narrow_rows, row_square_norms
from hushgraph.nn import SparseRows, linear_input, take_rows


def some_matrix(rows: int, columns: int, seed: int, ones: bool) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=g) < 0.25
    values = torch.ones(rows, columns) if ones else torch.randn(rows, columns, generator=g)
    return mask * values


matrices = st.builds(some_matrix, st.integers(1, 12), st.integers(1, 9), st.integers(0, 999), st.booleans())


@settings(max_examples=60, deadline=None)
@given(dense=matrices, seed=st.integers(0, 99))
def test_agrees_with_the_dense_matrix(dense: Tensor, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    rows = SparseRows.from_tensor(dense)
    assert torch.equal(rows.to_dense(), dense)
    assert (len(rows), rows.shape) == (len(dense), tuple(dense.shape))
    torch.testing.assert_close(rows.row_square_norms(), dense.square().sum(1))
    weight, bias = torch.randn(4, dense.shape[1], generator=g), torch.randn(4, generator=g)
    torch.testing.assert_close(linear_input(rows, weight, bias), linear_input(dense, weight, bias))
    torch.testing.assert_close(linear_input(rows, weight), dense @ weight.t())
    index = torch.randint(len(dense), (7,), generator=g)
    assert torch.equal(rows.rows(index).to_dense(), dense[index])
    start = int(torch.randint(len(dense), (1,), generator=g))
    assert torch.equal(rows.narrow(start, len(dense) - start).to_dense(), dense[start:])


@pytest.mark.parametrize("way", ["entries", "scipy", "kept"])
@pytest.mark.parametrize("ones", [True, False])
def test_gradient_of_the_weight(way: str, ones: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_SMALL", 10**9 if way == "entries" else 0)
    dense = some_matrix(40, 13, 5, ones)
    rows = SparseRows.from_tensor(dense)
    if way == "kept":
        assert for_many_steps(rows) is rows
    weight = torch.randn(6, 13, generator=torch.Generator().manual_seed(1), requires_grad=True)
    other = weight.detach().clone().requires_grad_()
    factor = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    (linear_input(rows, weight) * factor).sum().backward()
    (linear_input(dense, other) * factor).sum().backward()
    torch.testing.assert_close(weight.grad, other.grad)


def test_gradient_check_in_double_precision() -> None:
    rows = SparseRows.from_tensor(some_matrix(9, 5, 3, ones=False).double())
    weight_t = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(rows.matmul, (weight_t,))


def test_all_kinds_of_torch_tensors() -> None:
    dense = some_matrix(8, 6, 1, ones=False)
    for tensor in (dense, dense.to_sparse_csr(), dense.to_sparse_coo()):
        assert torch.equal(SparseRows.from_tensor(tensor).to_dense(), dense)
    doubled = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (1, 2), check_invariants=True
    )
    assert SparseRows.from_tensor(doubled).to_dense().tolist() == [[0.0, 3.0]]
    with pytest.raises(InputError, match="matrix"):
        SparseRows.from_tensor(torch.ones(3))


def test_ones_are_recognized_and_integers_converted() -> None:
    rows = SparseRows(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([1], dtype=torch.uint8), (2, 3))
    assert rows.values is None
    counts = SparseRows(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3], dtype=torch.uint8), (1, 3))
    assert counts.values is not None
    assert counts.values.dtype == torch.get_default_dtype()
    assert counts.matmul(torch.ones(3, 2)).tolist() == [[3.0, 3.0]]


def test_masks_empty_selections_and_empty_matrices() -> None:
    dense = some_matrix(8, 6, 1, ones=True)
    rows = SparseRows.from_tensor(dense)
    mask = torch.tensor([True, False] * 4)
    assert torch.equal(rows.rows(mask).to_dense(), dense[mask])
    none = rows.rows(torch.empty(0, dtype=torch.int64))
    assert none.shape == (0, 6)
    assert none.matmul(torch.ones(6, 2)).shape == (0, 2)
    assert not none.transpose_matmul(torch.ones(0, 2)).any()
    empty = SparseRows.from_tensor(torch.zeros(3, 4))
    assert not empty.matmul(torch.ones(4, 2)).any()
    assert not empty.transpose_matmul(torch.ones(3, 2)).any()


def test_broken_structures_are_refused() -> None:
    two = torch.tensor([0, 1, 2])
    with pytest.raises(InputError, match="duplicates"):
        SparseRows(torch.tensor([0, 2]), torch.tensor([1, 1]), None, (1, 3))
    with pytest.raises(InputError, match="column indices"):
        SparseRows(two, torch.tensor([0, 3]), None, (2, 3))
    with pytest.raises(InputError, match="indptr of length"):
        SparseRows(two, torch.tensor([0, 1]), None, (3, 3))
    with pytest.raises(InputError, match="rising"):
        SparseRows(torch.tensor([0, 3, 2]), torch.tensor([0, 1]), None, (2, 3))
    with pytest.raises(InputError, match="one value per entry"):
        SparseRows(two, torch.tensor([0, 1]), torch.ones(3), (2, 3))


def test_helpers_take_both_kinds() -> None:
    dense = some_matrix(8, 6, 1, ones=False)
    rows, index = SparseRows.from_tensor(dense), torch.tensor([5, 0])
    for x in (dense, rows):
        assert torch.equal(dense_rows(take_rows(x, index)), dense[index])
        assert torch.equal(dense_rows(narrow_rows(x, 2, 3)), dense[2:5])
        torch.testing.assert_close(row_square_norms(x), dense.square().sum(1))
    assert "nonzeros" in repr(rows)
