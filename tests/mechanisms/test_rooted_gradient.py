"""Clipped gradients per root as a mechanism. The loop itself: tests/training. Law: tests/test_matrix.py."""

from __future__ import annotations

import numpy as np
import pytest

from hushgraph.errors import InputError, UnprovenError
from hushgraph.mechanisms import RootedGradient
from hushgraph.mechanisms.rooted_gradient import _small_network
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.training.config import Training
from matrix_graphs import view_of

MECHANISM = RootedGradient(2.0, 0.1, 10, max_degree=3, num_layers=2)


def test_it_counts_what_the_unit_can_touch() -> None:
    assert MECHANISM.touched(units.Node(max_degree=100)) == (13, 12)
    assert MECHANISM.touched(units.Node(max_degree=2)) == (7, 6)
    assert MECHANISM.touched(units.NodeReplace(max_degree=100)) == (25, 25)
    assert MECHANISM.sensitivity(units.Node(max_degree=100)) == 2.0 * 25
    assert MECHANISM.sensitivity(units.NodeReplace(max_degree=100)) == 2.0 * 50
    for unit in (units.BoundedDegreeNode(max_degree=3), units.UndirectedEdge()):
        with pytest.raises(UnprovenError, match=unit.name):
            MECHANISM.event(unit, 1.0)


def test_the_event_is_that_of_a_group_in_poisson_batches() -> None:
    assert MECHANISM.event(units.Node(), 30.0) == events.sampled_group(0.1, 15.0, 13, 12, 10)
    assert MECHANISM.event(units.NodeReplace(), 30.0) == events.sampled_group(0.1, 15.0, 25, 25, 10)
    assert MECHANISM.event(units.Node(), 0.0) == events.non_private()


def test_a_network_that_reaches_further_than_planned_is_refused() -> None:
    with pytest.raises(InputError, match="2 layers, as planned; got 3"):
        MECHANISM.check(_small_network(4, 3))


@pytest.mark.parametrize(("degree", "layers"), [(3, 1), (2, 2)])
@pytest.mark.parametrize("unit", [units.Node(max_degree=50), units.NodeReplace(max_degree=50)], ids=str)
def test_the_bound_is_reached(degree: int, layers: int, unit: units.Unit) -> None:
    """A record that turns round every example it can reach; its own example vanishes, or turns round too."""
    mechanism = RootedGradient(0.5, 1.0, 1, degree, layers)
    inputs = (_small_network(1, layers), Training(epochs=1))
    here, other = (mechanism._trees(unit, np.array([coin])) for coin in (True, False))
    if not unit.footprint.replaced:
        other.labels[0] = -1  # the record is empty, label and all
    sums = [
        mechanism.before_noise(view_of(graph, mechanism, unit), NoiseSource.seeded(0), *inputs)
        for graph in (here, other)
    ]
    moved, bound = float(np.linalg.norm(sums[0] - sums[1])), mechanism.sensitivity(unit)
    assert 0.95 * bound <= moved <= bound * (1 + 1e-4)
