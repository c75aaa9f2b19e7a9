"""FeatureRR: every feature sent as one of k bins, the more important ones with less noise (HeteroRR, Algorithm 1).

The public range is cut into k bins. From bin t a device reports bin u with probability

    P[u | t] = exp(-|u - t| eps_i / (k - 1)) / C_t,      eps_i = eps theta_i,

where the scores theta sum to 1. They, the range and k are public and fixed before any record is looked at: scores that
follow from the protected record would be a leak. The ratio is largest between the two ends and is e^eps_i exactly.

Probabilities are whole numbers of parts in 2^62, the unlikely ones rounded up, and reports are drawn by comparing whole
numbers: the law that is enumerated is the law that is drawn. Proof: docs/proofs/local-features.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.base import (
    LARGEST_EPSILON,
    Randomizer,
    Randomness,
    check_range,
    check_total,
    finite,
    is_count,
    is_number,
    log_quotient,
    os_generator,
)
from hushgraph.local.vectors import product_law, rows_of

PARTS_OF_ONE = 2**62
"""Probabilities are multiples of one over this."""
LEAST_EPSILON = 1e-9
"""A feature with a smaller share is reported by a law that does not look at it."""
MOST_BINS = 256
_ROUNDING = 2.0**-40  # what rounding may add to a log ratio is far below this
_NUMBERS_AT_ONCE = 1_000_000


def bin_law(epsilon: float, bins: int) -> np.ndarray:
    """P[u | t] in parts of 2^62, `[t, u]`: each row sums to 2^62, and two rows differ by a factor of at most e^epsilon.

    The unlikely bins are rounded up, and the true bin gets what they leave.
    """
    if epsilon < LEAST_EPSILON:
        return np.tile(_whole(np.full(bins, 1.0 / bins), 0), (bins, 1))
    distance = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    weight = np.exp(-distance * ((epsilon - _ROUNDING) / (bins - 1)))
    totals = weight.sum(axis=1)
    totals = (totals + totals[::-1]) / 2  # both ends alike, to the last digit
    law = np.stack([_whole(row / total, t) for t, (row, total) in enumerate(zip(weight, totals))])
    ratio = float((np.log(law.max(axis=0)) - np.log(law.min(axis=0))).max())
    if ratio > epsilon:
        raise InputError(f"expected a law within epsilon {epsilon!r}; got {ratio!r}; use fewer bins")
    return law


def _whole(probabilities: np.ndarray, rest: int) -> np.ndarray:
    """Rounded up to parts of 2^62; the entry `rest` takes what is left."""
    parts = np.ceil(probabilities * PARTS_OF_ONE).astype(np.int64)
    parts[rest] = PARTS_OF_ONE - (parts.sum() - parts[rest])
    return parts


def unified_scores(importance: Any, sensitivity: Any, gamma: float = 0.5) -> tuple[float, ...]:
    """theta (Eqs 5-7): high for features that matter much and betray little. Both inputs are public numbers.

    Each is scaled to sum 1 first; theta_i = gamma alpha_i + (1 - gamma) (beta_min + beta_max - beta_i), scaled again.
    """
    alpha, beta = (_share(name, values) for name, values in (("importance", importance), ("sensitivity", sensitivity)))
    problems = []
    if alpha.shape != beta.shape:
        problems.append(f"expected as many importances as sensitivities; got {alpha.size} and {beta.size}")
    if not (is_number(gamma) and 0 <= gamma <= 1):
        problems.append(f"expected gamma from 0 to 1; got {gamma!r}")
    InputError.collect(problems)
    theta = gamma * alpha + (1 - gamma) * (beta.min() + beta.max() - beta)
    return tuple((theta / theta.sum()).tolist())


def _share(name: str, values: Any) -> np.ndarray:
    """Magnitudes that sum to 1; all zero means that no feature stands out."""
    magnitudes = np.abs(finite(values).astype(np.float64))
    if magnitudes.ndim != 1 or not magnitudes.size:
        raise InputError(f"expected one {name} for each feature; got shape {magnitudes.shape}; average over records")
    total = magnitudes.sum()
    return magnitudes / total if total > 0 else np.full(magnitudes.size, 1.0 / magnitudes.size)


@dataclass(frozen=True)
class FeatureRR(Randomizer):
    """A vector of binned features. Formal guarantee: `epsilon`-local DP per *vector*, `epsilons[i]` for feature i.

    Report: the bin numbers, `[people, features]` from 0. The estimate is the middle of the reported bin: as published,
    it stays in the range and is *biased* toward the middle of it (`bias`), other than those of all other randomizers.
    """

    epsilon: float
    scores: tuple[float, ...]
    bins: int = 10
    low: float = 0.0
    high: float = 1.0

    name = "feature-rr"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(float(score) for score in self.scores))
        check_total(self.epsilon)
        check_range(self.low, self.high)
        InputError.collect(self._problems())

    def _problems(self) -> list[str]:
        found = []
        if not (is_count(self.bins, 2) and self.bins <= MOST_BINS):
            found.append(f"expected 2 to {MOST_BINS} bins; got {self.bins!r}")
        if not self.scores or not all(math.isfinite(score) and score >= 0 for score in self.scores):
            return [*found, "expected one score >= 0 for each feature; got others; see unified_scores"]
        if not math.isclose(math.fsum(self.scores), 1.0, rel_tol=1e-9):
            found.append(f"expected scores that sum to 1; got {math.fsum(self.scores)!r}; divide by their sum")
        if self.epsilon * max(self.scores) > LARGEST_EPSILON:
            found.append(f"expected at most epsilon {LARGEST_EPSILON:g} for one feature; lower epsilon or its score")
        return found

    @classmethod
    def even(cls, epsilon: float, dimensions: int, bins: int = 10, low: float = 0.0, high: float = 1.0) -> FeatureRR:
        """All features alike."""
        return cls(epsilon, (1.0 / dimensions,) * dimensions, bins, low, high)

    @property
    def dimensions(self) -> int:
        """How many features a vector has; all are sent."""
        return len(self.scores)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """epsilon theta_i of every feature; together never a hair over `epsilon`."""
        factor = self.epsilon / math.fsum(self.scores)
        shares = [factor * score for score in self.scores]
        while math.fsum(shares) > self.epsilon:
            factor = math.nextafter(factor, 0.0)
            shares = [factor * score for score in self.scores]
        return tuple(shares)

    @cached_property
    def laws(self) -> np.ndarray:
        """P[u | t] of every feature in parts of 2^62, `[features, t, u]`."""
        found = {epsilon: bin_law(epsilon, self.bins) for epsilon in set(self.epsilons)}
        return np.stack([found[epsilon] for epsilon in self.epsilons])

    @cached_property
    def _bounds(self) -> np.ndarray:
        """Where a uniform whole number below 2^62 passes to the next bin, `[features, t, k - 1]`."""
        return np.cumsum(self.laws, axis=2)[:, :, :-1]

    @cached_property
    def _middles(self) -> np.ndarray:
        """The middle of every bin, in the public range."""
        return self.estimate(np.arange(self.bins))

    def bins_of(self, values: Any) -> np.ndarray:
        """The bin of every value, clipped to the range."""
        rows = np.clip(rows_of(values, self.dimensions).astype(np.float64, copy=False), self.low, self.high)
        return np.minimum(self.bins * ((rows - self.low) / (self.high - self.low)), self.bins - 1).astype(np.int64)

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """One bin per feature, uint8 `[people, features]`."""
        source = rng if rng is not None else os_generator()
        rows = rows_of(values, self.dimensions)
        report = np.empty(rows.shape, dtype=np.uint8)
        block = max(1, _NUMBERS_AT_ONCE // (self.dimensions * self.bins))
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            report[part] = self._draw(self.bins_of(rows[part]), source)
        return report

    def _draw(self, places: np.ndarray, rng: Randomness) -> np.ndarray:
        uniform = rng.integers(0, PARTS_OF_ONE, places.shape)
        passed = uniform[:, :, None] >= self._bounds[np.arange(self.dimensions), places]
        drawn: np.ndarray = passed.sum(axis=2)
        return drawn

    def estimate(self, report: Any) -> np.ndarray:
        """The middle of every reported bin."""
        return self.low + (self.high - self.low) * (np.asarray(report) + 0.5) / self.bins

    def bias(self, values: Any) -> np.ndarray:
        """How far the mean estimate is from the value."""
        rows = rows_of(values, self.dimensions)
        return self._moment(rows, 1) - np.clip(rows, self.low, self.high)

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of `estimate(perturb(values))`, around its own mean."""
        rows = rows_of(values, self.dimensions)
        return self._moment(rows, 2) - self._moment(rows, 1) ** 2

    def _moment(self, rows: np.ndarray, power: int) -> np.ndarray:
        moments = (self.laws / PARTS_OF_ONE) @ self._middles**power
        found: np.ndarray = moments[np.arange(self.dimensions), self.bins_of(rows)]
        return found

    def law(self, value: Any) -> tuple[np.ndarray, np.ndarray]:
        """Every report and its probability for one vector. Only for few features: there are k^d."""
        places = self.bins_of(value)[0]
        rows = self.laws[np.arange(self.dimensions), places] / PARTS_OF_ONE
        return product_law([(np.arange(self.bins, dtype=np.uint8), row) for row in rows])

    def inputs(self) -> Sequence[np.ndarray]:
        """One vector for each bin, with all features in it."""
        return [np.full(self.dimensions, middle) for middle in self._middles]

    def extreme_inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """All features at the top, all at the bottom."""
        return np.full(self.dimensions, self.high), np.full(self.dimensions, self.low)

    def log_ratio(self, report: Any, high: Any, low: Any) -> np.ndarray:
        """One column: features have budgets of their own, so a report is one part."""
        every = np.arange(self.dimensions)
        top, bottom = (self.laws[every, self.bins_of(end)[0]].astype(np.float64) for end in (high, low))
        found: np.ndarray = log_quotient(top, bottom)[every, np.asarray(report)].sum(axis=1, keepdims=True)
        return found

    def realized_by_feature(self) -> np.ndarray:
        """The epsilon of every feature, by enumeration of its law over all bins."""
        laws = self.laws
        found: np.ndarray = (np.log(laws.max(axis=1)) - np.log(laws.min(axis=1))).max(axis=1)
        return found

    def realized(self) -> float:
        """Features are drawn independently of each other, so their epsilons add up."""
        return math.fsum(self.realized_by_feature())
