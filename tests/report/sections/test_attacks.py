from __future__ import annotations

import math
from typing import Any

from reports import context, shown

SCORED: dict[str, Any] = {
    "name": "LinkTeller",
    "target": "gap",
    "assumes": "sends features",
    "auc": 0.51,
    "auc_low": 0.5,
    "auc_high": 0.52,
    "balanced_accuracy": 0.505,
    "tpr_at": {"0.01": {"value": 0.1, "low": 0.08, "high": 0.12}, "0.001": None},
    "roc": {"fpr": [0.0, 0.001, 0.01, 1.0], "tpr": [0.0, 0.01, 0.1, 1.0]},
}


def test_figures_have_their_intervals_and_the_mark_of_an_evaluation() -> None:
    page = shown("attacks", context(attacks=(SCORED,)))
    for part in ("0.510", "[0.500, 0.520]", "10.00%", "too few", "sends features", "Not private: evaluation"):
        assert part in page


def test_the_limit_of_the_guarantee_is_drawn_where_there_is_one() -> None:
    page = shown("attacks", context(attacks=(SCORED,)))
    assert "most that the guarantee allows" in page
    assert "A curve above it does not contradict" in page
    without = shown("attacks", context(epsilon=math.inf, attacks=(SCORED,)))
    assert "guarantee allows" not in without
    assert "A curve above it" not in without


def test_without_attacks_nothing_is_concluded() -> None:
    page = shown("attacks", context())
    assert "No attack was run" in page
    assert "proves nothing" in page
    assert "<svg" not in page


def test_pictures_are_shown_only_when_they_are_inside_the_page() -> None:
    attack = {
        "name": "model inversion",
        "target": "m",
        "figures": {"classes closer": "10 of 10", "distance": 0.123456},
        "pictures": {"inside": "data:image/png;base64,AAAA", "outside": "file:///etc/hostname"},
        "grids": {"classes 0 to 1": {"original": "data:image/png;base64,BBBB", "enhanced": "file:///etc/hostname"}},
        "distances": {"ssim": {"original": [0.91, 0.82], "enhanced": [0.43, 0.34]}},
    }
    page = shown("attacks", context(attacks=(attack,)))
    for part in ("base64,AAAA", "base64,BBBB", "m: classes 0 to 1", "0.43", "1 - SSIM", "10 of 10", "0.1235"):
        assert part in page
    assert "hostname" not in page
