"""Clipped, noised steps as a mechanism. The loop itself: tests/training. Bounds and law: tests/test_matrix.py."""

from __future__ import annotations

import math

import pytest
import torch

from hushgraph.errors import UnprovenError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms import Gradient
from hushgraph.nn import MLP, Linear
from hushgraph.noise.normal import grid_of
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.config import Training
from matrix_graphs import view_of
from small_graphs import random_graph

NODE = units.Node()


def test_the_rule_for_steps_covers_every_epoch() -> None:
    assert Gradient.of(1_000, 256, 10, 0.5) == Gradient(0.5, 0.256, 40)
    assert Gradient.of(100, 256, 10, 1.0) == Gradient(1.0, 1.0, 10)


def test_the_event_is_that_of_poisson_batches_of_one_example_each() -> None:
    assert Gradient(0.5, 0.1, 7).event(NODE, 2.0) == events.sampled_gaussian(0.1, 4.0, 7)
    assert Gradient(0.5, 0.1, 7).event(units.NodeReplace(), 2.0) == events.sampled_gaussian(0.1, 4.0, 7)
    assert Gradient().event(NODE, 0.0) == events.non_private()
    with pytest.raises(UnprovenError, match="gradient has no proof under the unit 'local'"):
        Gradient().event(units.Local(), 1.0)


def trained(graph: CheckedGraph, mechanism: Gradient, seed: int = 0) -> torch.Tensor:
    module = Linear(5, 3, generator=torch.Generator().manual_seed(1))
    noise = NoiseSource.seeded(seed)
    mechanism.release(view_of(graph, mechanism, NODE), 1.0, noise, module, graph.features, Training(epochs=1))
    return module.weight.detach()


def test_private_training_reads_no_validation_or_test_label() -> None:
    """A best epoch chosen on validation labels would be a free look."""
    first, second = random_graph(0), random_graph(0)
    second.y[~second.train_mask] = (second.y[~second.train_mask] + 1) % 3
    mechanism = Gradient(1.0, 0.5, 5)
    assert torch.equal(trained(check_graph(first), mechanism), trained(check_graph(second), mechanism))
    second.y = (second.y + 1) % 3
    assert not torch.equal(trained(check_graph(first), mechanism), trained(check_graph(second), mechanism))


def test_modules_that_mix_rows_are_refused() -> None:
    for refused in (lambda m: m.check(MLP(5, 8, 3, 2, norm="batch")), lambda m: m.check(torch.nn.BatchNorm1d(5))):
        with pytest.raises(UnprovenError, match="batch norm"):
            refused(Gradient())
    graph = check_graph(random_graph(0))
    with pytest.raises(UnprovenError, match="batch norm"):
        Gradient().release(
            view_of(graph, Gradient(), NODE),
            1.0,
            NoiseSource.seeded(0),
            MLP(5, 8, 3, 2, norm="batch"),
            graph.features,
            Training(epochs=1),
        )


def test_one_step_read_off_the_weights_is_the_sum_of_clipped_gradients() -> None:
    """Against a loop over examples with autograd; each is clipped to the bound less what rounding may add."""
    graph, mechanism = check_graph(random_graph(2)), Gradient(0.7, 0.3, 9)
    module, rows, training = mechanism.example_inputs(graph)
    found = mechanism.before_noise(view_of(graph, mechanism, NODE), NoiseSource.seeded(0), module, rows, training)
    expected = torch.zeros(len(found), dtype=torch.float64)
    clip_norm = ClippedGradient(
        module, max_grad_norm=0.7, grid=grid_of(1e-6 * 0.7), expected_rows=len(graph.train)
    ).clip_norm
    assert 0.995 * 0.7 < clip_norm < 0.7
    for node in graph.train.tolist():
        module.zero_grad()
        torch.nn.functional.cross_entropy(module(rows[node : node + 1]), graph.labels[node : node + 1]).backward()
        gradient = torch.cat([p.grad.flatten() for p in module.parameters()]).double()
        expected += gradient * min(1.0, clip_norm / float(gradient.norm()))
    assert torch.allclose(torch.from_numpy(found), expected, rtol=0, atol=1e-5)
    assert float(expected.norm()) > 0.5


def test_a_bound_is_known_for_one_record_and_no_more() -> None:
    class Two(units.Node):
        footprint = units.Footprint(records=2)

    assert math.isinf(Gradient().sensitivity(Two()))
    assert Gradient(0.5).sensitivity(units.Record()) == 0.5
    assert Gradient(0.5).sensitivity(units.UndirectedEdge()) == 0.0
