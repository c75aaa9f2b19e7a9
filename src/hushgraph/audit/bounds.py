"""Lower bounds on epsilon from scores of canaries that were planted and canaries that were not.

Every function takes the scores, the coins (True: planted), a delta and a confidence, and returns an epsilon that the
mechanism provably exceeds, except with probability 1 - confidence. `gaussian_bound` assumes that scores are normal
with one variance, which holds for projections of a Gaussian release; `threshold_bound` assumes nothing about the law.

Bounds from one run with many canaries that may depend on each other.

* `one_run_bound`: Steinke, Nasr, Jagielski (2023), for (epsilon, delta). The number of right guesses is dominated by a
  binomial whose success rate is e^eps / (1 + e^eps), up to a term in delta.
* `one_run_f_bound`: Mahloujifar, Melis, Chaudhuri (2024), for a whole trade-off curve f. Much tighter when f is the
  curve of the mechanism, because it does not treat every guess as the worst case.

Each canary is planted by a fair coin of its own. The auditor guesses coins from scores and may abstain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import optimize, special, stats

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


_SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)
F_SHARES = (0.3, 0.1, 0.03)
_LARGEST_EPSILON = 60.0

# From the probability of an event when a coin agrees with the guess, the least when it does not.
Shrink = Callable[[float], float]


def one_run_bound(scores: np.ndarray, planted: np.ndarray, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that the number of right guesses refutes, over a few rates of abstention (corrected for)."""
    check_scores(scores, planted, confidence)
    risk = (1.0 - confidence) / len(_SHARES)
    found = []
    for share in _SHARES:
        right, guesses = right_guesses(scores, planted, share)
        found.append(_largest(partial(_refutes_epsilon, len(scores), guesses, right, delta, risk)))
    return max(found)


def _refutes_epsilon(canaries: int, guesses: int, right: int, delta: float, risk: float, epsilon: float) -> bool:
    return p_value(canaries, guesses, right, epsilon, delta) <= risk


def right_guesses(scores: np.ndarray, planted: np.ndarray, share: float) -> tuple[int, int]:
    """Guess `planted` for the highest scores and `absent` for the lowest, `share` of all; how many were right."""
    half = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores, kind="stable")
    right = int(planted[order[-half:]].sum() + (~planted[order[:half]]).sum())
    return right, 2 * half


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The most probable that (epsilon, delta)-DP makes `right` or more right guesses of `guesses`."""
    rate = float(special.expit(epsilon))
    tail = float(stats.binom.sf(right - 1, guesses, rate))
    if delta == 0.0 or right == 0:
        return min(1.0, tail)
    # Each unit of delta can move one canary from any smaller count up to `right`; the best place to take it from is
    # the one with the most probability per step.
    below = stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, rate)
    steepest = float((np.cumsum(below) / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2.0 * canaries * delta * steepest)


def one_run_f_bound(
    scores: np.ndarray,
    planted: np.ndarray,
    curve_of: Callable[[float], Shrink],
    largest: float,
    confidence: float = 0.95,
    steps: int = 20,
) -> float:
    """The largest parameter whose curve is refuted, of a family `curve_of` that grows less private with it."""
    check_scores(scores, planted, confidence)
    counted = [right_guesses(scores, planted, share) for share in F_SHARES]
    risk = (1.0 - confidence) / len(F_SHARES)

    def refuted(parameter: float) -> bool:
        curve = curve_of(parameter)
        return any(refutes(curve, len(scores), guesses, right, risk) for right, guesses in counted)

    return _largest(refuted, largest, steps)


def refutes(shrink: Shrink, canaries: int, guesses: int, right: int, risk: float) -> bool:
    """Whether `right` right guesses of `guesses` have probability below `risk` under the trade-off curve.

    Let r[i] (h[i]) be the probability that a canary drawn at random is guessed rightly (wrongly) while at least i
    guesses are right. Flipping that canary's coin gives h[i-1] >= shrink(r[i]), and going from i+1 to i adds right and
    wrong mass in the ratio i : guesses - i. From a tail of `risk` at `right`, the least total mass is followed down
    to 0; a total above the share of guesses is impossible.
    """
    scale = guesses / canaries
    good, bad = risk * scale * right / guesses, risk * scale * (guesses - right) / guesses
    for i in range(right - 1, -1, -1):
        new = max(bad, shrink(good))
        good += (i / (guesses - i)) * (new - bad)
        bad = new
        if good + bad > scale:
            return True
    return False


def gaussian_curve(mu: float) -> Shrink:
    """The curve of a Gaussian release with separation `mu`."""

    def shrink(agree: float) -> float:
        return float(special.ndtr(special.ndtri(min(agree, 1.0)) - mu))

    return shrink


def loss_curve(loss: PrivacyLoss, largest_epsilon: float = 30.0, points: int = 240) -> Shrink:
    """The curve of any accounted loss: P <= e^eps Q + delta(eps) at many eps, in both directions."""
    grid = np.concatenate([[0.0], np.geomspace(1e-3, largest_epsilon, points)])
    deltas = np.array([loss.delta(float(eps)) for eps in grid])
    fall = np.exp(-grid)
    # Q >= (P - delta) e^-eps, and 1 - Q <= e^eps (1 - P) + delta.
    slopes = np.concatenate([fall, np.exp(grid)])
    offsets = np.concatenate([-deltas * fall, 1.0 - deltas - np.exp(grid)])

    def shrink(agree: float) -> float:
        return max(0.0, float((slopes * agree + offsets).max()))

    return shrink


def _largest(refuted: Callable[[float], bool], high: float = _LARGEST_EPSILON, steps: int = 40) -> float:
    """The largest parameter in (0, high] that is refuted, by bisection from below; 0 if none."""
    low = 0.0
    if refuted(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2.0
        low, high = (middle, high) if refuted(middle) else (low, middle)
        if high - low < 1e-4 * max(1.0, low) or math.isclose(low, high):
            break
    return low
