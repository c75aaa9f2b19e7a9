from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn import Combine, HopClassifier


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_forward_equals_the_formula() -> None:
    model = HopClassifier(2, 5, 4, 3, generator=generator())
    rows = torch.randn(6, 3, 5, generator=generator(1))
    parts = [base.layers[0](rows[:, k]) for k, base in enumerate(model.bases)]
    combined = nn.functional.normalize(torch.cat(parts, 1), dim=1)
    expected = model.head.layers[0](nn.functional.selu(combined))
    torch.testing.assert_close(model(rows), expected)
    assert sum(p.numel() for p in model.parameters()) == 3 * (5 * 4 + 4) + 12 * 3 + 3


@pytest.mark.parametrize("combine", ["cat", "sum", "max", "attention"])
def test_each_row_by_itself(combine: str) -> None:
    model = HopClassifier(2, 5, 4, 3, combine=combine, norm="group", base_layers=2, generator=generator())
    rows = torch.randn(6, 3, 5, generator=generator(1))
    assert model(rows).shape == (6, 3)
    torch.testing.assert_close(model(rows)[2:3], model(rows[2:3]))


def test_combinations() -> None:
    stack = torch.tensor([[[1.0, 5.0], [3.0, 2.0]]])
    assert Combine("cat", 2, 2)(stack).tolist() == [[1.0, 5.0, 3.0, 2.0]]
    assert Combine("sum", 2, 2)(stack).tolist() == [[4.0, 7.0]]
    assert Combine("max", 2, 2)(stack).tolist() == [[3.0, 5.0]]
    attention = Combine("attention", 2, 2, generator=generator())
    weights = (stack @ attention.score.weight.t()).softmax(1)
    torch.testing.assert_close(attention(stack), (weights * stack).sum(1))


def test_norm_comes_after_normalization() -> None:
    model = HopClassifier(1, 5, 4, 3, norm="batch", dropout=0.1, generator=generator())
    assert [type(layer).__name__ for layer in model.middle] == ["L2Normalize", "BatchNorm1d", "Dropout", "SELU"]
    assert model.middle[1].num_features == 8


def test_wrong_shapes_and_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[n, 3, 5\]"):
        HopClassifier(2, 5, 4, 3)(torch.ones(6, 2, 5))
    with pytest.raises(InputError, match="combination"):
        HopClassifier(2, 5, 4, 3, combine="mean")  # type: ignore[arg-type]


def test_reset_draws_new_values() -> None:
    model = HopClassifier(1, 5, 4, 3, generator=generator())
    old = model(torch.ones(1, 2, 5))
    model.reset_parameters(generator(1))
    assert not torch.equal(model(torch.ones(1, 2, 5)), old)
    model.reset_parameters(generator(1))
    same = HopClassifier(1, 5, 4, 3)
    same.reset_parameters(generator(1))
    assert torch.equal(model(torch.ones(1, 2, 5)), same(torch.ones(1, 2, 5)))
