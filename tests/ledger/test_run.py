from __future__ import annotations

import dataclasses
import threading
import warnings
from pathlib import Path

import pytest

from hushgraph.errors import BudgetError, CalibrationError, InputError, LedgerError, UnprovenError
from hushgraph.ledger.ledger import InMemoryLedgerWarning, Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import Run, check_history, open_run, spent
from hushgraph.mechanisms import EdgeCount, NeighborSum
from hushgraph.privacy import events, units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan, Stage
from toy_plans import (
    COUNT,
    DELTA,
    EDGE,
    NODE,
    SIZES,
    carry_out,
    choice,
    gradient_stage,
    option,
    plan_of,
    sum_stage,
    sums,
)

REASON = note(Code.CHOSE_LABELS, method="dear")


def start(ledger: Ledger, plan: Plan | None = None) -> Run:
    return open_run(ledger, plan or sums(), "data", seeded=False)


def test_an_open_run_counts_as_its_whole_plan_and_a_closed_one_as_its_charges() -> None:
    ledger = Ledger()
    run = start(ledger)
    whole = sums().epsilon
    for _ in range(2):
        assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(whole)
        assert ledger.total("data", EDGE).epsilon == pytest.approx(whole)
        run.charge(run.plan.stages[0], 1) if not ledger.history().of_run(run.identity, "charge") else None
    run.close()
    part = sums(count=1).epsilon
    assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(part)
    assert ledger.total("data", EDGE).epsilon == pytest.approx(part)


def test_a_run_that_charged_nothing_costs_nothing() -> None:
    ledger = Ledger()
    start(ledger).close()
    total = ledger.total("data", EDGE)
    assert (total.epsilon, total.delta, total.runs) == (0.0, 0.0, 1)


def test_only_what_was_planned_can_be_charged() -> None:
    run = start(Ledger())
    stage = run.plan.stages[0]
    before = len(run.ledger.history().entries)
    with pytest.raises(BudgetError, match="planned 2 times"):
        run.charge(stage, 3)
    with pytest.raises(BudgetError, match="not the stage"):
        run.charge(dataclasses.replace(stage, scale=1.0), 1)
    assert len(run.ledger.history().entries) == before
    run.charge(stage, 2)
    with pytest.raises(BudgetError, match="1 more are refused"):
        run.charge(stage, 1)


def test_another_object_of_the_same_run_cannot_charge_again() -> None:
    run = start(Ledger(), sums(count=1))
    again = dataclasses.replace(run)
    run.charge(run.plan.stages[0])
    with pytest.raises(BudgetError, match="planned 1 times, used 1"):
        again.charge(run.plan.stages[0])
    again.close()
    with pytest.raises(BudgetError, match="closed"):
        run.charge(run.plan.stages[0])
    check_history(run.ledger.history())


def test_another_object_of_the_same_run_cannot_choose_again() -> None:
    run = start(Ledger(), choice())
    run.charge(COUNT)
    dataclasses.replace(run).choose("cheap", REASON)
    with pytest.raises(BudgetError, match="has chosen already"):
        run.choose("dear", REASON)
    check_history(run.ledger.history())


def test_threads_cannot_charge_past_the_plan(tmp_path: Path) -> None:
    run = start(Ledger(tmp_path / "ledger"), sums(count=2))
    begin, outcomes = threading.Barrier(8), []

    def charge() -> None:
        begin.wait()
        try:
            run.charge(run.plan.stages[0], 1)
            outcomes.append("charged")
        except BudgetError:
            outcomes.append("refused")

    threads = [threading.Thread(target=charge) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] * 2 + ["refused"] * 6
    assert len(run.ledger.history().of_run(run.identity, "charge")) == 2
    check_history(run.ledger.history())


def test_a_closed_run_takes_no_charge() -> None:
    run = start(Ledger())
    run.close()
    run.close()
    assert len(run.ledger.history().of_run(run.identity, "close")) == 1
    with pytest.raises(BudgetError, match="closed"):
        run.charge(run.plan.stages[0], 1)


