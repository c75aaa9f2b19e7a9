from __future__ import annotations

import json
import math

import pytest

from hushgraph.audit.result import AuditResult, Bound, Finding, Reason, Skipped, Verdict


def result(*findings: Finding, skipped: tuple[Skipped, ...] = ()) -> AuditResult:
    return AuditResult("gap", "node", "node", 2.0, 1e-5, 0.95, findings, skipped, "r1")


GOOD = Finding(Bound.GAUSSIAN, ("sums",), 2.0, 1.5, 1.2, 1000, "node")
BAD = Finding(Bound.CURVE, ("sums", "steps"), 2.0, 3.0, 2.5, 1000)


def test_the_verdict_needs_the_strict_bound() -> None:
    lucky = Finding(Bound.GAUSSIAN, ("sums",), 2.0, 2.1, 1.9, 1000, "node")
    assert result(lucky).verdict is Verdict.CONSISTENT
    assert "above the claim, as 5% of such bounds may be" in result(lucky).sentence()
    assert "above the claim" not in result(GOOD).sentence()
    assert result(GOOD, BAD).verdict is Verdict.CONTRADICTED
    assert result().verdict is Verdict.NOTHING


def test_the_first_finding_stands_for_the_run() -> None:
    assert result(GOOD, BAD).lower_bound == 1.5
    assert result().lower_bound == 0.0


def test_codes_and_numbers_are_beside_the_words() -> None:
    values = result(GOOD, skipped=(Skipped(Reason.NO_CANARY, "other"),)).as_dict()
    assert values["verdict"] == "consistent"
    assert values["findings"][0] == {
        "bound": "gaussian",
        "stages": ["sums"],
        "claimed": 2.0,
        "lower_bound": 1.5,
        "strict_bound": 1.2,
        "canaries": 1000,
        "planted": "node",
        "parts": 1,
        "contradicts": False,
        "name": "node canaries in 'sums'",
        "method": "Gaussian trade-off",
    }
    assert values["skipped"] == [
        {"reason": "no-canary", "stage": "other", "sentence": "no canaries are known for the stage 'other'"}
    ]
    assert values["sentence"] == result(GOOD, skipped=(Skipped(Reason.NO_CANARY, "other"),)).sentence()


def test_infinite_bounds_can_be_written() -> None:
    worst = Finding(Bound.EPSILON_ON_RECORD, ("sums",), 2.0, math.inf, math.inf)
    assert json.loads(json.dumps(result(worst).as_dict(), allow_nan=False))["lower_bound"] == "inf"


@pytest.mark.parametrize("bound", list(Bound))
def test_every_bound_has_words(bound: Bound) -> None:
    finding = Finding(bound, ("sums",), 2.0, 3.0, 3.0, 10, "edge", 7)
    assert finding.name
    assert "{" not in finding.method
    assert finding.method in result(finding).sentence()


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words(reason: Reason) -> None:
    words = str(Skipped(reason, "sums"))
    assert words
    assert "{" not in words
    assert words in result(skipped=(Skipped(reason, "sums"),)).sentence()


def test_the_sentence_names_the_worst_finding_and_what_was_left_out() -> None:
    words = result(GOOD, BAD, skipped=(Skipped(Reason.BRANCH, "chorus"),)).sentence()
    assert words.startswith("CONTRADICTED: claimed epsilon 2 (node, delta 1e-05)")
    assert "(own trade-off curve): at least 2.5, claimed 2" in words
    assert "all audited stages together, " in words
    assert "NOT AUDITED: 'chorus' is a branch" in words
