from __future__ import annotations

import math

import pytest

from hushgraph.errors import CalibrationError, InputError, UnprovenError
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import AggregationStage, GradientStage, Plan, UnprotectedStage, calibrated

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=4)


def test_a_stage_is_priced_by_the_unit_it_is_asked_for() -> None:
    stage = AggregationStage("a", 3, std=10.0, row_norm=2.0)
    assert stage.sensitivity(EDGE) == pytest.approx(2 * math.sqrt(2))
    assert stage.sensitivity(NODE) == pytest.approx(4.0)
    assert stage.noise_multiplier(NODE) == pytest.approx(2.5)


def test_replacing_doubles_the_sensitivity_of_a_gradient() -> None:
    stage = GradientStage("g", 5, std=1.0, max_grad_norm=0.5, sample_rate=0.1)
    assert stage.sensitivity(units.Node()) == 0.5
    assert stage.sensitivity(units.NodeReplace()) == 1.0


def test_stage_names_are_distinct_and_known() -> None:
    stage = AggregationStage("a", 1, 50.0)
    with pytest.raises(InputError, match="distinct"):
        Plan("m", EDGE, Budget(1.0, 1e-6), (stage, stage), EDGE)
    plan = Plan("m", EDGE, Budget(1.0, 1e-6), (stage,), EDGE)
    with pytest.raises(InputError, match="no stage 'b'"):
        plan.stage("b")


def test_a_plan_over_its_budget_cannot_be_made() -> None:
    with pytest.raises(CalibrationError, match="over its budget"):
        Plan("m", EDGE, Budget(1.0, 1e-6), (AggregationStage("a", 1, 1.0),), EDGE)


def test_zero_noise_with_a_finite_budget_cannot_be_planned() -> None:
    for stage in (AggregationStage("a", 1, 0.0), UnprotectedStage("u", 1, 0.0)):
        with pytest.raises(CalibrationError, match="finite epsilon"):
            Plan("m", EDGE, Budget(1.0, 1e-6), (stage,), EDGE)
    unprotected = Plan("m", EDGE, Budget(math.inf, 1e-6), (UnprotectedStage("u", 1, 0.0),), EDGE)
    assert math.isinf(unprotected.epsilon)
    assert unprotected.aggregation("a").std == 0.0


def test_calibrated_stages_meet_the_budget_together() -> None:
    def at(scale: float) -> tuple[AggregationStage, GradientStage]:
        return AggregationStage("a", 2, scale * 2.0), GradientStage("g", 50, scale, 1.0, 0.05)

    stages = calibrated(at, NODE, Budget(3.0, 1e-5))
    plan = Plan("m", NODE, Budget(3.0, 1e-5), stages, NODE)
    assert 2.97 < plan.epsilon <= 3.0
    assert stages[0].std == pytest.approx(2 * stages[1].std)


def test_a_unit_that_touches_several_examples_has_no_row_wise_bound() -> None:
    class Pair(units.Node):
        def examples_touched(self) -> int:
            return 2

    with pytest.raises(UnprovenError, match="several examples"):
        GradientStage("g", 1, 1.0).sensitivity(Pair())
