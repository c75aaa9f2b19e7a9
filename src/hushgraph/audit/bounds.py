"""Lower bounds on epsilon from scores of canaries that were planted and canaries that were not.

Every function takes the scores, the coins (True: planted), a delta and a confidence, and returns an epsilon that the
mechanism provably exceeds, except with probability 1 - confidence. `gaussian_bound` assumes that scores are normal
with one variance, which holds for projections of a Gaussian release; `threshold_bound` assumes nothing about the law.
Bounds from a single run with dependent canaries are in `one_run`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from hushgraph.errors import InputError
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Relation

_LARGEST_MU = 1e3


def gaussian_bound(scores: np.ndarray, planted: np.ndarray, delta: float, confidence: float = 0.95) -> float:
    """Epsilon at the lower confidence limit of mu, through the trade-off curve of a Gaussian release."""
    return gaussian_epsilon(gaussian_mu_bound(scores, planted, confidence), delta)


def gaussian_mu_bound(scores: np.ndarray, planted: np.ndarray, confidence: float = 0.95) -> float:
    """A lower confidence limit for mu = (mean of planted - 0) / standard deviation.

    Scores are residuals: the auditor knows the data, so the mean of an absent canary's score is exactly zero and only
    the planted mean and the common variance are estimated. sqrt(n1) mean/s is then a noncentral t, which gives an
    exact limit.
    """
    check_scores(scores, planted, confidence)
    inside, outside = scores[planted], scores[~planted]
    count = len(inside)
    squares = float(((inside - inside.mean()) ** 2).sum() + (outside**2).sum())
    freedom = len(scores) - 1
    spread = math.sqrt(squares / freedom)
    if spread == 0.0:
        return math.inf if inside.mean() > 0 else 0.0
    statistic = math.sqrt(count) * float(inside.mean()) / spread
    return _noncentrality_limit(statistic, freedom, 1.0 - confidence) / math.sqrt(count)


def threshold_bound(scores: np.ndarray, planted: np.ndarray, delta: float, confidence: float = 0.95) -> float:
    """Clopper-Pearson on one threshold: log((TPR - delta) / FPR) with the unfavorable limits of both rates.

    The threshold is chosen on one half of the canaries and judged on the other, so that no correction for choosing is
    needed. Canaries must be independent given their coins (disjoint noise).
    """
    check_scores(scores, planted, confidence)
    choosing = np.arange(len(scores)) % 2 == 0
    threshold, sign = _best_threshold(scores[choosing], planted[choosing], delta, confidence)
    judged_scores, judged_planted = sign * scores[~choosing], planted[~choosing]
    return _rates_bound(judged_scores >= threshold, judged_planted == (sign > 0), delta, confidence)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at `delta` of a Gaussian release with separation `mu`."""
    if mu <= 0.0:
        return 0.0
    if mu > _LARGEST_MU:
        return math.inf
    return max(0.0, PrivacyLoss(events.gaussian(1.0 / mu), Relation.ADD_OR_REMOVE).epsilon(delta))


def check_scores(scores: np.ndarray, planted: np.ndarray, confidence: float) -> None:
    """Refuse scores that no bound can be computed from."""
    problems = []
    if scores.ndim != 1 or scores.shape != planted.shape or planted.dtype != bool:
        problems.append(f"expected one score and one coin per canary; got {scores.shape} and {planted.shape}")
    elif planted.sum() < 2 or (~planted).sum() < 2:
        problems.append(f"expected at least 2 planted and 2 absent canaries; got {planted.sum()} of {len(planted)}")
    elif not np.isfinite(scores).all():
        problems.append("expected finite scores; got NaN or infinity")
    if not 0.5 < confidence < 1.0:
        problems.append(f"confidence: expected above 0.5 and below 1; got {confidence!r}")
    InputError.collect(problems)


def _noncentrality_limit(statistic: float, freedom: int, risk: float) -> float:
    """The noncentrality at which a value of `statistic` or more has probability `risk`; at least 0."""

    def excess(noncentrality: float) -> float:
        return float(stats.nct.sf(statistic, freedom, noncentrality)) - risk

    if statistic <= 0.0 or excess(0.0) >= 0.0:
        return 0.0
    # The variance of the statistic is at most 1 + t^2/(2 freedom): ten of those below it is far enough.
    low = max(0.0, statistic - 10.0 * math.sqrt(1.0 + statistic**2 / (2.0 * freedom)))
    return float(optimize.brentq(excess, low, statistic, xtol=1e-9))


def _best_threshold(scores: np.ndarray, planted: np.ndarray, delta: float, confidence: float) -> tuple[float, float]:
    """The threshold, and the side (+1: planted score high, -1: absent score low), with the largest bound."""
    best = (-math.inf, float(np.median(scores)), 1.0)
    for sign in (1.0, -1.0):
        turned, named = sign * scores, planted == (sign > 0)
        for threshold in np.quantile(turned, np.linspace(0.02, 0.999, 60)):
            bound = _rates_bound(turned >= threshold, named, delta, confidence)
            best = max(best, (bound, float(threshold), sign))
    return best[1], best[2]


def _rates_bound(flagged: np.ndarray, named: np.ndarray, delta: float, confidence: float) -> float:
    low, high = _rate_limits(flagged, named, (1.0 - confidence) / 2.0)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def _rate_limits(flagged: np.ndarray, named: np.ndarray, risk: float) -> tuple[float, float]:
    """A lower limit of the true-positive rate and an upper limit of the false-positive rate, each with `risk`."""
    hits, positives = int((flagged & named).sum()), int(named.sum())
    alarms, negatives = int((flagged & ~named).sum()), int((~named).sum())
    low = float(stats.beta.ppf(risk, hits, positives - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1.0 - risk, alarms + 1, negatives - alarms)) if alarms < negatives else 1.0
    return low, high
