from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn import MLP
from hushgraph.training.optimizers import FlatAdam, FlatParameters, FlatSGD, make_optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "sgd", "momentum"])
def test_same_path_as_torch(kind: str, weight_decay: float) -> None:
    start = torch.randn(20, generator=torch.Generator().manual_seed(0))
    theirs, ours = start.clone().requires_grad_(), start.clone()
    if kind == "adam":
        reference: torch.optim.Optimizer = torch.optim.Adam([theirs], lr=0.05, weight_decay=weight_decay)
        flat: FlatAdam | FlatSGD = FlatAdam(ours, 0.05, weight_decay)
    else:
        momentum = 0.9 if kind == "momentum" else 0.0
        reference = torch.optim.SGD([theirs], lr=0.05, momentum=momentum, weight_decay=weight_decay)
        flat = FlatSGD(ours, 0.05, weight_decay, momentum)
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        gradient = torch.randn(20, generator=generator)
        kept = gradient.clone()
        theirs.grad = gradient.clone()
        reference.step()
        flat.step(gradient)
        assert torch.equal(gradient, kept)
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_wrong_settings_are_refused_together() -> None:
    with pytest.raises(InputError, match="3 problems"):
        make_optimizer("adamm", torch.zeros(2), lr=0.0, weight_decay=-1.0)  # type: ignore[arg-type]
    assert isinstance(make_optimizer("sgd", torch.zeros(2), lr=0.1), FlatSGD)
    assert isinstance(make_optimizer("adam", torch.zeros(2), lr=0.1), FlatAdam)


def test_the_corrected_adam_steps_by_the_signal_not_by_the_noise() -> None:
    """Constant gradient 1 in noise of variance 100: plain Adam divides by about 10, the corrected one by about 3.3."""
    plain, corrected = torch.zeros(4000), torch.zeros(4000)
    steps = [FlatAdam(plain, 0.01), make_optimizer("adam-corrected", corrected, 0.01, noise_variance=100.0)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        gradient = 1.0 + 10.0 * torch.randn(4000, generator=generator)
        for step in steps:
            step.step(gradient)
    ratio = float(corrected.mean() / plain.mean())
    assert 2.0 < ratio < 3.3
    assert steps[1].noise_variance == 100.0  # type: ignore[union-attr]


def test_only_the_corrected_adam_uses_the_noise_variance() -> None:
    assert make_optimizer("adam", torch.zeros(2), 0.1, noise_variance=4.0).noise_variance == 0.0  # type: ignore[union-attr]


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
