from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from hushgraph.attacks.analysis import analyze, auc_interval, balanced_accuracy, tpr_at
from hushgraph.attacks.base import AttackScores
from hushgraph.errors import InputError


def scored(scores: np.ndarray, truth: np.ndarray) -> AttackScores:
    return AttackScores("a", "t", "nothing", scores, truth)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=4, max_size=60))
def test_area_and_curve_agree_with_their_definitions_ties_included(rows: list[tuple[int, bool]]) -> None:
    scores, truth = np.array([row[0] for row in rows], dtype=float), np.array([row[1] for row in rows])
    assume(truth.sum() >= 2 and (~truth).sum() >= 2)
    found = analyze(scored(scores, truth))
    assert found.auc.value == pytest.approx(roc_auc_score(truth, scores))
    points = {(0.0, 0.0)} | {
        (float((scores[~truth] >= level).mean()), float((scores[truth] >= level).mean())) for level in scores
    }
    assert np.allclose(sorted(zip(found.fpr, found.tpr, strict=True)), sorted(points), atol=1e-12)


def test_the_interval_of_the_area_covers_the_truth_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        truth = np.arange(200) < 100
        found = auc_interval(rng.standard_normal(200) + 0.5 * truth, truth)
        covered += found.low <= 0.6382 <= found.high  # Phi(0.5 / sqrt 2)
    assert 270 <= covered <= 298  # Binomial(300, 0.95): outside with probability below 1e-3


def test_low_rates_are_read_off_the_curve_or_left_out() -> None:
    fpr, tpr = np.array([0.0, 0.005, 0.02, 1.0]), np.array([0.1, 0.3, 0.6, 1.0])
    found = tpr_at(fpr, tpr, 0.01, 1000, 1000)
    assert found is not None
    assert found.value == 0.3
    assert found.low < 0.3 < found.high
    assert tpr_at(fpr, tpr, 0.001, 1000, 500) is None
    nothing = tpr_at(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.01, 100, 100)
    assert nothing is not None
    assert (nothing.value, nothing.low) == (0.0, 0.0)
    assert nothing.high == pytest.approx(1 - 0.025 ** (1 / 100))  # Clopper-Pearson


def test_chance_is_half_and_certainty_is_one() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random(4000) < 0.5
    assert balanced_accuracy(rng.random(4000), truth) == pytest.approx(0.5, abs=0.05)
    assert balanced_accuracy(truth + 0.1 * rng.random(4000), truth) > 0.999
    assert balanced_accuracy(np.zeros(4000), truth) == 0.5
    assert balanced_accuracy(np.arange(4.0), np.array([False, False, False, True])) == 0.5  # one half has no truth


def test_an_analysis_is_plain_json_of_a_bounded_size() -> None:
    rng = np.random.default_rng(2)
    truth = rng.random(20_000) < 0.5
    found = analyze(scored(rng.standard_normal(20_000) + truth, truth))
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert len(values["roc"]["fpr"]) < 200
    assert (values["roc"]["fpr"][0], values["roc"]["tpr"][-1]) == (0.0, 1.0)
    assert "AUC 0.7" in str(found)
    assert values["note"] == "not private: evaluation"
    assert "not private: evaluation" in str(found)


def test_one_sided_or_broken_scores_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2"):
        analyze(scored(np.zeros(5), np.ones(5, dtype=bool)))
    with pytest.raises(InputError, match="finite"):
        scored(np.array([np.nan, 1.0]), np.array([True, False]))
    with pytest.raises(InputError, match="one per guess"):
        scored(np.zeros(3), np.array([True, False]))
