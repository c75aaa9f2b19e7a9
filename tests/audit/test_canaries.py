from __future__ import annotations

import math

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.audit.canaries import observe, plant
from hushgraph.audit.layout import LARGEST_GRAPH
from hushgraph.errors import InputError
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import AggregationStage, Plan
from hushgraph.privacy.units import DirectedEdge, Node, NodePromise, NodeReplace, Record, UndirectedEdge, Unit


def plan_of(unit: Unit, hops: int, multiplier: float) -> Plan:
    stage = AggregationStage("aggregation", hops, multiplier * unit.aggregation_sensitivity(1.0))
    return Plan("test", unit, hg.Budget(50.0, 1e-6), (stage,), unit)


@pytest.mark.parametrize(
    ("unit", "hops", "separation"),
    [
        (UndirectedEdge(), 1, 0.5),
        (UndirectedEdge(), 3, 0.5 * math.sqrt(3)),
        (DirectedEdge(), 2, 0.5 * math.sqrt(2)),
        (Node(max_degree=5), 2, 0.5 * math.sqrt(2)),
        (NodePromise(max_degree=5), 2, 0.5 * math.sqrt(2)),
        (NodeReplace(max_degree=5), 1, 0.5),
    ],
)
def test_canaries_reach_the_separation_that_the_accounting_allows(unit: Unit, hops: int, separation: float) -> None:
    planted = plant(unit, 4000, np.random.default_rng(0))
    scores = observe(plan_of(unit, hops, 2.0), planted, NoiseSource.seeded(0))
    # Means of 2,000 unit normals: 5 standard errors, off once in a million.
    assert scores[planted.planted].mean() == pytest.approx(separation, abs=0.12)
    assert scores[~planted.planted].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~planted.planted].std() == pytest.approx(1.0, abs=0.08)


def test_a_plan_over_sums_is_accounted_with_the_same_mu() -> None:
    plan = plan_of(UndirectedEdge(), 3, 2.0)
    assert plan.loss.mu == pytest.approx(0.5 * math.sqrt(3))


def test_node_canaries_are_fewer_when_lists_are_long() -> None:
    planted = plant(Node(max_degree=1000), 10_000, np.random.default_rng(0))
    assert len(planted.planted) * 1001 <= LARGEST_GRAPH
    assert planted.graph.edges.out_degree().max() == 1000


def test_too_few_canaries_and_unknown_units_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4"):
        plant(UndirectedEdge(), 2, np.random.default_rng(0))
    with pytest.raises(InputError, match="no canaries"):
        plant(Record(), 100, np.random.default_rng(0))
