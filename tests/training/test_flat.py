from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn import MLP
from hushgraph.training.flat import FlatParameters


def test_the_vector_is_the_model_while_open() -> None:
    module = MLP(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    before = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    with FlatParameters(module) as flat:
        assert torch.equal(flat.vector, before)
        flat.vector.mul_(2.0)
        assert torch.equal(module.layers[2].bias, before[-2:] * 2)
        flat.collect_gradients()
        module(torch.ones(1, 4)).sum().backward()
        assert flat.gradient[-2:].tolist() == [1.0, 1.0]
    assert all(p.grad is None for p in module.parameters())
    assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == len(list(module.parameters()))
    assert torch.equal(module.layers[2].bias, before[-2:] * 2)


def test_frozen_parameters_stay_outside() -> None:
    module = nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    with FlatParameters(module) as flat:
        assert flat.vector.numel() == 6


def test_nothing_to_train_and_mixed_types_are_refused() -> None:
    with pytest.raises(InputError, match="trainable"):
        FlatParameters(nn.Tanh())
    with pytest.raises(InputError, match="dtype"):
        FlatParameters(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
