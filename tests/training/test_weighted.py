from __future__ import annotations

import torch
import torch.nn.functional as F

from hushgraph.nn.layers import MLP
from hushgraph.nn.weighted import WeightedMean, WeightedRows
from hushgraph.training.weighted import WeightedClippedGradient


def example(seed: int = 0):
    made = torch.Generator().manual_seed(seed)
    network = WeightedMean(MLP(6, 5, 3, 2, generator=made))
    columns = torch.randint(0, 20, (12, 3), generator=made)
    rows = WeightedRows(torch.randn(20, 6, generator=made), columns, torch.rand(12, 3, generator=made))
    return network, rows, torch.randint(0, 3, (12,), generator=made)


def naive(network, rows, labels, bound: float) -> torch.Tensor:
    total = 0.0
    for i in range(len(rows)):
        loss = F.cross_entropy(network(rows.rows(torch.tensor([i]))), labels[i : i + 1])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))]).double()
        total = total + gradient * min(1.0, bound / float(gradient.norm()))
    return total


def test_sums_equal_gradients_that_are_formed_and_clipped_one_by_one() -> None:
    for bound in (0.1, 0.7, 100.0):
        network, rows, labels = example()
        engine = WeightedClippedGradient(network, rows, labels, max_grad_norm=bound, grid=0.0)
        expected = naive(network, rows, labels, engine.clip_norm)
        assert torch.allclose(engine.sum(torch.arange(12)), expected, rtol=1e-4, atol=1e-5)


def test_one_example_moves_the_sum_by_its_bound_and_one_without_a_finite_gradient_by_nothing() -> None:
    network, rows, labels = example()
    engine = WeightedClippedGradient(network, rows, labels, max_grad_norm=0.01, grid=0.0)
    whole, rest = engine.sum(torch.arange(12)), engine.sum(torch.arange(11))
    assert 0.009 < float((whole - rest).norm()) <= 0.01
    rows.features[rows.columns[11]] = float("nan")
    clean = torch.tensor([i for i in range(11) if not torch.isin(rows.columns[i], rows.columns[11]).any()])
    assert torch.equal(engine.sum(torch.cat([clean, torch.tensor([11])])), engine.sum(clean))
