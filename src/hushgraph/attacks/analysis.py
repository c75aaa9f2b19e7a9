"""From scores and truth to figures: ROC, AUC, true-positive rates at low false-positive rates, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_curve

from hushgraph.attacks.base import AttackScores
from hushgraph.errors import InputError
from hushgraph.methods.evaluation import EVALUATION

LOW_RATES = (0.01, 0.001)
_CURVE_POINTS = 120
_FEWEST_ALARMS = 1.0


@dataclass(frozen=True)
class Rate:
    """A rate with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Analysis:
    """The figures of one attack, computed on private data: an evaluation, which is not private itself.

    A rate is None where there are too few negatives to measure it.
    """

    attack: str
    target: str
    assumes: str
    auc: Rate
    balanced_accuracy: float
    tpr_at: dict[str, Rate | None]
    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    positives: int
    negatives: int
    details: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, in the form that reports read."""
        return {
            "name": self.attack,
            "target": self.target,
            "note": EVALUATION,
            "assumes": self.assumes,
            "auc": self.auc.value,
            "auc_low": self.auc.low,
            "auc_high": self.auc.high,
            "balanced_accuracy": self.balanced_accuracy,
            "tpr_at": {key: None if rate is None else vars(rate) for key, rate in self.tpr_at.items()},
            "roc": {"fpr": list(self.fpr), "tpr": list(self.tpr)},
            "positives": self.positives,
            "negatives": self.negatives,
            "details": self.details,
        }

    def __str__(self) -> str:
        low = ", ".join(
            f"TPR {100 * rate.value:.2f}% at FPR {100 * float(key):g}%" for key, rate in self.tpr_at.items() if rate
        )
        return (
            f"{self.attack} on {self.target}: AUC {self.auc.value:.3f} [{self.auc.low:.3f}, {self.auc.high:.3f}], "
            f"balanced accuracy {self.balanced_accuracy:.3f}" + (f", {low}" if low else "") + f" ({EVALUATION})"
        )


def analyze(found: AttackScores, confidence: float = 0.95) -> Analysis:
    """The figures of an attack, with two-sided intervals at `confidence`."""
    positives, negatives = int(found.truth.sum()), int((~found.truth).sum())
    if positives < 2 or negatives < 2:
        raise InputError(f"analysis: expected at least 2 true and 2 false guesses; got {positives} and {negatives}")
    fpr, tpr, _ = roc_curve(found.truth, found.scores, drop_intermediate=False)
    kept = _thinned(fpr)
    return Analysis(
        attack=found.attack,
        target=found.target,
        assumes=found.assumes,
        auc=auc_interval(found.scores, found.truth, confidence),
        balanced_accuracy=balanced_accuracy(found.scores, found.truth),
        tpr_at={f"{rate:g}": tpr_at(fpr, tpr, rate, positives, negatives, confidence) for rate in LOW_RATES},
        fpr=tuple(float(x) for x in fpr[kept]),
        tpr=tuple(float(x) for x in tpr[kept]),
        positives=positives,
        negatives=negatives,
        details=found.details,
    )


def auc_interval(scores: np.ndarray, truth: np.ndarray, confidence: float = 0.95) -> Rate:
    """The area under the curve, with the interval of DeLong, DeLong and Clarke-Pearson (1988)."""
    inside, outside = scores[truth], scores[~truth]
    m, n = len(inside), len(outside)
    everything = stats.rankdata(np.concatenate([inside, outside]))
    above = (everything[:m] - stats.rankdata(inside)) / n
    below = 1.0 - (everything[m:] - stats.rankdata(outside)) / m
    area = float(above.mean())
    error = float(np.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n))
    reach = float(stats.norm.ppf(0.5 + confidence / 2.0)) * error
    return Rate(area, max(0.0, area - reach), min(1.0, area + reach))


def tpr_at(
    fpr: np.ndarray, tpr: np.ndarray, rate: float, positives: int, negatives: int, confidence: float = 0.95
) -> Rate | None:
    """The best true-positive rate whose false-positive rate is at most `rate`; Clopper-Pearson interval."""
    if negatives * rate < _FEWEST_ALARMS:
        return None
    value = float(tpr[fpr <= rate].max())
    interval = stats.binomtest(round(value * positives), positives).proportion_ci(confidence)
    return Rate(value, float(interval.low), float(interval.high))


def balanced_accuracy(scores: np.ndarray, truth: np.ndarray) -> float:
    """The mean of both rates of right guesses; the threshold is chosen on one half, judged on the other, both ways."""
    half = np.arange(len(scores)) % 2 == 0
    found = []
    for chosen in (half, ~half):
        if len(np.unique(truth[chosen])) == 2 == len(np.unique(truth[~chosen])):
            fpr, tpr, thresholds = roc_curve(truth[chosen], scores[chosen], drop_intermediate=False)
            best = thresholds[int(np.argmax(tpr - fpr))]
            found.append(balanced_accuracy_score(truth[~chosen], scores[~chosen] >= best))
    return float(np.mean(found)) if found else 0.5


def _thinned(fpr: np.ndarray) -> np.ndarray:
    """Places of a curve worth drawing on logarithmic axes."""
    if len(fpr) <= _CURVE_POINTS:
        return np.arange(len(fpr))
    positive = fpr[fpr > 0]
    wanted = np.geomspace(positive.min(), 1.0, _CURVE_POINTS) if len(positive) else np.array([1.0])
    places = np.clip(np.searchsorted(fpr, wanted, side="right") - 1, 0, len(fpr) - 1)
    return np.unique(np.concatenate([[0], places, [len(fpr) - 1]]))
