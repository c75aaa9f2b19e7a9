"""Totals, limits and groups: what is proved, and by which argument."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.accounts import Account, fold
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.limits import weights
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.run import check_history, open_run
from hushgraph.ledger.totals import Kind
from hushgraph.local import MultiBit
from hushgraph.mechanisms import LocalReport
from hushgraph.privacy import units
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.plan import Stage
from toy_plans import DELTA, EDGE, NODE, baseline, carry_out, choice, plan_of, rooted, sums, sums_of, training


def limited(epsilon: float, unit: units.Unit = EDGE, delta: float = DELTA, **more: str) -> Ledger:
    ledger = Ledger()
    ledger.create("data", unit.as_dict())
    ledger.set_limit(epsilon, delta, **more)
    return ledger


def raise_limit(ledger: Ledger, epsilon: float, delta: float, **more: str) -> dict[str, Any]:
    return ledger.on(Occasion(operator="ben", purpose="decision 13")).set_limit(epsilon, delta, **more)


def current(ledger: Ledger) -> Account:
    (account,) = ledger.accounts("data")
    return account


# Without a limit


def test_without_a_limit_epsilons_and_deltas_are_added_up() -> None:
    ledger = Ledger()
    for epsilon in (1.0, 2.0, 0.5):
        carry_out(ledger, sums_of(epsilon))
    total = ledger.total("data", EDGE)
    assert total.epsilon == pytest.approx(3.5)
    assert total.delta == pytest.approx(3 * DELTA)
    assert (total.kind, total.private, total.runs) == (Kind.BASIC, True, 3)
    assert "added up" in total.reason


def test_a_smaller_delta_is_split_among_the_runs_and_a_larger_one_changes_nothing() -> None:
    ledger = Ledger()
    for _ in range(2):
        carry_out(ledger, sums_of(1.0))
    assert ledger.total("data", EDGE, 1e-3).epsilon == pytest.approx(2.0)
    total = ledger.total("data", EDGE, 1e-6)
    loss = PrivacyLoss(sums_of(1.0).ways(EDGE)[0], EDGE.relation)
    assert total.delta == 1e-6
    assert total.epsilon == pytest.approx(sum(loss.epsilon(1e-6 * share) for share in weights(2)))
    assert sum(weights(100_000)) < 1.0


def test_runs_declared_together_compose_as_one_plan() -> None:
    ledger = Ledger()
    ledger.declare_group("study", [sums_of(1.0)] * 10, dataset="data")
    assert ledger.total("data", EDGE).kind is Kind.NONE  # a declaration alone releases nothing
    for _ in range(10):
        carry_out(ledger, sums_of(1.0), group="study")
    total = ledger.total("data", EDGE)
    assert total.kind is Kind.DECLARED
    assert total.epsilon == pytest.approx(3.5247, abs=1e-3)
    assert total.delta == DELTA
    assert "declared together" in total.reason
    carry_out(ledger, sums_of(1.0))
    mixed = ledger.total("data", EDGE)
    assert (mixed.kind, mixed.runs) == (Kind.BASIC, 11)
    assert mixed.epsilon == pytest.approx(4.5247, abs=1e-3)
    check_history(ledger.history())


def test_a_group_counts_whole_from_its_first_run_on_whatever_is_used_of_it() -> None:
    """Stopping early in view of results would not be covered by plans that were fixed beforehand."""
    ledger = Ledger()
    ledger.declare_group("study", [sums(count=4), sums(count=1)], dataset="data")
    first = open_run(ledger, sums(count=1), "data", seeded=False, group="study")  # in any order
    whole = sums(count=5).epsilon
    assert ledger.total("data", EDGE).epsilon == pytest.approx(whole)
    first.close()
    assert ledger.total("data", EDGE).epsilon == pytest.approx(whole)
    smaller = PrivacyLoss(sums(count=5).ways(EDGE)[0], EDGE.relation).epsilon(1e-9)
    assert ledger.total("data", EDGE, 1e-9).epsilon == pytest.approx(smaller)
    check_history(ledger.history())


def test_a_run_that_was_not_declared_does_not_join_a_group() -> None:
    ledger = Ledger()
    with pytest.raises(InputError, match="declared before its first run; got none"):
        open_run(ledger, sums_of(1.0), "data", seeded=False, group="study")
    ledger.declare_group("study", [sums_of(1.0), sums_of(1.0), sums_of(2.0)], dataset="data")
    carry_out(ledger, sums_of(1.0), group="study")
    for other in (sums_of(1.1), sums_of(1.0, delta=1e-7), sums(count=2)):
        with pytest.raises(InputError, match=r"not run yet .2 of 3 are left.; got another"):
            open_run(ledger, other, "data", seeded=False, group="study")
    carry_out(ledger, sums_of(1.0), group="study")
    with pytest.raises(InputError, match=r"1 of 3 are left"):
        open_run(ledger, sums_of(1.0), "data", seeded=False, group="study")
    assert len(ledger.history().runs()) == 2
    carry_out(ledger, sums_of(1.1))  # beside the group, it is added up
    assert ledger.total("data", EDGE).kind is Kind.BASIC
    check_history(ledger.history())


def test_what_cannot_be_declared_is_refused() -> None:
    ledger = Ledger()
    for plans, message in (
        ([], "got none"),
        ([sums_of(1.0), sums_of(1.0, delta=1e-7)], "one unit and one delta"),
        ([sums_of(1.0), training()], "one unit and one delta"),
        ([choice()], "chooses its way"),
        ([baseline()], "epsilon inf"),
    ):
        with pytest.raises(InputError, match=message):
            ledger.declare_group("study", plans, dataset="data")
    ledger.declare_group("study", [sums_of(1.0)], dataset="data")
    with pytest.raises(InputError, match="was declared before"):
        ledger.declare_group("study", [sums_of(1.0)], dataset="data")
    with pytest.raises(InputError, match="expected no limit"):
        limited(5.0).declare_group("study", [sums_of(1.0)], dataset="data")


def test_under_a_limit_that_comes_later_runs_of_a_group_count_in_the_filter() -> None:
    ledger = Ledger()
    ledger.declare_group("study", [sums_of(1.0)] * 2, dataset="data")
    carry_out(ledger, sums_of(1.0), group="study")
    found = ledger.set_limit(6.0, 1e-5)
    assert found["earlier"]["epsilon"] == pytest.approx(sums_of(1.0).epsilon * 1.42, rel=0.05)  # both, together
    carry_out(ledger, sums_of(1.0), group="study")
    assert ledger.total("data", EDGE).kind is Kind.FILTER
    check_history(ledger.history())


def test_for_other_units_runs_of_a_group_are_added_up() -> None:
    ledger, other = Ledger(), units.NodeReplace(max_degree=5)
    plan = training(unit=NODE)
    ledger.create("data", other.as_dict())
    ledger.declare_group("study", [plan, plan], dataset="data")
    for _ in range(2):
        carry_out(ledger, plan, group="study")
    one = PrivacyLoss(plan.ways(other)[0], other.relation).epsilon(DELTA)
    assert ledger.total("data", other).epsilon == pytest.approx(2 * one)
    assert ledger.total("data", NODE).epsilon < 2 * plan.epsilon
    check_history(ledger.history())


def test_a_seeded_run_makes_the_total_not_private_unless_it_stays_inside() -> None:
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0))
    carry_out(ledger, sums_of(1.0), seeded=True, unpublished=True)
    inside = ledger.total("data", EDGE)
    assert (inside.private, inside.runs, inside.left_out) == (True, 1, 1)
    assert inside.epsilon == pytest.approx(1.0)
    assert "1 run declared unpublished is left out" in inside.reason
    run = carry_out(ledger, sums_of(1.0), seeded=True)
    outside = ledger.total("data", EDGE)
    assert not outside.private
    assert math.isinf(outside.epsilon)
    assert run.identity in outside.reason
    assert "NOT PRIVATE" in str(outside)
    check_history(ledger.history())


def test_an_unprotected_run_counts_as_infinite_unless_it_stays_inside() -> None:
    ledger = Ledger()
    carry_out(ledger, baseline(), unpublished=True)
    assert ledger.total("data", EDGE).private
    carry_out(ledger, baseline())
    assert not ledger.total("data", EDGE).private
    carry_out(ledger, sums_of(1.0), unpublished=True)  # a private run counts in any case
    assert ledger.total("data", EDGE).left_out == 1


# Filters


def test_ten_runs_of_epsilon_1_fit_into_a_limit_of_3_6_and_the_eleventh_is_refused() -> None:
    ledger = limited(3.6)
    for _ in range(10):
        carry_out(ledger, sums_of(1.0))
    total = ledger.total("data", EDGE)
    assert total.kind is Kind.FILTER
    assert total.used == pytest.approx(3.5247, abs=1e-3)
    assert (total.epsilon, total.delta) == (3.6, DELTA)  # what is proved, whatever runs had followed
    assert "Gaussian filter" in total.reason
    with pytest.raises(BudgetError, match=r"the dataset's limit is epsilon 3\.6"):
        carry_out(ledger, sums_of(1.0))
    carry_out(ledger, sums_of(0.3))  # a smaller one still fits
    check_history(ledger.history())


def test_a_refusal_is_entered_and_nothing_else() -> None:
    ledger = limited(0.5)
    before = len(ledger.history().entries)
    with pytest.raises(BudgetError, match="Nothing was read"):
        open_run(ledger, sums_of(1.0), "data", seeded=False, operator="ann", purpose="hope")
    (entry,) = ledger.history().entries[before:]
    assert entry.kind == "refused"
    facts = {name: entry.values[name] for name in ("operator", "purpose", "method", "cause")}
    assert facts == {"operator": "ann", "purpose": "hope", "method": "toy", "cause": "full"}
    assert entry.values["after"] == pytest.approx(1.0)


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_one_run_may_fill_the_limit_exactly(unit: units.Unit) -> None:
    plan = sums_of(2.0, EDGE) if unit is EDGE else training()
    epsilon = plan.epsilon
    ledger = limited(epsilon, unit)
    carry_out(ledger, plan)
    total = ledger.total("data", unit)
    assert total.epsilon == pytest.approx(epsilon)
    assert current(ledger).phases[0].kind == ("gaussian" if unit is EDGE else "basic")
    with pytest.raises(BudgetError):
        carry_out(ledger, plan)


def test_sampled_runs_use_a_renyi_filter_of_one_order() -> None:
    one = training().epsilon
    ledger = limited(3.0 * one, NODE)
    for _ in range(4):
        carry_out(ledger, training())
    (phase,) = current(ledger).phases
    assert phase.kind == "renyi"
    total = ledger.total("data", NODE)
    assert total.used < total.epsilon == pytest.approx(3.0 * one)
    let_in = 4
    while let_in < 20:
        try:
            carry_out(ledger, training())
        except BudgetError:
            break
        let_in += 1
    assert 5 < let_in < 12  # three by the plain sum, nine or ten if the plans had been fixed beforehand
    carry_out(ledger, rooted())  # other kinds of releases go into the same sum
    check_history(ledger.history())


def test_a_gaussian_filter_takes_pure_parts_and_refuses_sampled_ones_by_name() -> None:
    ledger = limited(50.0, NODE, filter="gaussian")
    carry_out(ledger, sums(unit=NODE))
    open_run(ledger, choice(), "data", seeded=False)
    with pytest.raises(BudgetError, match=r"no bound for the releases of this run.*--filter renyi"):
        open_run(ledger, training(), "data", seeded=False)
    with pytest.raises(InputError, match="filter: expected one of"):
        raise_limit(ledger, 60.0, 2 * DELTA, filter="magic")


def test_a_run_gives_back_what_it_did_not_use_under_a_filter_too() -> None:
    ledger = limited(5.0)
    for _ in range(200):
        run = open_run(ledger, sums_of(2.0), "data", seeded=False)
        run.close()
    assert ledger.total("data", EDGE).used == pytest.approx(0.0, abs=1e-6)
    run = open_run(ledger, sums(count=10), "data", seeded=False)
    run.charge(run.plan.stages[0], 1)
    run.close()
    assert ledger.total("data", EDGE).used == pytest.approx(sums(count=1).epsilon)
    check_history(ledger.history())


def test_seeded_and_unprotected_runs_are_refused_under_a_limit_unless_they_stay_inside() -> None:
    ledger = limited(5.0)
    with pytest.raises(BudgetError, match=r"seeded noise is not private.*--unpublished"):
        open_run(ledger, sums_of(1.0), "data", seeded=True)
    with pytest.raises(BudgetError, match="epsilon is infinite"):
        open_run(ledger, baseline(), "data", seeded=False)
    open_run(ledger, sums_of(1.0), "data", seeded=True, unpublished=True)
    assert ledger.total("data", EDGE).left_out == 1


def test_a_run_with_too_little_noise_for_any_accountant_proves_nothing() -> None:
    ledger = Ledger()
    run = open_run(ledger, training(std=1e-3), "data", seeded=False)
    assert ledger.total("data", NODE).unproved == (run.identity,)
    with pytest.raises(BudgetError, match="epsilon is infinite"):
        open_run(limited(50.0, NODE), training(std=1e-3), "data", seeded=False)


def test_a_free_run_fixes_no_kind_of_filter() -> None:
    free = plan_of()
    ledger = limited(1.0)
    carry_out(ledger, free)
    assert current(ledger).phases[0].filter is None
    assert ledger.total("data", EDGE).epsilon == 0.0


# Setting, raising, lowering


def test_what_was_spent_before_a_limit_is_taken_off_it() -> None:
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0))
    found = ledger.set_limit(4.0, 1e-5)
    assert found["cap_epsilon"] == pytest.approx(3.0)
    assert found["cap_delta"] == pytest.approx(9e-6)
    carry_out(ledger, sums_of(2.0))
    total = ledger.total("data", EDGE)
    assert (total.epsilon, total.kind, total.earlier) == (pytest.approx(4.0), Kind.FILTER, 1)
    with pytest.raises(BudgetError):
        carry_out(ledger, sums_of(2.9))
    check_history(ledger.history())


def test_earlier_runs_are_stated_at_smaller_deltas_where_theirs_leave_too_little() -> None:
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0))
    found = ledger.set_limit(4.0, DELTA)
    earlier = PrivacyLoss(sums_of(1.0).ways(EDGE)[0], EDGE.relation).epsilon(DELTA * weights(1)[0])
    assert found["earlier"]["epsilon"] == pytest.approx(earlier)  # as without a limit, at that delta
    assert found["cap_delta"] == pytest.approx(DELTA * (1.0 - weights(1)[0]))
    assert found["cap_epsilon"] == pytest.approx(4.0 - earlier)
    check_history(ledger.history())


def test_raising_a_limit_begins_a_new_filter_with_the_rest() -> None:
    ledger = limited(2.0)
    carry_out(ledger, sums_of(1.9))
    with pytest.raises(BudgetError):
        carry_out(ledger, sums_of(1.5))
    found = raise_limit(ledger, 6.0, 2 * DELTA)
    assert found["change"] == "raised"
    assert (found["earlier"]["epsilon"], found["earlier"]["delta"]) == (2.0, DELTA)  # what the first filter was given
    carry_out(ledger, sums_of(1.5))
    total = ledger.total("data", EDGE)
    assert (total.epsilon, total.delta) == (pytest.approx(6.0), pytest.approx(2 * DELTA))
    assert len(current(ledger).phases) == 2
    assert total.used < 6.0
    check_history(ledger.history())


def test_a_raised_limit_is_not_called_one_that_was_set_beforehand() -> None:
    ledger = limited(2.0)
    carry_out(ledger, sums_of(1.9))
    assert "under a limit set beforehand" in ledger.total("data", EDGE).reason
    raise_limit(ledger, 6.0, 2 * DELTA)
    total = ledger.total("data", EDGE)
    assert (total.kind, total.epsilon) == (Kind.RAISED, 2.0)  # nothing was let in by the second filter yet
    carry_out(ledger, sums_of(1.0))
    total = ledger.total("data", EDGE)
    assert "under a limit set beforehand" not in total.reason
    assert "raised once in view of results" in total.reason


def test_raising_a_limit_needs_a_reason_and_a_delta_of_its_own() -> None:
    """At the same delta, a filter that was given all of it leaves nothing that another one could fail with."""
    ledger = limited(2.0)
    carry_out(ledger, sums_of(1.0))
    entries = len(ledger.history().entries)
    for epsilon, delta in ((6.0, DELTA), (2.0, 2 * DELTA)):
        with pytest.raises(InputError, match=r"purpose: expected why the limit is raised from epsilon 2.*--why"):
            ledger.set_limit(epsilon, delta)
    with pytest.raises(InputError, match=r"delta: expected more than 1e-06.*--delta 2e-06"):
        raise_limit(ledger, 6.0, DELTA)
    assert len(ledger.history().entries) == entries


def test_lowering_a_limit_lets_less_through_and_proves_no_more() -> None:
    ledger = limited(6.0)
    carry_out(ledger, sums_of(1.0))
    assert ledger.set_limit(2.0, DELTA)["change"] == "lowered"
    with pytest.raises(BudgetError, match="limit is epsilon 2"):
        carry_out(ledger, sums_of(1.9))
    carry_out(ledger, sums_of(1.0))
    total = ledger.total("data", EDGE)
    assert total.epsilon == 6.0
    assert total.used < 2.0
    assert raise_limit(ledger, 5.0, DELTA)["change"] == "lowered"  # back up, but still within what the filter was given
    carry_out(ledger, sums_of(1.9))
    check_history(ledger.history())


def test_a_limit_that_is_changed_before_any_run_is_simply_replaced() -> None:
    ledger = limited(6.0)
    assert raise_limit(ledger, 9.0, 1e-5)["change"] == "set"
    assert [(phase.epsilon, phase.delta) for phase in current(ledger).phases] == [(9.0, 1e-5)]


def test_a_limit_cannot_be_kept_where_the_past_is_not_private() -> None:
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0), seeded=True)
    ledger.set_limit(4.0, DELTA)
    with pytest.raises(BudgetError, match="not private already"):
        carry_out(ledger, sums_of(1.0))
    check_history(ledger.history())


def test_the_end_of_a_run_from_an_earlier_filter_changes_nothing() -> None:
    ledger = limited(2.0)
    run = open_run(ledger, sums_of(1.9), "data", seeded=False)
    raise_limit(ledger, 6.0, 2 * DELTA)
    before = current(ledger).as_dict()
    run.close()  # used nothing, but the new filter was given the rest already
    after = current(ledger).as_dict()
    assert after.pop("upto") > before.pop("upto")
    assert after == before


# Several units


def test_an_edge_level_run_proves_nothing_at_node_level_and_both_totals_say_so() -> None:
    ledger = Ledger()
    run = carry_out(ledger, sums_of(1.0, EDGE))
    total = ledger.total("data", NODE)
    assert not total.private
    assert math.isinf(total.epsilon)
    assert run.identity in total.reason
    assert ledger.total("data", EDGE).epsilon == pytest.approx(1.0)


def test_a_node_level_run_is_priced_for_the_units_that_are_known() -> None:
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0, EDGE))
    carry_out(ledger, sums_of(1.0, units.DirectedEdge()))  # known from here on
    plan = sums_of(2.0, EDGE)
    run = carry_out(ledger, plan)
    other = PrivacyLoss(plan.ways(units.DirectedEdge())[0], EDGE.relation).epsilon(DELTA)
    assert 0.0 < other < 2.0
    prices = {price["unit"]["name"]: price for price in ledger.history().opened(run.identity)["prices"]}
    assert prices["directed-edge"]["epsilon"] == pytest.approx(other)
    check_history(ledger.history())


def test_sums_over_cut_lists_prove_nothing_for_one_edge() -> None:
    """A node's list is cut to its cap: without one entry another one may take its place, which no edge bound knows."""
    ledger = Ledger()
    carry_out(ledger, sums_of(1.0, EDGE))
    run = carry_out(ledger, sums(std=30.0, count=1, unit=NODE))
    for unit, culprits in ((EDGE, (run.identity,)), (NODE, 1)):
        total = ledger.total("data", unit)
        assert (total.private, total.runs) == (False, 2)
        assert total.unproved == culprits or len(total.unproved) == culprits
    check_history(ledger.history())


