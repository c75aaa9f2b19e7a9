from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from hushgraph.errors import CalibrationError, InputError, UnprovenError
from hushgraph.mechanisms import EdgeCount, Gradient, LocalReport, NeighborSum, PairCount, Raw
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import WorstOf
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan, Stage

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=4)
METADATA = Metadata(1_000, 500)
TRAINING = Gradient(1.0, 0.05, 50)


def make(stages: list[Stage], unit: units.Unit = EDGE, epsilon: float = 1.0, **rest: object) -> Plan:
    return Plan.make("m", METADATA, unit, Budget(epsilon, 1e-6), stages, **rest)  # type: ignore[arg-type]


# Stages


def test_a_stage_is_priced_by_the_unit_it_is_asked_for() -> None:
    stage = Stage("a", NeighborSum(2.0), 3, scale=10.0)
    assert stage.sensitivity(EDGE) == pytest.approx(2 * math.sqrt(2))
    assert stage.sensitivity(NODE) == pytest.approx(4.0)
    assert stage.sensitivity(units.Local()) == 0.0  # edges are public there
    assert stage.is_free(units.Local())
    assert stage.event(NODE).event.noise_multiplier == pytest.approx(2.5)
    assert stage.event(NODE).count == 3


def test_a_stage_without_noise_yet_has_no_price() -> None:
    with pytest.raises(InputError, match=r"use Plan\.make"):
        Stage("a", NeighborSum()).event(EDGE)
    for bad in ({"count": 0}, {"parallel": 0}):
        with pytest.raises(InputError, match="at least 1"):
            Stage("a", NeighborSum(), **bad)


def test_relative_noise_is_in_multiples_of_what_one_unit_moves() -> None:
    stage = Stage("a", NeighborSum(2.0), noise=0.5).scaled(3.0, NODE)
    assert stage.scale == pytest.approx(0.5 * 3.0 * 4.0)
    assert Stage("a", NeighborSum(), noise=None, scale=7.0).scaled(3.0, NODE).scale == 7.0
    assert Stage("a", NeighborSum()).scaled(3.0, units.Local()).scale is None


def test_discrete_noise_is_rounded_up_to_a_whole_scale() -> None:
    assert Stage("c", EdgeCount(10)).scaled(0.23, NODE).scale == 3.0
    plan = make([Stage("c", EdgeCount(10)), Stage("a", NeighborSum())], NODE)
    assert plan["c"].scale == math.ceil(plan["c"].scale)
    assert 0.9 < plan.epsilon <= 1.0


def test_the_least_whole_scale_is_taken_where_it_is_enough() -> None:
    assert make([Stage("c", EdgeCount(10))], EDGE, epsilon=5.0)["c"].scale == 1.0
    assert make([Stage("c", EdgeCount(10))], NODE, epsilon=5.0)["c"].scale == 2.0


BOTH = (units.Node(), units.NodeReplace())


def test_replacing_doubles_the_sensitivity_of_a_gradient_and_not_its_noise() -> None:
    """What a replaced example costs is in the event: Poisson batches are not twice as far apart."""
    stage = Stage("g", Gradient(0.5, 0.1, 5))
    assert [stage.sensitivity(unit) for unit in BOTH] == [0.5, 1.0]
    assert [stage.scaled(2.0, unit).scale for unit in BOTH] == [1.0, 1.0]

    def ratio(rate: float) -> float:
        removed, replaced = (make([Stage("g", Gradient(0.5, rate, 5))], unit)["g"].scale for unit in BOTH)
        return replaced / removed

    assert ratio(1.0) == pytest.approx(2.0, rel=1e-6)
    assert 1.1 < ratio(0.1) < 1.9


# Plans


def test_stage_names_are_distinct_and_known() -> None:
    stage = Stage("a", NeighborSum(), noise=None, scale=50.0)
    with pytest.raises(InputError, match="distinct"):
        make([stage, stage])
    plan = make([stage])
    assert "a" in plan
    assert list(plan) == [stage]
    for missing in (lambda: plan["b"], lambda: plan.branch("b")):
        with pytest.raises(InputError, match=r"has no (stage|branch) 'b'"):
            missing()


def test_a_plan_over_its_budget_cannot_be_made() -> None:
    with pytest.raises(CalibrationError, match="over its budget"):
        make([Stage("a", NeighborSum(), noise=None, scale=1.0)])


def test_zero_noise_with_a_finite_budget_cannot_be_planned() -> None:
    with pytest.raises(CalibrationError, match="finite epsilon"):
        make([Stage("a", NeighborSum(), noise=None, scale=0.0)])
    with pytest.raises(UnprovenError, match="raw"):
        make([Stage("a", Raw("edges"))])
    unprotected = make([Stage("a", Raw("edges")), Stage("b", NeighborSum())], epsilon=math.inf)
    assert math.isinf(unprotected.epsilon)
    assert [stage.scale for stage in unprotected] == [0.0, 0.0]
    assert unprotected.runs_exactly("a")


def test_negative_and_impossible_noise_cannot_be_planned() -> None:
    for scale in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="noise multiplier"):
            make([Stage("a", NeighborSum(), noise=None, scale=scale)])


def test_calibrated_stages_meet_the_budget_together() -> None:
    plan = make([Stage("a", NeighborSum(), 2), Stage("g", TRAINING)], NODE, epsilon=3.0)
    assert 2.97 < plan.epsilon <= 3.0
    assert plan["a"].scale == pytest.approx(2 * plan["g"].scale)  # one sum moves by 2, one clipped gradient by 1


