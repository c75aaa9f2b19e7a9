"""Batch norm and its neighbors as one step: the same numbers as the layers one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.nn import L2Normalize, Linear
from hushgraph.training.manual_backward import ManualGradient, build_steps
from hushgraph.training.manual_batch_norm import BatchNormStep, BatchSeluStep
from hushgraph.training.optimizers import FlatParameters, views_of


def network(layers: str) -> nn.Sequential:
    kinds = {"unit": L2Normalize(), "batch": nn.BatchNorm1d(7), "selu": nn.SELU(), "relu": nn.ReLU()}
    middle = [kinds[name] for name in layers.split()]
    made = nn.Sequential(Linear(5, 7), *middle, Linear(7, 3))
    with torch.no_grad():
        for layer in made:
            if isinstance(layer, nn.BatchNorm1d):
                layer.weight.copy_(torch.rand(7) + 0.5)
                layer.bias.copy_(torch.randn(7))
    return made


def rows_and_labels(n: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(1)
    return torch.randn(n, 5, generator=made) + 2.0, torch.randint(3, (n,), generator=made)


CASES = {
    "batch": (BatchNormStep, False),
    "batch relu": (BatchNormStep, False),
    "unit batch": (BatchNormStep, True),
    "batch selu": (BatchSeluStep, False),
    "unit batch selu": (BatchSeluStep, True),
}


@pytest.mark.parametrize("n", [40, 20_000])  # small: ordinary memory; large: reused memory
@pytest.mark.parametrize("layers", CASES)
def test_gradients_are_those_of_autograd(layers: str, n: int) -> None:
    torch.manual_seed(0)
    module = network(layers).double()
    rows, labels = rows_and_labels(n)
    rows = rows.double()
    nn.functional.cross_entropy(module(rows), labels).backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])  # type: ignore[union-attr]
    after = [buffer.clone() for buffer in module.buffers()]
    for layer in module:
        if isinstance(layer, nn.BatchNorm1d):
            layer.reset_running_stats()
    with FlatParameters(module) as flat:
        views = dict(zip(map(id, flat.parameters), views_of(flat.gradient, flat.parameters)))
        steps = build_steps(module, views, batch_norm=True)
        assert steps is not None
        kind, unit_rows = CASES[layers]
        (step,) = (step for step in steps if isinstance(step, BatchNormStep))
        assert (type(step), step.unit_rows) == (kind, unit_rows)
        ManualGradient(steps).write_mean(rows, labels)
        torch.testing.assert_close(flat.gradient, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(list(module.buffers()), after)
        scores = ManualGradient(build_steps(module, {}, batch_norm=True) or []).scores(rows)
        torch.testing.assert_close(scores, module.eval()(rows), rtol=1e-9, atol=1e-12)


def test_a_row_of_zeros_stays_finite() -> None:
    module = network("unit batch selu")
    first = module[0]
    assert isinstance(first, Linear)
    nn.init.zeros_(first.bias)
    rows = torch.zeros(4, 5)
    with FlatParameters(module) as flat:
        views = dict(zip(map(id, flat.parameters), views_of(flat.gradient, flat.parameters)))
        steps = build_steps(module, views, batch_norm=True)
        assert steps is not None
        ManualGradient(steps).write_mean(rows, torch.tensor([0, 1, 2, 0]))
        assert bool(torch.isfinite(flat.gradient).all())


def test_no_gradient_of_one_example_and_no_single_row() -> None:
    steps = build_steps(network("batch"), {}, batch_norm=True)
    assert steps is not None
    with torch.no_grad(), pytest.raises(InputError, match="mixes rows"):
        ManualGradient(steps).square_norms(torch.randn(4, 5), torch.zeros(4, dtype=torch.int64), None)
    with pytest.raises(InputError, match="at least two rows"):
        ManualGradient(steps).write_mean(torch.randn(1, 5), torch.zeros(1, dtype=torch.int64))
