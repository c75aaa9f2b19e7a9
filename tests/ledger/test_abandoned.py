from __future__ import annotations

import pytest

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.abandoned import close_abandoned
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import check_history, open_run
from toy_plans import COUNT, DELTA, EDGE, NODE, choice, sums

STOPPED = Occasion(operator="ann", purpose="the machine was switched off")


@pytest.mark.parametrize("limited", [False, True])
def test_only_what_was_charged_counts_and_nothing_more_can_be(limited: bool) -> None:
    ledger = Ledger()
    ledger.create("data", EDGE.as_dict())
    if limited:
        ledger.set_limit(9.0, DELTA)
    run = open_run(ledger, sums(count=10), "data", seeded=False)
    run.charge(run.plan.stages[0], 1)
    found = close_abandoned(ledger.on(STOPPED), run.identity[:8])
    assert found["abandoned"]["operator"] == "ann"
    assert ledger.total("data", EDGE).used == pytest.approx(sums(count=1).epsilon)
    with pytest.raises(BudgetError, match="closed by somebody else"):
        run.charge(run.plan.stages[0], 1)  # it was not gone after all
    run.close()
    assert len(ledger.history().of_kind("close")) == 1
    check_history(ledger.history())


def test_a_run_that_chose_keeps_its_whole_price() -> None:
    ledger = Ledger()
    run = open_run(ledger, choice(), "data", seeded=False)
    run.charge(COUNT)
    before = ledger.total("data", NODE).epsilon
    close_abandoned(ledger.on(STOPPED), run.identity)
    assert ledger.total("data", NODE).epsilon == before
    check_history(ledger.history())


def test_a_reason_and_an_open_run_are_needed() -> None:
    ledger = Ledger()
    run = open_run(ledger, sums(), "data", seeded=False)
    with pytest.raises(InputError, match="expected why the run is closed"):
        close_abandoned(ledger, run.identity)
    run.close()
    with pytest.raises(InputError, match="is closed already"):
        close_abandoned(ledger.on(STOPPED), run.identity)
