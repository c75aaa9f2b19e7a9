from __future__ import annotations

import numpy as np
import pytest
import torch

import hushgraph as hg
from hushgraph.audit.family import Family, family_bound
from hushgraph.audit.rooted import _small_network, canary_trees, most_rooted_canaries, observe_rooted_training
from hushgraph.graph.rooted import RootedSubgraphs
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan, RootedGradientStage
from hushgraph.privacy.units import Node, NodeReplace
from hushgraph.training.rooted import RootedClippedGradient


def plan_of(unit: Node, stage: RootedGradientStage) -> Plan:
    return Plan("test", unit, hg.Budget(500.0, 1e-5), (stage,), unit)


def sums_of_all_roots(unit: Node, degree: int, layers: int, planted: bool) -> np.ndarray:
    """The clipped gradients of all roots of three canaries, added up without noise, in units of the clip norm."""
    stage = RootedGradientStage("network", 1, 100.0, 1.0, 1.0, degree, layers)
    graph = canary_trees(plan_of(unit, stage), stage, np.full(3, planted))
    network = _small_network(3, layers)
    subgraphs = RootedSubgraphs(graph.edges, graph.train, layers)
    engine = RootedClippedGradient(network, subgraphs, graph.features, graph.labels, max_grad_norm=1.0)
    return -engine.sum(torch.arange(subgraphs.num_roots))[:3].numpy() / engine.clip_norm


@pytest.mark.parametrize(("degree", "layers"), [(1, 1), (7, 1), (3, 2), (2, 3)])
def test_one_record_turns_round_every_example_that_the_accounting_charges_for(degree: int, layers: int) -> None:
    reached = sum(degree**step for step in range(layers + 1))
    assert sums_of_all_roots(Node(), degree, layers, True) == pytest.approx(np.full(3, reached), rel=1e-4)
    assert sums_of_all_roots(Node(), degree, layers, False) == pytest.approx(np.full(3, 1 - reached), rel=1e-4)
    both = 2 * reached - 1
    assert sums_of_all_roots(NodeReplace(), degree, layers, True) == pytest.approx(np.full(3, both), rel=1e-4)
    assert sums_of_all_roots(NodeReplace(), degree, layers, False) == pytest.approx(np.full(3, -both), rel=1e-4)


def test_a_smaller_cap_of_the_unit_makes_smaller_trees() -> None:
    stage = RootedGradientStage("network", 1, 100.0, 1.0, 1.0, 7, 1)
    graph = canary_trees(plan_of(Node(max_degree=2), stage), stage, np.array([True, False]))
    assert graph.facts.num_nodes == 6
    assert int(graph.edges.out_degree().max()) == 2


@pytest.mark.parametrize("unit", [Node(), NodeReplace()])
def test_the_bound_comes_close_to_what_is_charged(unit: Node) -> None:
    stage = RootedGradientStage("network", 30, 3.0, 1.0, 0.1, 2, 1)
    plan = plan_of(unit, stage)
    seen = observe_rooted_training(plan, stage, 8000, NoiseSource.seeded(0), np.random.default_rng(0))
    bound = family_bound(seen.poisson, seen.planted, Family([stage], unit), 1e-5)
    assert 0.75 * plan.epsilon < bound <= plan.epsilon


def test_canaries_are_fewer_when_each_reaches_many() -> None:
    small, large = (RootedGradientStage("network", 1, 100.0, 1.0, 1.0, degree, 2) for degree in (2, 4))
    assert most_rooted_canaries(plan_of(Node(), large), large) < most_rooted_canaries(plan_of(Node(), small), small)
