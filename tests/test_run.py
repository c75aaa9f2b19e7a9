from __future__ import annotations

import dataclasses

import pytest

from hushgraph import units
from hushgraph.accounting.plan import AggregationStage, GradientStage, Plan
from hushgraph.budget import Budget
from hushgraph.errors import BudgetError, LedgerError
from hushgraph.ledger import Ledger
from hushgraph.run import Run, check_history, open_run, spent, statement

UNIT = units.UndirectedEdge()
DELTA = 1e-6


def make_plan(std: float = 20.0, count: int = 2) -> Plan:
    return Plan("toy", UNIT, Budget(5.0, DELTA), (AggregationStage("aggregation", count, std),), UNIT)


def start(ledger: Ledger, plan: Plan | None = None) -> Run:
    return open_run(ledger, plan or make_plan(), "data", seeded=False)


def test_an_open_run_counts_as_its_whole_plan_and_a_closed_one_as_its_charges() -> None:
    ledger = Ledger()
    run = start(ledger)
    whole = make_plan().provable_epsilon
    assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(whole)
    run.charge(run.plan.stages[0], 1)
    assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(whole)
    run.close()
    assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(make_plan(count=1).provable_epsilon)


def test_two_runs_on_one_dataset_compose() -> None:
    ledger = Ledger()
    for _ in range(2):
        run = start(ledger)
        run.charge(run.plan.stages[0])
        run.close()
    assert spent(ledger.history()).epsilon(DELTA) == pytest.approx(make_plan(count=4).provable_epsilon)


def test_only_what_was_planned_can_be_charged() -> None:
    run = start(Ledger())
    stage = run.plan.stages[0]
    before = len(run.ledger.history().entries)
    with pytest.raises(BudgetError, match="planned 2 times"):
        run.charge(stage, 3)
    with pytest.raises(BudgetError, match="not the stage"):
        run.charge(dataclasses.replace(stage, std=1.0), 1)
    assert len(run.ledger.history().entries) == before
    run.charge(stage, 2)
    with pytest.raises(BudgetError, match="1 more are refused"):
        run.charge(stage, 1)


def test_a_closed_run_takes_no_charge() -> None:
    run = start(Ledger())
    run.close()
    with pytest.raises(BudgetError, match="closed"):
        run.charge(run.plan.stages[0], 1)


def test_the_limit_of_the_dataset_is_enforced_before_anything_is_read() -> None:
    ledger = Ledger()
    ledger.create("data", UNIT.as_dict())
    one = make_plan().provable_epsilon
    ledger.set_limit(one * 1.2, DELTA)
    start(ledger).close()  # charged nothing: all of it is free again
    run = start(ledger)
    run.charge(run.plan.stages[0])
    run.close()
    before = len(ledger.history().entries)
    with pytest.raises(BudgetError, match="refused: the dataset's limit"):
        start(ledger)
    assert len(ledger.history().entries) == before


def test_paper_mode_charges_the_honest_unit() -> None:
    stated = units.DirectedEdge()
    stages = (AggregationStage("aggregation", 2, 6.617),)
    plan = Plan("toy", stated, Budget(1.01, 1e-7), stages, UNIT, paper_mode=True)
    ledger = Ledger()
    run = open_run(ledger, plan, "data", seeded=False)
    run.charge(stages[0])
    run.close()
    assert plan.epsilon == pytest.approx(1.0, abs=1e-3)
    assert spent(ledger.history()).epsilon(1e-7) == pytest.approx(1.45, abs=5e-3)


def test_a_statement_lists_runs_and_the_total() -> None:
    ledger = Ledger()
    run = start(ledger)
    run.charge(run.plan.stages[0], 1)
    found = statement(ledger.history())
    assert found["runs"][0]["state"].startswith("open")
    run.close()
    found = statement(ledger.history())
    assert found["runs"][0]["state"] == "closed"
    assert found["total"]["epsilon"] == pytest.approx(found["runs"][0]["epsilon"])


def test_a_well_chained_ledger_with_an_unplanned_charge_is_still_refused() -> None:
    ledger = Ledger()
    run = start(ledger)
    run.charge(run.plan.stages[0], 1)
    check_history(ledger.history())
    forged = dict(ledger.history().of_run(run.identity, "charge")[0].values)
    for name in ("kind", "number", "time", "previous", "hash"):
        forged.pop(name)
    ledger.append("charge", forged | {"std": 99.0})
    with pytest.raises(LedgerError, match="does not fit its plan"):
        check_history(ledger.history())


def test_gradient_stages_cost_nothing_where_examples_are_public() -> None:
    stage = GradientStage("g", 10, 1.0, 1.0, 0.1)
    assert Plan("toy", UNIT, Budget(1.0, DELTA), (stage,), UNIT).epsilon == 0.0
    assert Plan("toy", units.Node(), Budget(20.0, DELTA), (stage,), units.Node()).epsilon > 0.0
