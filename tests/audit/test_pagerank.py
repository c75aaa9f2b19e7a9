"""Canaries of the mechanisms on PageRank: they find a good part of what is charged, and less noise than that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from audit_plans import observed, plan_of
from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.mechanisms.pagerank_laplace import PageRankLaplace
from hushgraph.mechanisms.pagerank_rows import PageRankMechanism, PageRankRows
from hushgraph.mechanisms.pagerank_top import PageRankTop
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import BoundedDegreeNode, NodeReplace, NodeWithEdges, Record, UndirectedEdge, Unit

SIZES = (6, 2, 0.3, 0.05)
UNIT = NodeWithEdges()


def plan_for(mechanism: PageRankMechanism, unit: Unit, multiplier: float) -> Plan:
    return plan_of(unit, Stage("rows", mechanism, scale=multiplier * mechanism.reference(unit)))


CASES = [
    (PageRankRows(6, 6, 0.3, 0.01), 0.7, 0.4),
    (PageRankTop(*SIZES), 0.5, 0.2),
    (PageRankValues(*SIZES), 0.7, 0.4),
    (PageRankLaplace(*SIZES), 0.7, 0.25),
]


@pytest.mark.parametrize(("mechanism", "multiplier", "share"), CASES, ids=lambda one: getattr(one, "name", None))
def test_a_hub_that_goes_is_seen(mechanism: PageRankMechanism, multiplier: float, share: float) -> None:
    plan = plan_for(mechanism, UNIT, multiplier)
    found = audit_plan(plan, canaries=400, seed=3)
    assert found.verdict is Verdict.CONSISTENT
    assert share * plan.epsilon < found.lower_bound


@pytest.mark.parametrize("unit", [NodeReplace(), BoundedDegreeNode(4), UndirectedEdge()], ids=str)
def test_every_unit_with_edges_has_canaries(unit: Unit) -> None:
    for mechanism, multiplier, _ in CASES:
        coins, evidence = observed(plan_for(mechanism, unit, 0.2 * multiplier), 200, 0)
        ratios = evidence.ratios[0]
        assert ratios[coins].mean() > ratios[~coins].mean()
    assert audit_plan(plan_for(CASES[0][0], Record(), 1.0)).verdict is Verdict.NOTHING


@dataclass(frozen=True)
class Closer(PageRankTop):
    """Broken on purpose: the scores count eight times as much as is charged for."""

    def release(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> Any:
        return super().release(data, 0.125 * scale, noise, *inputs)


def test_half_the_noise_is_caught(half_noise: Callable[[int], NoiseSource]) -> None:
    for mechanism in (PageRankRows(6, 6, 0.3, 0.01), PageRankValues(*SIZES)):
        plan = plan_for(mechanism, UNIT, 1.5)
        found = audit_plan(plan, canaries=1000, seed=4, noise=half_noise(4))
        assert found.verdict is Verdict.CONTRADICTED, mechanism


def test_picks_that_look_closer_than_charged_are_caught() -> None:
    right, broken = (plan_for(kind(*SIZES), UNIT, 2.0) for kind in (PageRankTop, Closer))
    assert audit_plan(right, canaries=1000, seed=5).verdict is Verdict.CONSISTENT
    assert audit_plan(broken, canaries=1000, seed=5).verdict is Verdict.CONTRADICTED


def test_likelihoods_are_those_of_the_law() -> None:
    """The mean of exp(log ratio) is 1 where the canary is absent: 400 releases, from a fixed seed."""
    for mechanism, multiplier, _ in CASES:
        plan = plan_for(mechanism, UNIT, 4.0 * multiplier)
        coins, evidence = observed(plan, 800, 1)
        assert np.exp(evidence.ratios[0][~coins]).mean() == pytest.approx(1.0, abs=0.15)
        assert np.exp(-evidence.ratios[0][coins]).mean() == pytest.approx(1.0, abs=0.15)


def test_large_plans_have_fewer_canaries() -> None:
    small = plan_for(CASES[0][0], UNIT, 1.0).stages[0]
    large = replace(small, mechanism=PageRankRows(15_000, 4))
    assert large.mechanism.most_canaries(large, UNIT) < small.mechanism.most_canaries(small, UNIT)
