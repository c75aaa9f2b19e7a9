from __future__ import annotations

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.layers import Linear
from hushgraph.training import rooted_norms
from hushgraph.training.rooted_norms import RowLayout, SharedInputs, layer_norms, padded_length
from hushgraph.training.rounding import norm_slack


@pytest.mark.parametrize("take_all", [0.0, 2.0])
def test_shared_products_are_those_of_written_out_rows(take_all: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooted_norms, "_TAKE_ALL", take_all)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(12, 5, generator=generator) * (torch.rand(12, 5, generator=generator) < 0.4)
    shared, layer = SharedInputs(SparseRows.from_tensor(dense)), Linear(5, 3, generator=generator)
    for batch in (torch.tensor([3, 3, 0, 7]), torch.tensor([11, 1, 0, 1, 1])):  # a second batch forgets the first
        shared.begin(batch)
        weight = torch.zeros(3, 5, dtype=torch.float64)
        for chunk in batch.split(2):
            rows = shared.rows(chunk)
            torch.testing.assert_close(shared.product(layer, chunk), layer(dense[chunk]).detach())
            torch.testing.assert_close(rows.row_square_norms(), dense[chunk].square().sum(1))
            torch.testing.assert_close(rows.narrow(0, 1).to_dense(), dense[chunk][:1])
        gradient = torch.randn(batch.numel(), 3, generator=generator)
        for chunk, part in zip(batch.split(2), gradient.split(2)):
            shared.add(chunk, part)
        shared.finish(weight)
        torch.testing.assert_close(weight, gradient.double().t() @ dense[batch].double())


def test_an_empty_batch_adds_nothing() -> None:
    shared = SharedInputs(SparseRows.from_tensor(torch.eye(4)))
    shared.begin(torch.tensor([], dtype=torch.int64))
    weight = torch.zeros(3, 4, dtype=torch.float64)
    shared.finish(weight)
    assert not weight.any()


def test_features_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        SharedInputs(SparseRows.from_tensor(torch.tensor([[0.0, torch.inf]])))


def exact_squares(a: torch.Tensor, g: torch.Tensor, counts: torch.Tensor, bias: bool) -> torch.Tensor:
    """Squared norms of the gradients of every root, formed in double precision."""
    found = []
    for ai, gi in zip(a.double().split(counts.tolist()), g.double().split(counts.tolist())):
        found.append((gi.T @ ai).square().sum() + (gi.sum(0).square().sum() if bias else 0.0))
    return torch.stack(found)


@pytest.mark.parametrize("bias", [False, True])
def test_padded_products_and_formed_gradients_agree(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([1, 9, 2, 0, 3, 40])
    layout = RowLayout(torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))))
    assert [group.length for group in layout.groups] == [2, 3, 10, 40]
    a, g = torch.randn(55, 6, generator=generator), torch.randn(55, 4, generator=generator)
    found, exact = layer_norms(a, g, layout, bias=bias), exact_squares(a, g, counts, bias)
    assert bool((found.squares >= exact * (1.0 - norm_slack(10))).all())
    torch.testing.assert_close(found.squares, exact, rtol=2e-3, atol=1e-20)
    lengths = (a.square().sum(1) + bias).mul(g.square().sum(1)).sqrt()
    together = torch.stack([part.sum() for part in lengths.split(counts.tolist())]).square().double()
    torch.testing.assert_close(found.together, together, rtol=1e-5, atol=1e-20)


def test_roots_are_padded_to_a_number_of_rows_that_is_their_own() -> None:
    counts = torch.tensor([0, 1, 2, 3, 7, 8, 9, 10, 11, 16, 17, 20, 21, 32, 33, 64, 65, 1000])
    expected = [0, 1, 2, 3, 7, 8, 10, 10, 12, 16, 20, 20, 24, 32, 40, 64, 80, 1024]
    assert padded_length(counts, 4).tolist() == expected
    expected = [0, 1, 2, 4, 8, 8, 16, 16, 16, 16, 32, 32, 32, 32, 64, 64, 128, 1024]
    assert padded_length(counts, 1).tolist() == expected


@pytest.mark.parametrize("rows", [8, 200])
def test_norms_are_never_below_the_true_ones_where_terms_cancel(rows: int) -> None:
    a = torch.ones(rows, 64) * 1000 + torch.randn(rows, 64, generator=torch.Generator().manual_seed(0)) * 1e-2
    g = torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))
    g[rows // 2 :] = -g[: rows // 2]
    found = layer_norms(a, g, RowLayout(torch.tensor([0, rows])), bias=False)
    exact = float(exact_squares(a, g, torch.tensor([rows]), False))
    assert float(found.squares) >= exact
    assert float(found.together) > 1e6 * exact


@pytest.mark.parametrize("scale", [1e-25, 1e-15])
def test_norms_are_never_below_the_true_ones_where_squares_vanish(scale: float) -> None:
    """Squares of entries below 10^-23 are zero in single precision, but the other factor may be large."""
    generator = torch.Generator().manual_seed(0)
    a, g = torch.randn(6, 5, generator=generator) * scale, torch.randn(6, 4, generator=generator) / scale**0.7
    layout = RowLayout(torch.tensor([0, 3, 6]))
    exact = exact_squares(a, g, torch.tensor([3, 3]), False)
    found = layer_norms(a, g, layout, bias=False)
    assert bool((torch.maximum(found.squares, found.together / 64) >= exact).all())
