"""Canaries of gradients over exact rows: a hub in every row, seen as well as it is charged for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from audit_plans import observed, plan_of
from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.mechanisms.pagerank_gradient import PageRankGradient
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import BoundedDegreeNode, NodeReplace, NodeWithEdges, Record, UndirectedEdge, Unit

ROWS = 6


def mechanism(rate: float = 0.5, steps: int = 4) -> PageRankGradient:
    return PageRankGradient(0.5, rate, steps, ROWS - 1, num_rows=ROWS, top=3)


def plan_for(unit: Unit, multiplier: float, of: PageRankGradient | None = None) -> Plan:
    made = of or mechanism()
    return plan_of(unit, Stage("network", made, scale=multiplier * made.reference(unit)))


@pytest.mark.parametrize("unit", [NodeWithEdges(), NodeReplace()], ids=str)
def test_the_canary_finds_a_good_part_of_the_claim_and_half_the_noise(
    unit: Unit, half_noise: Callable[[int], NoiseSource]
) -> None:
    plan = plan_for(unit, 1.0, mechanism(rate=1.0, steps=1))
    right = audit_plan(plan, canaries=160, seed=1)
    broken = audit_plan(plan, canaries=160, seed=1, noise=half_noise(1))
    assert right.verdict is Verdict.CONSISTENT
    assert right.lower_bound > 0.35 * plan.epsilon
    assert broken.verdict is Verdict.CONTRADICTED


@dataclass(frozen=True)
class OneExample(PageRankGradient):
    """Broken on purpose: charged as if a node were in its own example alone, as DP-SGD on records is."""

    def touched(self, unit: Unit) -> tuple[int, int]:
        return (1, 1) if unit.footprint.replaced else (1, 0)


def test_a_charge_for_one_example_is_caught() -> None:
    broken = OneExample(**vars(mechanism()))
    plan = plan_for(NodeWithEdges(), 1.5, broken)
    assert audit_plan(plan, canaries=80, seed=2).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("unit", [BoundedDegreeNode(3), UndirectedEdge(), Record()], ids=str)
def test_other_units_have_canaries_too(unit: Unit) -> None:
    coins, evidence = observed(plan_for(unit, 0.05), 60, 0)
    assert evidence.ratios[0][coins].mean() > evidence.ratios[0][~coins].mean()


def test_large_plans_have_fewer_canaries() -> None:
    unit, small = NodeWithEdges(), plan_for(NodeWithEdges(), 1.0).stages[0]
    large: Any = replace(mechanism(steps=200), num_rows=2_000)
    assert large.most_canaries(small, unit) < small.mechanism.most_canaries(small, unit)
