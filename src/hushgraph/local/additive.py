"""Mechanisms that add noise: Laplace for one number, analytic Gaussian for a whole vector.

`Laplace` gives pure epsilon per number. `GaussianMechanism` protects a vector of d numbers at once by its L2
sensitivity sqrt(d) (high - low), with the exact calibration of Balle and Wang (2018): it holds for every epsilon,
unlike the classical sqrt(2 ln(1.25/delta))/epsilon, and it always costs a delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hushgraph.errors import CalibrationError, InputError
from hushgraph.local.base import ContinuousMechanism, check_epsilon, check_range, finite, round_to_grid
from hushgraph.local.randomness import Randomness, os_generator


@dataclass(frozen=True)
class Laplace(ContinuousMechanism):
    """Laplace noise of scale (high - low)/epsilon. Formal guarantee: `epsilon`-local DP per number. Report: a float."""

    @property
    def scale(self) -> float:
        """Scale of the noise in the units of the value."""
        return (self.high - self.low) / self.epsilon

    @property
    def _unit_scale(self) -> float:
        return 2.0 / self.epsilon

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        magnitude = -np.log1p(-rng.random(unit.shape))
        sign = 2.0 * rng.integers(0, 2, unit.shape) - 1.0
        return round_to_grid(unit + self._unit_scale * sign * magnitude, self._unit_scale)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return report.astype(np.float64)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        return np.full(np.shape(unit), 2.0 * self._unit_scale**2)

    def density(self, value: float, report: np.ndarray) -> np.ndarray:
        """Laplace density around the unit value."""
        distance = np.abs(np.asarray(report, dtype=np.float64) - self.to_unit(value))
        return np.exp(-distance / self._unit_scale) / (2.0 * self._unit_scale)

    def report_range(self) -> tuple[float, float]:
        """The ratio is constant outside the range of values; a little more is returned."""
        return -2.0, 2.0


def gaussian_delta(standard_deviation: float, sensitivity: float, epsilon: float) -> float:
    """The exact delta of Gaussian noise at `epsilon` (Balle and Wang 2018, Theorem 8)."""
    half = sensitivity / (2.0 * standard_deviation)
    drift = epsilon * standard_deviation / sensitivity
    lost = _normal_tail(half + drift)
    # e^eps * tail in logs; a tail that underflows to zero only makes delta larger, the safe side.
    weighted = math.exp(epsilon + math.log(lost)) if lost > 0 else 0.0
    return max(0.0, _normal_tail(drift - half) - weighted)


def calibrate_gaussian(sensitivity: float, epsilon: float, delta: float) -> float:
    """The smallest standard deviation with exact delta at most `delta`; never below it (bisection's upper end)."""
    low, high = 0.0, sensitivity
    while gaussian_delta(high, sensitivity, epsilon) > delta:
        low, high = high, 2.0 * high
        if not math.isfinite(high):
            raise CalibrationError(f"no noise scale found for epsilon {epsilon}, delta {delta}; raise one of them")
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if middle > 0 and gaussian_delta(middle, sensitivity, epsilon) <= delta:
            high = middle
        else:
            low = middle
    return high * (1.0 + 1e-9)


def _normal_tail(z: float) -> float:
    """P[N(0, 1) > z], accurate far in the tail."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


@dataclass(frozen=True)
class GaussianMechanism:
    """Analytic Gaussian noise on a vector. Formal guarantee: (`epsilon`, `delta`)-local DP per *vector*.

    The whole vector of `dimensions` numbers spends `epsilon` and `delta` once. Report: a float array of its shape.
    """

    epsilon: float
    delta: float
    dimensions: int = 1
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_range(self.low, self.high)
        if not 0.0 < self.delta < 1.0:
            raise InputError(f"expected delta in (0, 1); got {self.delta}; use Laplace if delta must be 0")
        if self.dimensions < 1:
            raise InputError(f"expected dimensions >= 1; got {self.dimensions}; give the length of one vector")

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance between two vectors of the public range."""
        return math.sqrt(self.dimensions) * (self.high - self.low)

    @cached_property
    def standard_deviation(self) -> float:
        """Noise on each number."""
        return calibrate_gaussian(self.sensitivity, self.epsilon, self.delta)

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Clip and add noise to rows of `dimensions` numbers. Randomness: the OS by default."""
        array = np.clip(self._rows(values).astype(np.float64, copy=False), self.low, self.high)
        noise = (rng if rng is not None else os_generator()).standard_normal(array.shape)
        return round_to_grid(array + self.standard_deviation * noise, self.standard_deviation)

    def estimate(self, report: Any) -> np.ndarray:
        """The report itself: the noise has mean zero."""
        return np.asarray(report, dtype=np.float64)

    def variance(self, values: Any) -> np.ndarray:
        """The same for every value."""
        return np.full(np.shape(values), self.standard_deviation**2)

    def density(self, value: float, report: np.ndarray) -> np.ndarray:
        """Density of one coordinate of the report."""
        clipped = min(max(float(value), self.low), self.high)
        z = (np.asarray(report, dtype=np.float64) - clipped) / self.standard_deviation
        return np.exp(-0.5 * z**2) / (self.standard_deviation * math.sqrt(2.0 * math.pi))

    def describe(self) -> str:
        """One sentence on what one report spends."""
        return (
            f"GaussianMechanism: a vector of {self.dimensions} numbers in [{self.low:g}, {self.high:g}] spends "
            f"epsilon {self.epsilon:g} and delta {self.delta:g}"
        )

    def _rows(self, values: Any) -> np.ndarray:
        array = finite(values)
        if self.dimensions > 1 and (array.ndim == 0 or array.shape[-1] != self.dimensions):
            raise InputError(f"expected vectors of {self.dimensions}; got shape {array.shape}; check the columns")
        return array