def test_training_that_reads_no_edge_costs_nothing_for_one_edge() -> None:
    ledger = limited(1.0, EDGE)
    carry_out(ledger, training())
    assert ledger.total("data", EDGE).epsilon == 0.0
    assert ledger.total("data", NODE).epsilon == pytest.approx(training().epsilon)
    check_history(ledger.history())


def test_a_run_without_proof_for_a_limited_unit_is_refused() -> None:
    ledger = limited(8.0, NODE)
    with pytest.raises(BudgetError, match=r"the unit 'node'.*nothing is proved about this run for that unit"):
        carry_out(ledger, baseline(EDGE))
    with pytest.raises(BudgetError, match="nothing is proved"):
        carry_out(ledger, sums_of(1.0, EDGE))
    report = Stage("report", LocalReport(MultiBit(1.0, 3)), noise=None, scale=1.0)
    with pytest.raises(BudgetError, match="nothing is proved"):
        carry_out(ledger, plan_of(report, unit=units.Local()))
    assert ledger.history().runs() == []


def test_the_total_for_a_new_unit_is_computed_from_the_stored_plans() -> None:
    """Runs charged for another unit are priced again from what the ledger holds; a part of a plan as that part."""
    stored, other = sums(std=40.0, count=4, unit=NODE), units.NodeReplace(max_degree=5)
    ledger = Ledger()
    run = open_run(ledger, stored, "data", seeded=False)
    whole = ledger.total("data", other)
    assert whole.epsilon == pytest.approx(PrivacyLoss(stored.ways(other)[0], other.relation).epsilon(DELTA))
    assert whole.epsilon > 1.9 * stored.epsilon  # another record moves the sums twice as far as an empty one
    run.charge(stored.stages[0], 1)
    run.close()
    part = replace(stored.stages[0], count=1).event(other)
    assert ledger.total("data", other).epsilon == pytest.approx(PrivacyLoss(part, other.relation).epsilon(DELTA))
    assert ledger.total("data", other, 1e-9).epsilon > whole.epsilon * 0.5
    ledger.set_limit(4.0, 1e-5, dataset="data", unit=other)
    assert ledger.total("data", other).earlier == 1
    check_history(ledger.history())


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    ("charged", "asked"),
    [(EDGE, NODE), (NODE, EDGE), (NODE, units.Node(6)), (NODE, units.BoundedDegreeNode(5)), (EDGE, units.Local())],
    ids=str,
)
def test_a_run_is_priced_for_no_unit_whose_bounds_it_did_not_keep_to(
    charged: units.Unit, asked: units.Unit, closed: bool
) -> None:
    ledger = Ledger()
    plan = sums(std=40.0, count=2, unit=charged)
    run = open_run(ledger, plan, "data", seeded=False)
    run.charge(plan.stages[0], 1)
    if closed:
        run.close()
    total = ledger.total("data", asked)
    assert (total.private, total.epsilon, total.unproved) == (False, math.inf, (run.identity,))


