"""Measures against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as known

from hushgraph.study import metrics

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 3, 60)
SCORES = RNG.normal(size=(60, 3)) + np.eye(3)[TRUTH]
PREDICTED = SCORES.argmax(axis=1)


def test_measures_of_classes() -> None:
    found = metrics.of_classes(SCORES, TRUTH, "test")
    assert found["test_accuracy"] == pytest.approx(100 * known.accuracy_score(TRUTH, PREDICTED))
    assert found["test_balanced_accuracy"] == pytest.approx(100 * known.balanced_accuracy_score(TRUTH, PREDICTED))
    assert found["test_micro_f1"] == pytest.approx(100 * known.f1_score(TRUTH, PREDICTED, average="micro"))
    areas = [known.roc_auc_score(one == TRUTH, SCORES[:, one]) for one in range(3)]
    assert found["test_auc"] == pytest.approx(100 * np.mean(areas))
    assert metrics.of_classes(SCORES[:0], TRUTH[:0], "test") == {}


def test_measures_of_two_classes_with_ties_and_of_one_class_alone() -> None:
    truth, scores = TRUTH % 2, np.round(SCORES[:, :2], 1)
    assert metrics.auc(truth, scores) == pytest.approx(100 * known.roc_auc_score(truth, scores[:, 1]))
    assert metrics.auc(np.zeros(4, dtype=int), np.zeros((4, 2))) is None


def test_micro_f1_of_several_labels_at_once() -> None:
    truth, predicted = RNG.integers(0, 2, (20, 5)), RNG.integers(0, 2, (20, 5))
    assert metrics.micro_f1(truth, predicted) == pytest.approx(100 * known.f1_score(truth, predicted, average="micro"))


def test_errors_and_recall() -> None:
    assert metrics.rmse(np.array([1, 2]), np.array([1, 4])) == pytest.approx(2**0.5)
    truth = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    scores = np.array([[4.0, 3, 2, 1], [1, 2, 3, 4], [4, 3, 2, 1]])
    assert metrics.recall_at(truth, scores, 1) == pytest.approx(25.0)
    assert metrics.recall_at(truth, scores, 2) == pytest.approx(75.0)
    assert metrics.recall_at(truth[1:2], scores[1:2], 2) is None


def test_the_true_class_among_the_three_likeliest_is_recalled() -> None:
    truth, scores = RNG.integers(0, 6, 80), RNG.normal(size=(80, 6))
    found = metrics.of_classes(scores, truth, "test")["test_recall_at_3"]
    assert found == pytest.approx(100 * known.top_k_accuracy_score(truth, scores, k=3, labels=range(6)))
    assert metrics.of_classes(scores[:, :3], truth % 3, "test")["test_recall_at_3"] is None
