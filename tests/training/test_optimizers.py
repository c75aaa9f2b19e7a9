from __future__ import annotations

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.training.optimizers import FlatAdam, FlatSGD, make_optimizer


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