def test_datasets_do_not_share_anything() -> None:
    ledger = limited(2.0)
    carry_out(ledger, sums_of(1.9))
    carry_out(ledger, sums_of(1.9), "other")
    assert ledger.total("other", EDGE).kind is Kind.BASIC
    with pytest.raises(InputError, match="expected a dataset of this ledger"):
        ledger.total("nowhere", EDGE)


def test_running_totals_are_those_of_the_entries() -> None:
    ledger = limited(5.0)
    carry_out(ledger, sums_of(1.0))
    carry_out(ledger, sums_of(1.0), seeded=True, unpublished=True)
    ledger.declare_group("study", [training()] * 2, dataset="other")
    carry_out(ledger, training(), "other", group="study")
    again = fold(ledger.history()).accounts
    assert {key: account.as_dict() for key, account in again.items()} == {
        (account.dataset, unit_key(account.unit)): account.as_dict() for account in ledger.accounts()
    }
    for account in ledger.accounts():
        assert Account.from_dict(account.as_dict()) == account


def test_a_limit_check_reads_the_same_number_of_rows_however_many_runs_there_are() -> None:
    ledger = limited(1e6)

    def rows_of_a_refusal() -> int:
        before = ledger.rows_read
        with pytest.raises(BudgetError):
            open_run(ledger, sums_of(1.0), "data", seeded=True)
        return ledger.rows_read - before

    carry_out(ledger, sums_of(0.01))
    first = rows_of_a_refusal()
    for _ in range(60):
        carry_out(ledger, sums_of(0.01))
    assert rows_of_a_refusal() == first < 40


def test_all_runs_without_proof_are_named_or_counted() -> None:
    ledger = Ledger()
    names = [carry_out(ledger, sums_of(1.0, EDGE)).identity for _ in range(2)]
    ledger.create("data", NODE.as_dict())
    reason = ledger.total("data", NODE).reason
    assert f"nothing is proved about runs {names[0]} and {names[1]} for this unit" in reason
    seeded = [carry_out(ledger, sums_of(1.0, EDGE), seeded=True).identity for _ in range(5)]
    reason = ledger.total("data", EDGE).reason
    assert f"the noise of runs {seeded[0]}, {seeded[1]} and {seeded[2]} were seeded" in reason
    assert "the same holds for 2 more runs" in reason
