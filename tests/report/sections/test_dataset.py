from __future__ import annotations

import math

from hushgraph.ledger.certificate import DatasetTotal
from hushgraph.report.context import DatasetRun, DatasetState
from reports import context, shown


def state(*runs: DatasetRun, used: float | None = None, left_out: int = 0) -> DatasetState:
    total = DatasetTotal(6.0, 2e-5, "basic composition", True, len(runs), 8.0)
    return DatasetState("toy", "node", total, runs, used, left_out)


MINE = DatasetRun("0123456789abcdef", "gap", "node", 4.0, 1e-5, True, True, "2026-01-02", "ann@lab", "<first try>")
FREE = DatasetRun("00", "gcn", "node", math.inf, 1e-5, True, True)
SEEDED = DatasetRun("11", "gap", "node", 4.0, 1e-5, True, False)


def test_runs_are_shown_with_who_when_and_why() -> None:
    page = shown("dataset", context(dataset=state(MINE, FREE, SEEDED)))
    for part in ("ann@lab", "2026-01-02", "&lt;first try&gt;", "this run", "infinite", "not private", "limit 8"):
        assert part in page
    assert "adding up epsilons and deltas" in page
    assert page.count("<tr>") == 4


def test_a_total_of_the_ledger_replaces_that_of_the_certificate_everywhere() -> None:
    about = context(dataset=state(MINE, FREE))
    for name in ("claim", "dataset", "nist"):
        assert "2 runs" in shown(name, about)
        assert "2 runs" not in shown(name, context())


def test_a_long_list_is_cut_and_says_so() -> None:
    page = shown("dataset", context(dataset=state(*[FREE] * 250)))
    assert page.count("<tr>") == 201
    assert "50 earlier runs are in the ledger" in page


def test_what_a_filter_has_used_and_what_is_left_out_are_said() -> None:
    page = shown("dataset", context(dataset=state(MINE, used=3.5, left_out=2)))
    assert "used epsilon 3.5 of the limit" in page
    assert "Not counted: 2 runs declared unpublished" in page
    assert "used epsilon" not in shown("dataset", context(dataset=state(MINE)))
