"""The privacy loss of a Poisson batch in which one record can change several examples at once.

One node of a graph takes part in several rooted examples, so several clipped gradients of a batch may change together.
With noise of standard deviation `z` per unit of clip norm, rate `q`, and at most `before` (`after`) examples that
depend on the record in the one (the other) of two neighboring datasets, every step is dominated by

    P = sum_i Bin(i; before, q) N(+i, z^2)    against    Q = sum_j Bin(j; after, q) N(-j, z^2),

at every order of the hockey-stick divergence, so the pair composes. Proof: docs/proofs/mixture.md. `before = 1, after
= 0` is the usual DP-SGD step for an added or removed record, `before = after = 1` the one for a replaced record.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import optimize, special

from hushgraph.errors import CalibrationError, InputError

_LOG_TAIL = -50.0
"""The logarithm of the probability that is moved to an infinite loss at the upper end of the grid."""
_STARTING_POINTS = 4096
_NEWTON_STEPS = 6
_MOST_GRID_POINTS = 1_000_000


@dataclass(frozen=True)
class TwoSidedMixture:
    """The pair (P, Q) above. Its privacy loss ln P(x)/Q(x) rises with x, because P's means are all above Q's."""

    noise_multiplier: float
    sample_rate: float
    before: int
    after: int

    def __post_init__(self) -> None:
        problems = []
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            problems.append(f"noise multiplier: expected a finite number above 0; got {self.noise_multiplier!r}")
        if not 0.0 < self.sample_rate <= 1.0:
            problems.append(f"sample rate: expected above 0 and at most 1; got {self.sample_rate!r}")
        if min(self.before, self.after) < 0 or max(self.before, self.after) < 1:
            problems.append(f"examples touched: expected some; got {self.before} before and {self.after} after")
        InputError.collect(problems)

    @property
    def swapped(self) -> TwoSidedMixture:
        """(Q, P), turned round so that its loss rises as well."""
        return TwoSidedMixture(self.noise_multiplier, self.sample_rate, self.after, self.before)

    def loss(self, x: np.ndarray) -> np.ndarray:
        """ln P(x)/Q(x)."""
        return self._log_density(x, self.before, 1.0)[0] - self._log_density(x, self.after, -1.0)[0]

    def where_loss_is(self, losses: np.ndarray) -> np.ndarray:
        """The x at which the privacy loss takes these values (ascending, within the range of `_ends`)."""
        low, high = self._ends
        if self.before + self.after == 1:
            return self._one_example(losses).clip(low, high)
        grid = np.linspace(low, high, _STARTING_POINTS)
        x = np.interp(losses, self.loss(grid), grid)
        for _ in range(_NEWTON_STEPS):
            upper, mean_upper = self._log_density(x, self.before, 1.0)
            lower, mean_lower = self._log_density(x, self.after, -1.0)
            slope = (mean_upper - mean_lower) / self.noise_multiplier**2
            step = np.divide(upper - lower - losses, slope, out=np.zeros_like(x), where=slope > 1e-12)
            x = np.clip(x - np.clip(step, low - high, high - low), low, high)
        return x

    def _one_example(self, losses: np.ndarray) -> np.ndarray:
        """The same, solved for x, where one example comes or goes; infinite for a loss that is never reached."""
        sign, rate = (1.0 if self.before else -1.0), self.sample_rate
        ratios = sign * losses  # ln of 1 - q + q exp((2x - 1) / 2z^2)
        with np.errstate(divide="ignore"):
            if rate < 1.0:
                ratios = ratios + np.log(-np.expm1(np.minimum(math.log1p(-rate) - ratios, 0.0))) - math.log(rate)
        return np.asarray(sign * (self.noise_multiplier**2 * ratios + 0.5))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The hockey-stick divergence of order e^epsilon, for ascending epsilons.

        Exact at whatever x the root finding returns: the set {loss > epsilon} is optimal, so an error in x enters
        in second order only.
        """
        x = self.where_loss_is(epsilons)
        upper = np.exp(self._log_upper_tail(x, self.before, 1.0))
        lower = np.exp(np.minimum(epsilons + self._log_upper_tail(x, self.after, -1.0), 0.0))
        deltas = np.clip(upper - lower, 0.0, 1.0)
        if not np.isfinite(deltas).all():
            raise CalibrationError(f"the divergence of {self} is not a number")
        return deltas

    def pmf(self, grid: float) -> pld_pmf.PLDPmf:
        """The privacy loss on a grid, rounded so that every later epsilon is an upper bound (connect the dots)."""
        low, high = self.loss(np.array(self._ends))
        first, last = math.floor(low / grid), math.ceil(high / grid)
        if last - first > _MOST_GRID_POINTS:
            raise CalibrationError(
                f"the privacy loss of one step spreads over {high - low:g}: expected more noise than "
                f"{self.noise_multiplier:g} times the clip norm where {self.before} examples change together"
            )
        deltas = self.delta(np.arange(first, last + 1) * grid)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, np.minimum.accumulate(deltas))

    @functools.cached_property
    def _ends(self) -> tuple[float, float]:
        """Two points outside which P has a mass of e^-50 each."""

        def log_tail(x: float, side: float) -> float:
            weights = _log_binomial(self.before, self.sample_rate)
            means = np.arange(self.before + 1)
            return float(np.logaddexp.reduce(weights + special.log_ndtr(side * (x - means) / self.noise_multiplier)))

        reach = 12.0 * self.noise_multiplier
        low = optimize.brentq(lambda x: log_tail(x, 1.0) - _LOG_TAIL, -reach, self.before + reach)
        high = optimize.brentq(lambda x: log_tail(x, -1.0) - _LOG_TAIL, -reach, self.before + reach)
        return float(low), float(high)

    def _log_density(self, x: np.ndarray, count: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
        """The logarithm of one mixture's density, up to a constant shared by both, and its posterior mean at x."""
        means = sign * np.arange(count + 1)
        terms = _log_binomial(count, self.sample_rate) - (x[:, None] - means) ** 2 / (2 * self.noise_multiplier**2)
        top = terms.max(axis=1, keepdims=True)
        weights = np.exp(terms - top)
        total = weights.sum(axis=1)
        return top[:, 0] + np.log(total), weights @ means / total

    def _log_upper_tail(self, x: np.ndarray, count: int, sign: float) -> np.ndarray:
        means = sign * np.arange(count + 1)
        terms = special.log_ndtr((means - x[:, None]) / self.noise_multiplier)
        terms += _log_binomial(count, self.sample_rate)
        top = terms.max(axis=1)
        return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


def group_pld(
    noise_multiplier: float, sample_rate: float, before: int, after: int, grid: float
) -> pld_lib.PrivacyLossDistribution:
    """The privacy-loss distribution of one step, in both directions (the same one where nothing is left to chance)."""
    pair = TwoSidedMixture(noise_multiplier, sample_rate, before, after)
    symmetric = before == after or sample_rate == 1.0
    return pld_lib.PrivacyLossDistribution(pair.pmf(grid), None if symmetric else pair.swapped.pmf(grid))


def occurrence_bound(max_degree: int, layers: int) -> int:
    """N(K, r) = 1 + K + ... + K^r: how many rooted examples one node can occur in when lists have K entries."""
    if max_degree < 0 or layers < 0:
        raise InputError(f"expected max_degree and layers of at least 0; got {max_degree} and {layers}")
    return sum(max_degree**step for step in range(layers + 1))


@functools.lru_cache(maxsize=64)
def _log_binomial(count: int, rate: float) -> np.ndarray:
    hits = np.arange(count + 1)
    ways = special.gammaln(count + 1) - (special.gammaln(hits + 1) + special.gammaln(count - hits + 1))
    logs = ways + special.xlogy(hits, rate) + special.xlog1py(count - hits, -rate)
    logs.setflags(write=False)
    return logs
