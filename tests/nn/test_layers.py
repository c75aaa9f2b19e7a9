from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn import Dropout, L2Normalize, Linear
from hushgraph.nn.layers import make_activation, make_norm


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_linear_starts_like_torch_and_never_touches_the_global_generator() -> None:
    before = torch.get_rng_state()
    layer = Linear(400, 300, generator=generator())
    again = Linear(400, 300, generator=generator())
    Linear(4, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layer.weight, again.weight)
    assert not torch.equal(layer.weight, Linear(400, 300, generator=generator(1)).weight)
    # Uniform in +-0.05: the largest of 120,000 is within 1e-3 of it, the variance within 3 percent (0.05^2 / 3).
    assert 0.049 < float(layer.weight.detach().abs().max()) <= 0.05
    assert abs(float(layer.weight.detach().var()) / (0.05**2 / 3) - 1) < 0.03
    assert 0 < float(layer.bias.detach().abs().max()) <= 0.05


def test_dropout_uses_its_own_generator() -> None:
    x = torch.ones(200, 50)
    before = torch.get_rng_state()
    first, second = (Dropout(0.3, generator=generator(7))(x) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    # 10,000 coins of probability 0.3: the share of zeros is within 0.02 (4.4 sigma).
    assert abs(float((first == 0).float().mean()) - 0.3) < 0.02
    assert torch.allclose(first[first != 0], torch.tensor(1 / 0.7))
    layer = Dropout(0.3, generator=generator(7))
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), x)
    copy.deepcopy(layer)(x)


def test_normalize_gives_unit_rows_and_keeps_zero() -> None:
    rows = L2Normalize()(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert torch.allclose(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


def test_group_norm_is_layer_norm() -> None:
    x = torch.randn(5, 8, generator=generator())
    norm = make_norm("group", 8)
    torch.testing.assert_close(norm(x), nn.functional.layer_norm(x, (8,)))


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'selu'"):
        make_activation("sellu")
    with pytest.raises(InputError, match="'batch' or 'group'"):
        make_norm("layer", 4)
    with pytest.raises(InputError, match="dropout"):
        Dropout(1.0)
