"""The first screen says no more than the run, its loss and its ledger do."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from hushgraph.ledger.certificate import Randomness
from hushgraph.privacy.tradeoff import best_guess, detection_rate
from hushgraph.report.context import read_context
from hushgraph.text import rounded_up
from reports import context, fitted, shown


def test_figures_follow_from_the_loss() -> None:
    about = context(verification="verified")
    assert about.loss is not None
    page = shown("verdict", about)
    assert f"at most {rounded_up(100 * best_guess(about.loss), 3)} are right" in page
    assert f"at most {rounded_up(100 * detection_rate(about.loss, 0.01), 2)} of 100;" in page
    assert f"at most {rounded_up(100 * detection_rate(about.loss, 0.001), 2)} of 100." in page


@pytest.mark.parametrize(("epsilon", "words"), [(0.2, "Well"), (4.0, "Fairly"), (10.0, "Weakly"), (40.0, "Hardly")])
def test_the_strength_is_that_of_the_best_guess(epsilon: float, words: str) -> None:
    about = read_context(fitted("gap", "undirected-edge", epsilon))
    assert f"{words} protected" in shown("verdict", about)


def test_what_was_not_verified_is_not_called_good() -> None:
    good = re.compile(r'banner good"')
    assert not good.search(shown("verdict", read_context(fitted("gap", "undirected-edge", 0.2))))
    assert good.search(
        shown("verdict", replace(read_context(fitted("gap", "undirected-edge", 0.2)), verification="verified"))
    )


@pytest.mark.parametrize(
    ("state", "words"), [("contradicted", "is not what the ledger says"), ("rejected", "rejected")]
)
def test_what_may_not_be_relied_on(state: str, words: str) -> None:
    page = shown("verdict", context(verification=state, headline="Rejected by A"))
    assert "Do not rely on this model" in page
    assert words in page
    assert "protected:" not in page


def test_runs_without_protection_promise_nothing() -> None:
    seeded = context()
    seeded = replace(seeded, certificate=replace(seeded.certificate, randomness=Randomness.SEEDED))
    for about in (context(epsilon=math.inf), seeded):
        page = shown("verdict", about)
        assert "This model protects nothing" in page
        assert "guesses" not in page
    assert "again without a seed" in shown("verdict", seeded)


def test_a_run_that_reads_nothing_private() -> None:
    assert "Nothing in this model depends on" in shown("verdict", context(epsilon=0.0))
