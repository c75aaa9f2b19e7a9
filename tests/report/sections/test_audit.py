from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest

from hushgraph.ledger.certificate import Randomness
from reports import context, shown


def finding(name: str = "canaries", bound: float = 3.5, contradicts: bool = False, **changes: Any) -> dict[str, Any]:
    values = {"name": name, "method": "Gaussian trade-off", "canaries": 1000, "claimed": 4.0, "lower_bound": bound}
    return {**values, "contradicts": contradicts, **changes}


def page_of(*findings: dict[str, Any], skipped: tuple[Any, ...] = (), verdict: str = "consistent") -> str:
    found = {"verdict": verdict, "confidence": 0.95, "ran_on": "On data made for it.", "skipped": list(skipped)}
    return shown("audit", context(audit={**found, "findings": list(findings)}))


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("consistent", "No contradiction found"), ("contradicted", "CONTRADICTED"), ("nothing to audit", "Nothing was")],
)
def test_the_verdict_is_said_in_words(verdict: str, words: str) -> None:
    page = page_of(verdict=verdict)
    assert words in page
    assert ("No contradiction" in page) == (verdict == "consistent")


def test_a_seeded_run_is_called_not_private() -> None:
    seeded = dataclasses.replace(context().certificate, randomness=Randomness.SEEDED)
    page = shown("audit", context(audit={"verdict": "consistent"}, certificate=seeded))
    assert "NOT PRIVATE: the noise of this run was seeded" in page
    assert "NOT PRIVATE" not in page_of()


def test_an_infinite_bound_is_in_the_table() -> None:
    page = page_of(finding(bound=math.inf, contradicts=True), verdict="contradicted")
    assert re.search(r'<td class="n"[^>]*>inf</td>', page)
    assert "<svg" not in page


def test_stages_that_were_left_out_are_listed_and_escaped() -> None:
    words = "no canaries are known for the stage 'new'"
    for skipped in (words, {"reason": "no-canary", "stage": "new", "sentence": words}):
        page = page_of(finding(), skipped=(skipped,))
        assert "Not audited" in page
        assert "<li>no canaries are known for the stage &#39;new&#39;</li>" in page


def test_one_bar_for_each_kind_of_canary_the_contradicted_first() -> None:
    edges = [finding("edges", bound, bound > 4.0) for bound in (3.0, 2.0, 6.0)]
    page = page_of(*edges, finding("nodes", 1.0), verdict="contradicted")
    assert page.count('class="bar"') == 2
    assert "6 of 4" in page
    assert "confidence 95%" in page


def test_a_run_that_was_not_audited_says_so() -> None:
    page = shown("audit", context())
    assert "was not audited" in page
    assert "was not audited" in shown("nist", context())


def test_the_checklist_follows_the_verdict() -> None:
    for verdict, words in (("consistent", "mechanisms were audited"), ("contradicted", "An audit contradicted")):
        assert words in shown("nist", context(audit={"verdict": verdict}))


def test_a_bound_above_the_claim_that_contradicts_nothing_is_explained() -> None:
    words = "above the claim, as 5% of such bounds may be"
    assert words in page_of(finding(bound=4.01))
    assert words not in page_of(finding(bound=3.99))
    assert words not in page_of(finding(bound=6.0, contradicts=True), verdict="contradicted")
