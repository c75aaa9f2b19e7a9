from __future__ import annotations

from collections.abc import Callable

import pytest

from audit_plans import observed, sums_plan
from hushgraph.audit import audit_plan
from hushgraph.audit.result import Verdict
from hushgraph.mechanisms import BalancedSum
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import BoundedDegreeNode, Node, NodeReplace, NodeWithEdges, Unit

UNITS = [NodeWithEdges(), Node(), BoundedDegreeNode(), NodeReplace()]


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_canaries_come_close_to_the_separation_that_the_accounting_allows(unit: Unit) -> None:
    coins, evidence = observed(sums_plan(unit, BalancedSum(8.0), 1, 2.0), 4000, seed=0)
    scores = evidence.normal
    assert scores is not None
    # Means of 2,000 unit normals: 5 standard errors, off once in a million. A full separation would be 0.5.
    assert 0.3 < scores[coins].mean() < 0.5 + 0.12
    assert scores[~coins].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~coins].std() == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_half_the_noise_is_caught(unit: Unit, half_noise: Callable[[int], NoiseSource]) -> None:
    plan = sums_plan(unit, BalancedSum(8.0), 1, 1.0)
    assert audit_plan(plan, canaries=4000, seed=0).verdict is Verdict.CONSISTENT
    assert audit_plan(plan, canaries=4000, seed=0, noise=half_noise(0)).verdict is Verdict.CONTRADICTED
