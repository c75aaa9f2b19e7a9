"""Limits: who is let in, and what a limit that is set or changed leaves over."""

from __future__ import annotations

import math

import pytest

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.accounts import Account, Phase
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import check_history, open_run
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from toy_plans import DELTA, EDGE, NODE, carry_out, plan_of, sum_stage, sums_of, training


def limited(epsilon: float, unit: units.Unit = EDGE, delta: float = DELTA, **more: str) -> Ledger:
    ledger = Ledger().on(Occasion(purpose="a test"))
    ledger.create("data", unit.as_dict())
    ledger.set_limit(epsilon, delta, **more)
    return ledger


def account_of(ledger: Ledger) -> Account:
    (account,) = ledger.accounts("data")
    return account


def phase_of(ledger: Ledger) -> Phase:
    phase = account_of(ledger).phase
    assert phase is not None
    return phase


def runs_until_refused(ledger: Ledger, plan: object, most: int = 40) -> int:
    for number in range(most):
        try:
            carry_out(ledger, plan)  # type: ignore[arg-type]
        except BudgetError:
            return number
    return most


# Epsilon 0 at a large delta


@pytest.mark.parametrize("filter", ["gaussian", "renyi", None])
def test_epsilon_zero_at_a_large_delta_is_not_free(filter: str | None) -> None:
    """What a run of (0, 0.04) releases costs epsilon at the delta of the limit."""
    large = 0.04
    plan = plan_of(sum_stage("aggregation", 1, 20.0), delta=large)
    assert plan.epsilon == 0.0
    ledger = limited(1.0, **({} if filter is None else {"filter": filter}))
    let_in = runs_until_refused(ledger, plan)
    alone = plan_of(sum_stage("aggregation", max(let_in, 1), 20.0)).epsilon
    assert 1 <= let_in < 40
    assert alone <= 1.0
    check_history(ledger.history())


def test_epsilon_zero_uses_up_delta_under_a_basic_filter() -> None:
    ledger = limited(1.0, delta=0.1, filter="basic")
    assert runs_until_refused(ledger, plan_of(sum_stage("aggregation", 1, 20.0), delta=0.04)) == 2
    assert phase_of(ledger).cost_delta == pytest.approx(0.08)


def test_sampled_releases_of_epsilon_zero_are_counted_too() -> None:
    plan = training(std=20.0, steps=100, rate=0.05, delta=0.04)
    assert plan.epsilon == 0.0
    ledger = limited(0.5, NODE)
    carry_out(ledger, plan)
    assert phase_of(ledger).cost > 0.0


def test_a_run_that_reads_nothing_protected_is_free_however_full_the_limit_is() -> None:
    ledger = limited(1.0)
    carry_out(ledger, sums_of(1.0))
    cost = phase_of(ledger).cost
    carry_out(ledger, plan_of())
    assert phase_of(ledger).cost == cost
    check_history(ledger.history())


def test_a_number_of_edges_that_is_declared_too_small_does_not_make_delta_large() -> None:
    from hushgraph.privacy.metadata import Metadata

    sizes = Metadata(1_000, 750, num_edges=2)
    for unit in (EDGE, units.DirectedEdge()):
        with pytest.raises(InputError, match="delta: expected less than 1/1000"):
            Budget(1.0, 0.4).for_units(unit.count(sizes))
    assert EDGE.count(Metadata(1_000, 750, num_edges=8_000)) == 4_000


# What is let in


def test_a_run_over_its_limit_by_a_millionth_is_refused_and_one_that_meets_it_is_not() -> None:
    for kind in ("basic", "gaussian"):
        with pytest.raises(BudgetError, match="the dataset's limit"):
            open_run(limited(1.0, filter=kind), sums_of(1.0 + 1e-6), "data", seeded=False)
        open_run(limited(1.0, filter=kind), sums_of(1.0), "data", seeded=False)


def test_deltas_add_up_under_a_basic_filter_and_have_their_cap() -> None:
    ledger = limited(10.0, delta=2.5 * DELTA, filter="basic")
    assert runs_until_refused(ledger, sums_of(1.0)) == 2
    assert phase_of(ledger).cost_delta == pytest.approx(2 * DELTA)
    assert phase_of(ledger).cost == pytest.approx(2.0)


# What a changed limit leaves


def test_a_raised_limit_does_not_give_back_what_the_old_filter_did_not_use() -> None:
    """The old filter is proved for all that it was given; how little it used was known when the limit was raised."""
    ledger = limited(3.0, filter="gaussian")
    carry_out(ledger, sums_of(1.0))
    ledger.set_limit(5.0, 4 * DELTA)
    phase = phase_of(ledger)
    assert (phase.epsilon, phase.delta) == (pytest.approx(2.0), pytest.approx(3 * DELTA))
    assert account_of(ledger).earlier.epsilon == pytest.approx(3.0)
    check_history(ledger.history())


def test_what_a_run_gives_back_does_not_reach_a_later_filter() -> None:
    ledger = limited(3.0, filter="basic")
    early = open_run(ledger, sums_of(1.0, delta=0.1 * DELTA), "data", seeded=False)
    ledger.set_limit(6.0, 4 * DELTA, filter="basic")
    carry_out(ledger, sums_of(2.0))
    assert phase_of(ledger).cost == pytest.approx(2.0)
    early.close()
    assert phase_of(ledger).cost == pytest.approx(2.0)
    assert phase_of(ledger).cost_delta == pytest.approx(DELTA)
    check_history(ledger.history())


@pytest.mark.parametrize("epsilon", [math.nan, -1.0, 0.0, math.inf])
@pytest.mark.parametrize("delta", [math.nan, 0.0, 1.0, 2.0])
def test_a_limit_that_is_none_is_refused_with_all_that_is_wrong(epsilon: float, delta: float) -> None:
    ledger = Ledger()
    ledger.create("data", EDGE.as_dict())
    with pytest.raises(InputError, match=r"epsilon: expected a positive(.|\n)*delta: expected a number above 0"):
        ledger.set_limit(epsilon, delta)
    assert not ledger.history().of_kind("limit")
