"""Measures of how well a model does. All of them look at true labels: an evaluation, outside any guarantee."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]


def accuracy(truth: Numbers, predicted: Numbers) -> float:
    """The share of right answers, in percent."""
    return 100.0 * float(np.mean(truth == predicted))


def balanced_accuracy(truth: Numbers, predicted: Numbers) -> float:
    """The mean over classes that occur of the share of right answers, in percent."""
    return float(np.mean([accuracy(truth[truth == one], predicted[truth == one]) for one in np.unique(truth)]))


def micro_f1(truth: Numbers, predicted: Numbers) -> float:
    """F1 over all decisions together, in percent: of classes, or of 0/1 indicators `[items, labels]`.

    With one class each it equals the accuracy.
    """
    if truth.ndim == 1:
        return accuracy(truth, predicted)
    hits = float(np.sum((truth == 1) & (predicted == 1)))
    return 100.0 * 2.0 * hits / max(float(np.sum(truth == 1) + np.sum(predicted == 1)), 1.0)


def auc(truth: Numbers, scores: Numbers) -> float | None:
    """The area under the ROC curve in percent: of one score, or the mean over classes against the rest.

    `scores` is `[items]` for 0/1 truth, or `[items, classes]`. None where no class has both members and others.
    """
    if scores.ndim == 2 and scores.shape[1] == 2:
        truth, scores = (truth == 1).astype(int), scores[:, 1]
    if scores.ndim == 1:
        return _area(truth == 1, scores)
    areas = [_area(truth == one, scores[:, one]) for one in range(scores.shape[1])]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def _area(positive: Numbers, scores: Numbers) -> float | None:
    """The share of pairs in the right order, ties as half."""
    from scipy.stats import rankdata

    members, others = int(positive.sum()), int((~positive).sum())
    if not members or not others:
        return None
    ranks = rankdata(scores)
    return 100.0 * float(ranks[positive].sum() - members * (members + 1) / 2) / (members * others)


def rmse(truth: Numbers, predicted: Numbers) -> float:
    """The root of the mean squared difference."""
    return float(np.sqrt(np.mean((truth.astype(np.float64) - predicted.astype(np.float64)) ** 2)))


def recall_at(truth: Numbers, scores: Numbers, k: int) -> float | None:
    """The mean share of the relevant items among the k with the highest scores, in percent; `[queries, items]` 0/1.

    Queries without a relevant item are left out.
    """
    asked = truth.sum(axis=1) > 0
    if not asked.any():
        return None
    best = np.argsort(-scores[asked], axis=1, kind="stable")[:, :k]
    hits = np.take_along_axis(truth[asked], best, axis=1).sum(axis=1)
    return 100.0 * float(np.mean(hits / truth[asked].sum(axis=1)))


def of_classes(scores: Numbers, truth: Numbers, prefix: str) -> dict[str, float | None]:
    """All measures of class scores `[items, classes]`; nothing where there is nobody to test on."""
    if not len(truth):
        return {}
    predicted, classes = scores.argmax(axis=1), scores.shape[1]
    return {
        f"{prefix}_accuracy": accuracy(truth, predicted),
        f"{prefix}_balanced_accuracy": balanced_accuracy(truth, predicted),
        f"{prefix}_micro_f1": micro_f1(truth, predicted),
        f"{prefix}_auc": auc(truth, scores),
        f"{prefix}_recall_at_3": recall_at(np.eye(classes)[truth], scores, 3) if classes > 3 else None,
    }


def of_labels(scores: Numbers, truth: Numbers, prefix: str) -> dict[str, float | None]:
    """The measures of scores of several classes a node, above 0 where it has one; `truth` is 0/1 `[items, classes]`."""
    if not len(truth):
        return {}
    areas = [_area(truth[:, one] == 1, scores[:, one]) for one in range(truth.shape[1])]
    known = [area for area in areas if area is not None]
    return {
        f"{prefix}_micro_f1": micro_f1(truth, (scores > 0).astype(int)),
        f"{prefix}_auc": float(np.mean(known)) if known else None,
    }
