"""The multi-bit mechanism: the encoder and rectifier of LPGNN (Sajadmanesh and Gatica-Perez 2021).

The device picks m of its d features at random and sends one bit about each, at epsilon/m per bit. For epsilon up to
about 3 that is a single (feature number, bit) pair for the whole vector. The server's rectifier is unbiased:

    estimate = center + d (high - low) / (2 m) * coth(eps / 2m) * report,   report in {-1, 0, +1}

Proof: docs/proofs/local-features.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hushgraph.local.base import (
    Randomizer,
    Randomness,
    check_epsilon,
    check_range,
    check_total,
    coth_half,
    os_generator,
    share_of,
)
from hushgraph.local.bits import Duchi, ManySigns, draw_signs
from hushgraph.local.vectors import SampledFeatures, SampledReport, check_dimensions, rows_of, sample_dimensions

BEST_SHARE = 2.18
"""The epsilon per bit that minimizes z coth^2(z/2): the solution of z = sinh(z)/2 is 2.1773."""

NUMBERS_AT_ONCE = 262_144
"""Numbers encoded together: enough to hide the cost of a call, few enough to stay in the cache."""


def best_bits(epsilon: float, dimensions: int) -> int:
    """The number of features to send: the better of floor and ceiling of epsilon/2.18, within [1, d].

    The paper always takes the floor; comparing both never has a larger variance.
    """
    floor = math.floor(epsilon / BEST_SHARE)
    candidates = {min(dimensions, max(1, m)) for m in (floor, floor + 1)}
    return min(sorted(candidates), key=lambda m: coth_half(epsilon / m) ** 2 / m)


@dataclass(frozen=True)
class MultiBit(Randomizer):
    """One bit about each of m random features. Formal guarantee: `epsilon`-local DP per *vector* of d features.

    It has the law of `SampledFeatures` with Duchi's signs, and is drawn faster. Report: a `SampledReport` with signs in
    {-1, +1}; `report.dense(np.int8)` is the {-1, 0, +1} matrix of the paper. `sampled` (m) is chosen for least
    variance unless given, and is part of the value from then on.
    """

    epsilon: float
    dimensions: int
    low: float = 0.0
    high: float = 1.0
    sampled: int | None = None

    name = "multi-bit"

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_dimensions(self.dimensions, 1 if self.sampled is None else self.sampled)
        check_total(self.epsilon)
        if self.sampled is None:
            object.__setattr__(self, "sampled", best_bits(self.epsilon, self.dimensions))
        check_epsilon(self.epsilon_per_bit, "epsilon per bit")

    @property
    def bits(self) -> int:
        """m, the number of features sent."""
        assert self.sampled is not None
        return int(self.sampled)

    @property
    def epsilon_per_bit(self) -> float:
        """The share of the budget each bit spends."""
        return share_of(self.epsilon, self.bits)

    @property
    def center(self) -> float:
        """Middle of the public range, and the estimate of a feature that was not sent."""
        return self.low + (self.high - self.low) / 2.0

    @property
    def step(self) -> float:
        """How far a sent bit moves the estimate from the center."""
        return (self.dimensions / self.bits) * (self.high - self.low) / 2.0 * coth_half(self.epsilon_per_bit)

    def perturb(self, values: Any, rng: Randomness | None = None) -> SampledReport:
        """Encode rows of d features (or one vector)."""
        source = rng if rng is not None else os_generator()
        rows = rows_of(values, self.dimensions)
        index = sample_dimensions(len(rows), self.dimensions, self.bits, source)
        signs = np.empty(index.shape, dtype=np.int8)
        block = max(1, NUMBERS_AT_ONCE // self.bits)
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            signs[part] = self._signs(rows[part], index[part], source)
        return SampledReport(index, signs, self.dimensions)

    def estimate(self, report: SampledReport | np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """Rectify: unbiased (n, d) estimates from reports or from their dense {-1, 0, +1} matrix."""
        signs = report.dense(np.int8) if isinstance(report, SampledReport) else np.asarray(report)
        estimates = signs.astype(dtype)
        estimates *= self.step
        estimates += self.center
        return estimates

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of each estimated feature, over the choice of features and the bits."""
        return self._law.variance(values)

    def law(self, value: Any) -> tuple[SampledReport, np.ndarray]:
        """Every report and its probability for one vector. Only for few features: there are C(d, m) 2^m."""
        return self._law.law(value)

    def inputs(self) -> Sequence[np.ndarray]:
        """Vectors with all features equal, across the range."""
        return self._law.inputs()

    def extreme_inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """All features at the top, all at the bottom."""
        return self._law.extreme_inputs()

    def log_ratio(self, report: SampledReport, high: Any, low: Any) -> np.ndarray:
        """One column for each sent bit."""
        return self._law.log_ratio(report, high, low)

    @property
    def parts(self) -> int:
        """m."""
        return self.bits

    @property
    def one_part(self) -> Duchi:
        """One sign about one feature."""
        return Duchi(self.epsilon_per_bit, self.low, self.high)

    @cached_property
    def _law(self) -> SampledFeatures:
        return SampledFeatures(self.one_part, self.dimensions, self.bits)

    def _signs(self, rows: np.ndarray, index: np.ndarray, source: Randomness) -> np.ndarray:
        """One random sign for each chosen feature."""
        if self.bits == self.dimensions:
            return self._many.draw(rows, source)
        chosen = np.take_along_axis(rows, index.astype(np.intp), axis=1)
        return draw_signs(self._many.unit(chosen), self.epsilon_per_bit, source)

    @cached_property
    def _many(self) -> ManySigns:
        return ManySigns(self.epsilon_per_bit, self.low, self.high)
