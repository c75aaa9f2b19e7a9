"""The privacy loss of many releases that are epsilon-DP each: a binomial law, exactly composed.

Whatever a release does that is epsilon-DP is dominated by a coin that shows the truth with probability p = 1 / (1 +
e^-epsilon) (Kairouz, Oh and Viswanath 2015), so `count` of them are dominated by as many coins: with B of them true the
loss is epsilon (2B - count), and B is binomial with p in the one dataset, with 1 - p in the other. A whole number with
discrete Laplace noise that moves by one *is* such a coin (docs/proofs/votes.md).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import stats

from hushgraph.errors import CalibrationError

_DEVIATIONS = 12.0
_ROUNDING = 1e-10
"""More than the tails of binomial laws are rounded by, as a share of them."""
_MOST_GRID_POINTS = 1_000_000


@dataclass(frozen=True)
class Coins:
    """`count` coins, each of which shows the truth with odds of e^epsilon."""

    epsilon: float
    count: int

    @property
    def truth(self) -> float:
        """The probability that one coin shows the truth."""
        return 1.0 / (1.0 + math.exp(-self.epsilon))

    @property
    def ends(self) -> tuple[float, float]:
        """Between these the loss lies, but for a probability that is far below every delta."""
        mean = self.epsilon * self.count * (2.0 * self.truth - 1.0)
        spread = 2.0 * self.epsilon * math.sqrt(self.count * self.truth * (1.0 - self.truth))
        reach, most = _DEVIATIONS * max(spread, self.epsilon), self.count * self.epsilon
        return max(mean - reach, -most), min(mean + reach, most)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The hockey-stick divergence of order e^epsilon, from above."""
        below = np.floor((epsilons / self.epsilon + self.count) / 2.0)  # the most true coins whose loss is not above
        upper = stats.binom.sf(below, self.count, self.truth)
        lower = np.exp(np.minimum(epsilons + stats.binom.logsf(below, self.count, 1.0 - self.truth), 0.0))
        return np.asarray(np.clip(upper - lower + _ROUNDING * upper, 0.0, 1.0))

    def pmf(self, grid: float) -> pld_pmf.PLDPmf:
        """The loss on a grid, rounded so that every later epsilon is an upper bound (connect the dots)."""
        first, last = math.floor(self.ends[0] / grid), math.ceil(self.ends[1] / grid)
        if last - first > _MOST_GRID_POINTS:
            raise CalibrationError(f"expected more noise: the loss of {self} is too wide for the grid")
        deltas = self.delta(np.arange(first, last + 1) * grid)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, np.minimum.accumulate(deltas))


@functools.lru_cache(maxsize=64)
def pure_many_pld(epsilon: float, count: int, grid: float) -> pld_lib.PrivacyLossDistribution:
    """The privacy-loss distribution of `count` releases that are epsilon-DP each, the same in both directions."""
    return pld_lib.PrivacyLossDistribution(Coins(epsilon, count).pmf(grid))