def test_paper_mode_charges_the_honest_unit() -> None:
    stages = [Stage("aggregation", NeighborSum(), 2)]
    plan = Plan.make("toy", SIZES, units.DirectedEdge(), Budget(1.0, 1e-7), stages, paper="tightest")
    ledger = Ledger()
    run = carry_out(ledger, plan)
    opened = ledger.history().opened(run.identity)
    assert (opened["paper_mode"], opened["unit"], opened["claim"]["unit"]["name"]) == (
        True,
        EDGE.as_dict(),
        "directed-edge",
    )
    assert opened["claim"]["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert plan.epsilon == pytest.approx(1.45, abs=5e-3)
    assert ledger.total("data", EDGE).epsilon == pytest.approx(1.45, abs=5e-3)


def test_a_run_is_entered_with_who_why_and_how() -> None:
    ledger = Ledger().on(Occasion(operator="ann", purpose="a trial", command="train gap"))
    run = start(ledger)
    opened = ledger.history().opened(run.identity)
    assert (opened["operator"], opened["purpose"], opened["command"]) == ("ann", "a trial", "train gap")
    other = open_run(ledger, sums(), "data", seeded=False, operator="ben", purpose="")
    assert ledger.history().opened(other.identity)["operator"] == "ben"
    run.close(tensors_hash="abc")
    assert ledger.history().of_run(run.identity, "close")[0].values["tensors_hash"] == "abc"


def test_the_whole_plan_is_kept() -> None:
    ledger = Ledger()
    run = start(ledger)
    assert Plan.from_dict(ledger.history().opened(run.identity)["plan"]) == run.plan


def test_a_ledger_in_memory_says_so_unless_it_was_asked_not_to() -> None:
    with pytest.warns(InMemoryLedgerWarning, match="charges end with this process"):
        start(Ledger())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(Ledger.in_memory(warn=False))


def test_a_charge_is_on_the_disk_when_it_returns(tmp_path) -> None:
    run = start(Ledger(tmp_path / "book"))
    run.charge(run.plan.stages[0], 1)
    again = Ledger(tmp_path / "book").history()  # another object, as another process would have it
    assert len(again.of_run(run.identity, "charge")) == 1
    run.note_parallel(run.plan.stages[0], 3)
    assert Ledger(tmp_path / "book").history().of_run(run.identity, "parallel")[0].values["examples"] == 3


def test_a_charge_is_refused_where_it_would_not_be_on_the_disk_yet() -> None:
    run = start(Ledger())

    def charge_inside() -> None:
        with run.ledger.transaction():
            run.charge(run.plan.stages[0], 1)

    with pytest.raises(LedgerError, match="on the disk when it returns"):
        charge_inside()
    run.charge(run.plan.stages[0], 1)


def test_a_well_chained_ledger_with_an_unplanned_charge_is_still_refused() -> None:
    ledger = Ledger()
    run = start(ledger)
    run.charge(run.plan.stages[0], 1)
    check_history(ledger.history())
    forged = dict(ledger.history().of_run(run.identity, "charge")[0].values)
    ledger.append("charge", forged | {"scale": 99.0})
    with pytest.raises(LedgerError, match="does not fit its plan"):
        check_history(ledger.history())


def test_gradient_stages_cost_nothing_where_examples_are_public() -> None:
    stage = gradient_stage("g", 10, 1.0, 0.1)
    assert plan_of(stage, unit=EDGE).epsilon == 0.0
    assert plan_of(stage, unit=units.Node()).epsilon > 0.0


# A choice among branches


def test_a_plan_with_a_choice_costs_its_own_stages_and_the_costliest_branch() -> None:
    plan = choice()
    dear = plan.branch("dear").epsilon
    assert plan.epsilon == pytest.approx(0.25 + dear)
    assert [shown["method"] for shown in plan.as_dict()["branches"]] == ["cheap", "dear"]
    for chosen in ("cheap", "dear"):
        ledger = Ledger()
        run = open_run(ledger, plan, "data", seeded=False)
        run.charge(COUNT)
        run.charge(run.choose(chosen, REASON).stages[0])
        run.close()
        history = ledger.history()
        check_history(history)
        for loss in (spent(history, run.identity), spent(history)):
            assert loss.epsilon(DELTA) == pytest.approx(0.25 + dear)  # whichever was chosen
        assert ledger.total("data", NODE).epsilon == pytest.approx(0.25 + dear)
        assert spent(history, run.identity).delta(1.0) == pytest.approx(plan.loss.delta(1.0))


def test_the_total_takes_the_costliest_way_at_the_delta_that_is_asked() -> None:
    """A count costs the same at every delta, a Gaussian more at smaller ones: which way is dear depends on delta."""
    other = Stage("other count", EdgeCount(5), noise=None, scale=EdgeCount(5).whole_scale_within(1.2, NODE))
    flat = plan_of(other, unit=NODE, method="flat")
    curved = option("curved", "high", 12.0)
    assert curved.epsilon < flat.epsilon < curved.loss.epsilon(1e-12)
    for chosen in ("flat", "curved"):
        ledger = Ledger()
        run = open_run(ledger, choice(branches=(flat, curved)), "data", seeded=False)
        run.charge(COUNT)
        run.charge(run.choose(chosen, REASON).stages[0])
        run.close()
        assert ledger.total("data", NODE).epsilon == pytest.approx(0.25 + flat.epsilon)
        assert ledger.total("data", NODE, 1e-12).epsilon == pytest.approx(0.25 + curved.loss.epsilon(1e-12))


def test_many_runs_with_choices_add_up_and_stay_countable() -> None:
    ledger, worst = Ledger(), 0.0
    for number in range(8):
        cheap, dear = option("cheap", "low", 20.0 + number), option("dear", "high", 10.0 + number)
        open_run(ledger, choice(branches=(cheap, dear)), "data", seeded=False)
        worst += (NeighborSum().sensitivity(NODE) / (10.0 + number)) ** 2
        total = spent(ledger.history()).epsilon(DELTA) - 0.25 * (number + 1)
        together = PrivacyLoss(events.gaussian(worst**-0.5), NODE.relation).epsilon(DELTA)
        # never less than the dear way of every run; beyond 64 combinations both ways of a run are counted
        assert together * (1 - 1e-9) <= total
        assert number > 5 or total == pytest.approx(together)


def test_only_the_chosen_branch_can_be_charged_and_only_after_the_choice() -> None:
    run = open_run(Ledger(), choice(), "data", seeded=False)
    low, high = (one.stages[0] for one in run.plan.branches)
    with pytest.raises(InputError, match="no stage 'high'"):
        run.charge(high)
    with pytest.raises(BudgetError, match="before what the choice is made from"):
        run.choose("dear", REASON)
    run.charge(COUNT)
    with pytest.raises(InputError, match="no branch 'other'"):
        run.choose("other", REASON)
    run.choose("dear", REASON)
    with pytest.raises(BudgetError, match="has chosen already"):
        run.choose("cheap", REASON)
    with pytest.raises(InputError, match="no stage 'low'"):
        run.charge(low)
    run.charge(high)
    run.close()


def test_a_choice_that_could_exceed_the_limit_is_refused_before_anything_is_charged() -> None:
    plan = choice()
    ledger = Ledger()
    ledger.create("data", NODE.as_dict())
    ledger.set_limit(0.9 * plan.epsilon, DELTA, filter="basic")  # enough for the cheap branch alone
    assert 0.25 + plan.branch("cheap").epsilon < 0.9 * plan.epsilon
    with pytest.raises(BudgetError, match="Nothing was read"):
        open_run(ledger, plan, "data", seeded=False)
    assert ledger.history().runs() == []


@pytest.mark.parametrize("kind", ["basic", "gaussian", "renyi"])
def test_under_a_filter_a_choice_gives_back_the_way_it_did_not_take(kind: str) -> None:
    used = {}
    for chosen in ("cheap", "dear", None):
        ledger = Ledger()
        ledger.create("data", NODE.as_dict())
        ledger.set_limit(10.0, 10 * DELTA, unit=NODE, dataset="data", filter=kind)
        run = open_run(ledger, choice(), "data", seeded=False)
        reserved = ledger.total("data", NODE).used
        run.charge(COUNT)
        if chosen is not None:
            run.charge(run.choose(chosen, REASON).stages[0])
        run.close()
        check_history(ledger.history())
        used[chosen] = ledger.total("data", NODE).used
        assert run.certificate().epsilon == pytest.approx(run.plan.epsilon)  # the run's own promise covers both ways
        assert used["cheap"] < reserved if chosen == "cheap" else True
    assert used["dear"] == pytest.approx(reserved)
    assert used[None] < used["cheap"] < used["dear"]
    if kind == "basic":
        assert used["cheap"] == pytest.approx(0.25 + choice().branch("cheap").epsilon)


def test_what_a_choice_gives_back_lets_another_run_in() -> None:
    plan = choice()
    room = plan.epsilon + 0.25 + plan.branch("cheap").epsilon
    ledger = Ledger()
    ledger.create("data", NODE.as_dict())
    ledger.set_limit(room, 10 * DELTA, filter="basic")
    run = open_run(ledger, plan, "data", seeded=False)
    with pytest.raises(BudgetError, match="Nothing was read"):  # both could still take the dear way
        open_run(ledger, plan, "data", seeded=False)
    run.charge(COUNT)
    run.charge(run.choose("cheap", REASON).stages[0])
    run.close()
    open_run(ledger, plan, "data", seeded=False)
    check_history(ledger.history())


def test_a_choice_that_gives_back_too_much_or_without_a_filter_does_not_verify() -> None:
    for limited, factor in ((True, 0.5), (False, 1.0)):
        ledger = Ledger()
        ledger.create("data", NODE.as_dict())
        if limited:
            ledger.set_limit(10.0, 10 * DELTA, filter="basic")
        run = open_run(ledger, choice(), "data", seeded=False)
        run.charge(COUNT)
        run.charge(run.choose("cheap", REASON).stages[0])
        opened = run.prices[0]
        was = {name: opened[name] for name in ("epsilon", "delta", "cost", "cost_delta")}
        cheap = factor * (0.25 + choice().branch("cheap").epsilon)
        given = {**opened, "was": was, "epsilon": cheap, "cost": cheap if limited else 0.0}
        values = {"run": run.identity, "dataset": "data", "prices": [given], "charges": 2}
        ledger.append("close", {**values, "model_path": None, "weights_hash": None})
        with pytest.raises(LedgerError, match="gives back"):
            check_history(ledger.history())


def test_branches_need_a_proof() -> None:
    with pytest.raises(UnprovenError, match="pure epsilon only"):
        choice(stages=(sum_stage("count", 1, 50.0),))
    with pytest.raises(UnprovenError, match="pure epsilon only"):
        choice(stages=())
    for other in (option("dear", "high", 10.0, units.NodeReplace(5)), option("dear", "high", 10.0, delta=1e-7)):
        with pytest.raises(InputError, match="unit and delta of the plan"):
            choice(branches=(option("cheap", "low", 20.0), other))
    with pytest.raises(InputError, match="names of their own"):
        choice(branches=(option("same", "low", 20.0), option("same", "high", 20.0)))
    with pytest.raises(InputError, match="distinct stage names"):
        choice(branches=(option("cheap", "count", 20.0),))
    with pytest.raises(CalibrationError, match="over its budget"):
        choice(budget=Budget(0.3, DELTA)).require_within_budget()


@pytest.mark.parametrize("entries", [["other"], ["cheap", "dear"]])
def test_a_ledger_with_a_choice_that_was_not_planned_does_not_verify(entries: list[str]) -> None:
    ledger = Ledger()
    run = open_run(ledger, choice(), "data", seeded=False)
    for entry in entries:
        ledger.append("choice", {"run": run.identity, "option": entry, "reason": REASON.as_dict()})
    with pytest.raises(LedgerError, match="a choice does not fit"):
        check_history(ledger.history())
