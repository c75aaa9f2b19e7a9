from __future__ import annotations

import numpy as np
import pytest
import torch

from audit_plans import observed, rooted_plan
from hushgraph.audit.family import Family, family_bound
from hushgraph.graph.rooted import RootedSubgraphs
from hushgraph.mechanisms import RootedGradient
from hushgraph.mechanisms.rooted_gradient import _small_network
from hushgraph.privacy.units import Node, NodeReplace
from hushgraph.training.rooted import RootedClippedGradient


def sums_of_all_roots(unit: Node, degree: int, layers: int, planted: bool) -> np.ndarray:
    """The clipped gradients of all roots of three canaries, added up without noise, in the canaries' columns.

    In multiples of what an example is clipped to: a little less than the bound, so that rounding is within it.
    """
    graph = RootedGradient(1.0, 1.0, 1, degree, layers)._trees(unit, np.full(3, planted))
    network = _small_network(3, layers)
    subgraphs = RootedSubgraphs(graph.edges, graph.train, layers)
    engine = RootedClippedGradient(network, subgraphs, graph.features, graph.labels, max_grad_norm=1.0)
    assert 0.99 < engine.clip_norm < 1.0
    return -engine.sum(torch.arange(subgraphs.num_roots))[:3].numpy() / engine.clip_norm


@pytest.mark.parametrize(("degree", "layers"), [(1, 1), (7, 1), (3, 2), (2, 3)])
def test_one_record_turns_round_every_example_that_the_accounting_charges_for(degree: int, layers: int) -> None:
    reached = sum(degree**step for step in range(layers + 1))
    assert sums_of_all_roots(Node(), degree, layers, True) == pytest.approx(np.full(3, reached), rel=1e-6)
    assert sums_of_all_roots(Node(), degree, layers, False) == pytest.approx(np.full(3, 1 - reached), rel=1e-6)
    both = 2 * reached - 1
    assert sums_of_all_roots(NodeReplace(), degree, layers, True) == pytest.approx(np.full(3, both), rel=1e-6)
    assert sums_of_all_roots(NodeReplace(), degree, layers, False) == pytest.approx(np.full(3, -both), rel=1e-6)


def test_a_smaller_cap_of_the_unit_makes_smaller_trees() -> None:
    graph = RootedGradient(1.0, 1.0, 1, 7, 1)._trees(Node(max_degree=2), np.array([True, False]))
    assert graph.metadata.num_nodes == 6
    assert int(graph.edges.out_degree().max()) == 2


@pytest.mark.parametrize("unit", [Node(), NodeReplace()])
def test_the_bound_comes_close_to_what_is_charged(unit: Node) -> None:
    plan = rooted_plan(unit, 30, 3.0, 0.1, 2, 1)
    coins, evidence = observed(plan, 8000, seed=0)
    bound = family_bound(evidence.ratios, coins, Family(plan.stages, unit), 1e-5)
    assert 0.75 * plan.epsilon < bound <= plan.epsilon


def test_canaries_are_fewer_when_each_reaches_many() -> None:
    small, large = (rooted_plan(Node(), 1, 100.0, 1.0, degree, 2).stages[0] for degree in (2, 4))
    assert large.mechanism.most_canaries(large, Node()) < small.mechanism.most_canaries(small, Node())
