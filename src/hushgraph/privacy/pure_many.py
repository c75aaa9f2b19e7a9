"""The privacy loss of many releases that are epsilon-DP each: a binomial law, exactly composed.

Whatever a release does that is epsilon-DP is dominated by a coin that shows the truth with probability p = 1 / (1 +
e^-epsilon) (Kairouz, Oh and Viswanath 2015), so `count` of them are dominated by as many coins: with B of them true the
loss is epsilon (2B - count), and B is binomial with p in the one dataset, with 1 - p in the other. A whole number with
discrete Laplace noise that moves by one *is* such a coin (docs/proofs/votes.md).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import stats

from hushgraph.errors import CalibrationError

_DEVIATIONS = 12.0
_ROUNDING = 1e-10
"""More than the tails of binomial laws are rounded by, as a share of them."""
_MOST_GRID_POINTS = 1_000_000


def delta(epsilon: float, count: int, at: np.ndarray) -> np.ndarray:
    """The hockey-stick divergence of order e^at of `count` such coins, from above."""
    truth = 1.0 / (1.0 + math.exp(-epsilon))
    below = np.floor((at / epsilon + count) / 2.0)  # the largest number of true coins whose loss is not above
    upper = stats.binom.sf(below, count, truth)
    lower = np.exp(np.minimum(at + stats.binom.logsf(below, count, 1.0 - truth), 0.0))
    return np.asarray(np.clip(upper - lower + _ROUNDING * upper, 0.0, 1.0))


@functools.lru_cache(maxsize=64)
def pure_many_pld(epsilon: float, count: int, grid: float) -> pld_lib.PrivacyLossDistribution:
    """The loss on a grid, rounded so that every later epsilon is an upper bound (connect the dots)."""
    truth = 1.0 / (1.0 + math.exp(-epsilon))
    mean, spread = epsilon * count * (2.0 * truth - 1.0), 2.0 * epsilon * math.sqrt(count * truth * (1.0 - truth))
    low, high = (mean + side * _DEVIATIONS * max(spread, epsilon) for side in (-1.0, 1.0))
    first = math.floor(max(low, -count * epsilon) / grid)
    last = math.ceil(min(high, count * epsilon) / grid)
    if last - first > _MOST_GRID_POINTS:
        raise CalibrationError(
            f"{count} releases of epsilon {epsilon:g} each: expected more noise; got a loss too wide"
        )
    deltas = delta(epsilon, count, np.arange(first, last + 1) * grid)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, np.minimum.accumulate(deltas))
    return pld_lib.PrivacyLossDistribution(pmf)
