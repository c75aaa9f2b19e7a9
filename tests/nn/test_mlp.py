from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn import MLP, SparseRows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kinds(mlp: MLP) -> list[str]:
    return [type(layer).__name__ for layer in mlp.layers]


def test_order_of_layers() -> None:
    first = MLP(5, 4, 3, 2, norm="batch", dropout=0.5, generator=generator())
    assert kinds(first) == ["Linear", "BatchNorm1d", "Dropout", "SELU", "Linear"]
    second = MLP(5, 4, 3, 2, norm="group", dropout=0.5, order="activation-first", generator=generator())
    assert kinds(second) == ["Linear", "SELU", "GroupNorm", "Dropout", "Linear"]
    third = MLP(5, 4, 3, 2, activation="tanh", plain_last=False, generator=generator())
    assert kinds(third) == ["Linear", "Tanh", "Linear", "Tanh"]
    assert kinds(MLP(5, 4, 3, 1, norm="batch", generator=generator())) == ["Linear"]


def test_forward_equals_plain_torch() -> None:
    mlp, x = MLP(5, 4, 3, 3, generator=generator()), torch.randn(6, 5, generator=generator(1))
    weights = [p.detach() for p in mlp.parameters()]
    h = nn.functional.selu(x @ weights[0].t() + weights[1])
    h = nn.functional.selu(h @ weights[2].t() + weights[3])
    torch.testing.assert_close(mlp(x), h @ weights[4].t() + weights[5])


def test_no_layers_is_the_identity() -> None:
    x = torch.eye(4)
    mlp = MLP(4, 9, 7, 0)
    assert mlp.out_features == 4
    assert torch.equal(mlp(x), x)
    assert torch.equal(mlp(SparseRows.from_tensor(x)), x)


@pytest.mark.parametrize("norm", [None, "group"])
def test_each_row_by_itself(norm: str | None) -> None:
    mlp = MLP(5, 4, 3, 3, norm=norm, generator=generator())
    x = torch.randn(6, 5, generator=generator(1))
    torch.testing.assert_close(mlp(x)[2:3], mlp(x[2:3]))


def test_sparse_rows_give_the_same_and_train_the_same() -> None:
    mlp = MLP(20, 4, 3, 2, generator=generator())
    dense = (torch.rand(9, 20, generator=generator(1)) < 0.2).float()
    gradients = []
    for x in (dense, SparseRows.from_tensor(dense)):
        mlp.zero_grad()
        mlp(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in mlp.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_starting_values_come_from_the_generator() -> None:
    before = torch.get_rng_state()
    one = MLP(5, 4, 3, 3, dropout=0.2, generator=generator(5))
    two = MLP(5, 4, 3, 3, dropout=0.2)
    two.reset_parameters(generator(9))
    one.reset_parameters(generator(9))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert torch.equal(one(torch.ones(8, 5)), two(torch.ones(8, 5)))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="num_layers"):
        MLP(5, 4, 3, -1)
    with pytest.raises(InputError, match="order"):
        MLP(5, 4, 3, 1, order="first")  # type: ignore[arg-type]
