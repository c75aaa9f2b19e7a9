from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hushgraph.training import even_products
from hushgraph.training.even_products import BLOCK_ROWS, linear_in_blocks, multiply_blocks, multiply_each


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("columns", [1, 3, 7, 11, 16, 33, 70])
@pytest.mark.parametrize("outputs", [1, 2, 6, 9, 12, 32])
def test_the_product_of_a_row_is_the_same_in_every_place(columns: int, outputs: int) -> None:
    rows, weight = random(3 * BLOCK_ROWS, columns), random(outputs, columns, seed=1)
    usual = multiply_blocks(rows, weight.t())
    torch.testing.assert_close(usual, rows @ weight.t(), rtol=1e-5, atol=1e-5)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(2))
    assert torch.equal(multiply_blocks(rows[order], weight.t()), usual[order])
    assert torch.equal(multiply_blocks(rows[order[:BLOCK_ROWS]], weight.t()), usual[order[:BLOCK_ROWS]])


@pytest.mark.parametrize("alike", [True, False])
def test_linear_layers_in_blocks_have_the_usual_gradient(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(even_products, "_treats_places_alike", lambda *_: alike)
    weight, bias = random(6, 5, seed=1), random(6, seed=2)
    x = random(BLOCK_ROWS, 5).requires_grad_()
    found, expected = linear_in_blocks(x, weight, bias), torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*[torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)])


@pytest.mark.parametrize("alike", [True, False])
def test_many_products_are_what_each_is_alone(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not alike:
        monkeypatch.setattr(even_products, "_treats_numbers_alike", lambda *_: False)
    for length, width in ((2, 3), (7, 16), (20, 33)):
        rows = random(50, length, width)
        found = multiply_each(rows, rows.mT)
        torch.testing.assert_close(found, torch.bmm(rows, rows.mT))
        for some in (slice(0, 1), slice(3, 5), slice(10, 47)):
            assert torch.equal(multiply_each(rows[some], rows[some].mT), found[some])
