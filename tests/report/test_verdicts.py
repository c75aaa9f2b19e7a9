from __future__ import annotations

import math
from typing import Any

import pytest

from hushgraph.audit.result import AuditResult, Finding
from hushgraph.report.verdicts import audit


def shown(*findings: Finding, skipped: tuple[str, ...] = ()) -> str:
    result = AuditResult("gap", "node", "node", 4.0, 1e-5, 0.95, findings, skipped)
    return audit(result.as_dict())


@pytest.mark.parametrize(
    ("strict", "words"), [(3.0, "No contradiction found"), (5.0, "CONTRADICTED"), (math.inf, "CONTRADICTED")]
)
def test_the_verdict_is_said_in_words(strict: float, words: str) -> None:
    assert words in shown(Finding("canaries", "Gaussian trade-off", 1000, 4.0, 3.5, strict))


def test_an_infinite_bound_is_in_the_table() -> None:
    page = shown(Finding("canaries", "Gaussian trade-off", 1000, 4.0, math.inf, math.inf))
    assert '<td class="n">inf</td>' in page


def test_nothing_audited_is_not_called_consistent() -> None:
    page = shown(skipped=("the run claims no protection",))
    assert "Nothing was audited" in page
    assert "No contradiction" not in page
    assert "the run claims no protection" in page


def test_stages_that_were_left_out_are_listed() -> None:
    page = shown(Finding("canaries", "x", 0, 4.0, 3.5, 3.0), skipped=("no canaries are known for the stage 'new'",))
    assert "Not audited" in page
    assert "stage &#x27;new&#x27;" in page


def test_one_bar_for_each_kind_of_canary_the_contradicted_first() -> None:
    findings = [Finding("edges", f"bound {n}", 10, 4.0, low, low) for n, low in enumerate((3.0, 2.0, 6.0))]
    page = shown(*findings, Finding("nodes", "bound", 10, 4.0, 1.0, 1.0))
    assert page.count('class="bar"') == 2
    assert "6 of 4" in page


def test_a_run_that_was_not_audited_says_so() -> None:
    nothing: dict[str, Any] | None = None
    assert "was not audited" in audit(nothing)
