from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hushgraph.ledger.certificate import Randomness
from hushgraph.privacy.notes import Code, note
from reports import context, shown


@pytest.mark.parametrize(
    ("verification", "words", "kind"),
    [
        (None, "not verified", "warn"),
        ("not verified", "not verified", "warn"),
        ("verified", "verified against the ledger", "good"),
        ("contradicted", "contradicted by the ledger", "bad"),
    ],
)
def test_a_claim_is_as_good_as_its_verification(verification: str | None, words: str, kind: str) -> None:
    assert f'<span class="pill {kind}">{words}</span>' in shown("claim", context(verification=verification))


def test_the_best_guess_follows_from_the_loss() -> None:
    about = context()
    assert about.loss is not None
    assert f"{50 * (1 + about.loss.delta(0.0)):.1f}%" in shown("claim", about)


def test_a_seeded_run_promises_no_guess() -> None:
    about = context()
    seeded = replace(about, certificate=replace(about.certificate, randomness=Randomness.SEEDED))
    page = shown("claim", seeded)
    for part in ("seeded run: not private", "∞", "with noise that was not seeded it would be 4"):
        assert part in page
    for part in ("best possible guess", 'id="delta"'):
        assert part not in page
    assert "4 (seeded)" in shown("accuracy", seeded)


def test_no_protection_and_a_choice_are_said() -> None:
    page = shown("claim", context(epsilon=math.inf, reason=note(Code.CHOSE_LABELS, method="chorus")))
    assert "∞" in page
    assert "no guarantee" in page
    assert "Chosen by rule: chorus" in page
    assert 'id="delta"' not in page