def test_free_stages_stay_exact_and_cost_nothing() -> None:
    plan = make([Stage("a", NeighborSum()), Stage("g", TRAINING)])
    alone = make([Stage("a", NeighborSum())])
    assert plan.runs_exactly("g")
    assert not plan.runs_exactly("a")
    assert plan["g"].scale is None
    assert plan["a"].scale == alone["a"].scale
    assert make([Stage("g", TRAINING)]).epsilon == 0.0


def test_a_unit_that_changes_several_records_has_no_row_wise_bound() -> None:
    class Pair(units.Node):
        footprint = units.Footprint(receivers=4, other_entries=0, records=2)

    with pytest.raises(UnprovenError, match="gradient has no proof under the unit 'node'"):
        make([Stage("g", TRAINING)], Pair())


def test_the_default_delta_comes_from_the_public_number_of_units() -> None:
    plan = Plan.make("m", METADATA, NODE, Budget(1.0), [Stage("a", NeighborSum())])
    assert plan.budget.delta == 1e-5
    with pytest.raises(InputError, match="1/1000"):
        Plan.make("m", METADATA, NODE, Budget(1.0, 1e-3), [Stage("a", NeighborSum())])


def test_paper_mode_states_the_paper_s_unit_and_charges_the_honest_one() -> None:
    plan = make([Stage("a", NeighborSum(), 2)], units.DirectedEdge(), epsilon=4.0, paper="tightest")
    assert plan.unit == EDGE
    assert plan.stated_unit == units.DirectedEdge()
    assert plan.paper is not None
    assert plan.paper.epsilon == pytest.approx(4.0, rel=1e-3)
    assert 5.8 < plan.epsilon < 6.0
    renyi = make([Stage("a", NeighborSum(), 2)], units.DirectedEdge(), epsilon=4.0, paper="renyi")
    assert renyi["a"].scale > plan["a"].scale


def test_a_range_taken_from_data_has_a_claim_and_no_proof() -> None:
    from hushgraph.local import MultiBit

    stage = Stage("f", LocalReport(MultiBit(1.0, 3), range_from_data=True), noise=None, scale=1.0)
    with pytest.raises(CalibrationError, match="finite epsilon"):
        make([stage], units.Local())
    claimed = make([stage], units.Local(), paper="tightest")
    assert claimed.paper is not None
    assert claimed.paper.epsilon == 1.0
    assert math.isinf(claimed.epsilon)


# Branches


def branching(asked: list[Stage], epsilon: float = 1.0) -> Plan:
    branches = [
        replace(make([Stage("a", NeighborSum())], NODE, epsilon=0.5), method="sums"),
        replace(make([Stage("g", TRAINING)], NODE, epsilon=0.7), method="gradients"),
    ]
    return make(asked, NODE, epsilon=epsilon, branches=branches)


def test_a_choice_costs_its_questions_and_the_costliest_branch() -> None:
    plan = branching([Stage("c", EdgeCount(10), noise=None, scale=100)])
    assert isinstance(plan.loss, WorstOf)
    assert plan.epsilon == pytest.approx(0.1 + plan.branch("gradients").epsilon)
    assert len(plan.ways(NODE)) == 2
    with pytest.raises(CalibrationError, match="over its budget"):
        branching([Stage("c", EdgeCount(10), noise=None, scale=100)], epsilon=0.75)


def test_a_choice_is_proved_after_pure_releases_only() -> None:
    with pytest.raises(UnprovenError, match="pure epsilon only"):
        branching([Stage("b", NeighborSum(), noise=None, scale=100.0)])
    with pytest.raises(InputError, match="distinct"):
        branching([Stage("a", PairCount(), noise=None, scale=100)])
    other = make([Stage("a", NeighborSum())], EDGE)
    with pytest.raises(InputError, match="unit and delta"):
        make([Stage("c", EdgeCount(10), noise=None, scale=100)], NODE, branches=[other])


# As data


def test_a_plan_reads_back_exactly() -> None:
    notes = [note(Code.SIZES, nodes=3, train=1), note(Code.SETTINGS)]
    plans = [
        make([Stage("a", NeighborSum(1.5), 2), Stage("g", TRAINING, noise=0.3, parallel=2)], NODE, public=notes),
        make([Stage("a", NeighborSum())], units.DirectedEdge(), paper="renyi"),
        make([Stage("a", Raw("edges"))], epsilon=math.inf, unprotected=notes),
        branching([Stage("c", EdgeCount(10), noise=None, scale=100)]),
    ]
    for plan in plans:
        again = Plan.from_dict(json.loads(json.dumps(plan.as_dict(), allow_nan=False)))
        assert again == plan
        assert again.epsilon == plan.epsilon


@pytest.mark.parametrize(
    "changed",
    [
        {"scale": []},
        {"scale": "inf"},
        {"noise": True},
        {"count": 2.5},
        {"parallel": None},
        {"name": 1},
        {"mechanism": []},
    ],
)
def test_a_stage_with_something_else_in_its_fields_is_refused(changed: dict[str, object]) -> None:
    stored = Stage("sums", NeighborSum(), 2, scale=3.0).as_dict()
    assert Stage.from_dict(stored).as_dict() == stored
    with pytest.raises(InputError, match=rf"a stage of a plan: expected {next(iter(changed))} as"):
        Stage.from_dict({**stored, **changed})
