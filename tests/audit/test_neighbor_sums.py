from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audit_plans import SIZES, observed, sums_plan
from hushgraph.audit.bounds import gaussian_bound
from hushgraph.errors import BudgetError, InputError
from hushgraph.mechanisms import NeighborSum
from hushgraph.mechanisms.canaries import BASE_NODES, LARGEST_GRAPH, Evidence, lay_out, room_for
from hushgraph.methods.gap import GAP
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import BoundedDegreeNode, DirectedEdge, Node, NodeReplace, Record, UndirectedEdge, Unit


@pytest.mark.parametrize(
    ("unit", "hops", "separation"),
    [
        (UndirectedEdge(), 1, 0.5),
        (UndirectedEdge(), 3, 0.5 * math.sqrt(3)),
        (DirectedEdge(), 2, 0.5 * math.sqrt(2)),
        (Node(max_degree=5), 2, 0.5 * math.sqrt(2)),
        (BoundedDegreeNode(max_degree=5), 2, 0.5 * math.sqrt(2)),
        (NodeReplace(max_degree=5), 1, 0.5),
        (NodeReplace(max_degree=5), 2, 0.5),
    ],
)
def test_canaries_reach_the_separation_that_the_accounting_allows(unit: Unit, hops: int, separation: float) -> None:
    coins, evidence = observed(sums_plan(unit, NeighborSum(), hops, 2.0), 4000, seed=0)
    scores = evidence.normal
    assert scores is not None
    # Means of 2,000 unit normals: 5 standard errors, off once in a million.
    assert scores[coins].mean() == pytest.approx(separation, abs=0.12)
    assert scores[~coins].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~coins].std() == pytest.approx(1.0, abs=0.08)


def test_no_canary_carries_more_information_than_is_charged_and_hardly_less() -> None:
    plan = sums_plan(UndirectedEdge(), NeighborSum(), 2, 2.0)
    _, evidence = observed(plan, 200, seed=0)
    assert evidence.information is not None
    assert plan.loss.mu is not None
    assert evidence.information.max() <= plan.loss.mu**2
    assert evidence.information.min() > 0.99 * plan.loss.mu**2
    assert evidence.ratios[1] == pytest.approx(4.0 * evidence.ratios[0])


def test_a_plan_over_sums_is_accounted_with_the_same_mu() -> None:
    assert sums_plan(UndirectedEdge(), NeighborSum(), 3, 2.0).loss.mu == pytest.approx(0.5 * math.sqrt(3))


def test_node_canaries_are_fewer_when_lists_are_long() -> None:
    unit = Node(max_degree=1000)
    layout = lay_out(unit, np.ones(room_for(unit), dtype=bool), np.random.default_rng(0))
    assert layout.num_nodes <= LARGEST_GRAPH + BASE_NODES
    assert layout.list_length == 1000


def test_too_few_canaries_and_unknown_units_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4"):
        observed(sums_plan(UndirectedEdge(), NeighborSum(), 1, 2.0), 2, seed=0)
    with pytest.raises(InputError, match="no canaries"):
        lay_out(Record(), np.ones(4, dtype=bool), np.random.default_rng(0))


class Talkative(NeighborSum):
    """Broken on purpose: canaries that look at more releases than were planned."""

    def canary(self, stage: Stage, *rest: Any) -> Evidence:
        return super().canary(replace(stage, count=stage.count + 1), *rest)


def test_canaries_cannot_look_at_more_than_was_planned() -> None:
    with pytest.raises(BudgetError, match="at most 1 releases"):
        observed(sums_plan(UndirectedEdge(), Talkative(), 1, 2.0), 100, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.75), (4.0, 3.5), (8.0, 7.0)])
def test_ten_thousand_edge_canaries_come_close_and_rarely_exceed_the_truth(epsilon: float, least: float) -> None:
    made = GAP(hops=1).plan(SIZES, UndirectedEdge(), Budget(epsilon, 1e-7))
    plan = Plan("test", SIZES, made.unit, made.budget, (made["aggregation"],))
    bounds = []
    for seed in range(40):
        coins, evidence = observed(plan, 10_000, seed)
        assert evidence.normal is not None
        bounds.append(gaussian_bound(evidence.normal, coins, 1e-7))
    assert np.median(bounds) >= least
    assert np.mean(np.array(bounds) >= least) >= 0.9
    assert sum(bound > epsilon for bound in bounds) <= 7  # seeded; Binomial(40, 0.05) exceeds 7 once in a thousand
