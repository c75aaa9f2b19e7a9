from __future__ import annotations

import math

from hushgraph.report.context import DatasetRun, DatasetState
from reports import context, shown


def state(*runs: DatasetRun, **changes: object) -> DatasetState:
    values = {"epsilon": 6.0, "delta": 2e-5, "kind": "basic composition", "private": True, "limit": 8.0, **changes}
    return DatasetState(name="toy", unit="node", runs=runs, **values)  # type: ignore[arg-type]


MINE = DatasetRun("0123456789abcdef", "gap", "node", 4.0, 1e-5, "closed", True, "2026-01-02", "ann@lab", "<first try>")
FREE = DatasetRun("00", "gcn", "node", math.inf, 1e-5, "closed", True)
SEEDED = DatasetRun("11", "gap", "node", 4.0, 1e-5, "closed", False)


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
