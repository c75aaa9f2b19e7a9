"""What every local mechanism for one number has in common.

A local mechanism runs on a person's device. It takes a private value in a public range, draws a random *report*, and
only the report leaves the device. Three things are promised by every class built on `ScalarMechanism`:

- *privacy*: for any two values x, x' and any set of reports S, P[report in S | x] <= e^epsilon P[report in S | x'];
- *no bias*: the mean of `estimate(report)` is the (clipped) value;
- *known error*: `variance(value)` is the exact variance of that estimate.

Values are clipped to [low, high], which is public and fixed before any value is looked at; taking it from the data
would break the promise. Inside, values are moved to [-1, 1] ("unit" values), where each mechanism is defined.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.randomness import Randomness, os_generator

LARGEST_EPSILON = 30.0
"""Per number. Above this a 53-bit uniform cannot realize the unlikely reports; such a budget promises nothing."""


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse a budget that is not a positive finite number within floating-point reach."""
    if not (isinstance(epsilon, int | float) and math.isfinite(epsilon) and 0 < epsilon <= LARGEST_EPSILON):
        raise InputError(
            f"expected {name} in (0, {LARGEST_EPSILON:g}]; got {epsilon!r}; give the budget one report may spend"
        )


def check_range(low: float, high: float) -> None:
    """Refuse a range that is empty, infinite or not a number."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise InputError(f"expected a public range with low < high; got [{low}, {high}]; state the range without data")


def finite(values: Any) -> np.ndarray:
    """`values` as floats; NaN and infinities are refused, because clipping would hide them."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"expected numbers; got an array of type {array.dtype}; convert the values first")
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError("expected finite values; got NaN or infinity; fill or drop missing values before perturbing")
    return array


def coth_half(epsilon: float) -> float:
    """(e^epsilon + 1) / (e^epsilon - 1), stable for small and large epsilon."""
    return 1.0 / math.tanh(epsilon / 2.0)


def small_side(epsilon: float) -> float:
    """1 / (e^epsilon + 1), the smallest probability a two-outcome mechanism may give, without cancellation."""
    return math.exp(-epsilon) / (1.0 + math.exp(-epsilon))


def flip_probability(unit: np.ndarray, epsilon: float) -> np.ndarray:
    """Probability that a sign report points away from the sign of `unit`: at most 1/2, exact near its minimum.

    Drawing the *unlikely* side by `uniform < probability` keeps a 53-bit uniform on the safe side: the realized
    probability is rounded up, so the realized epsilon never exceeds the stated one.
    """
    probability = 1.0 - np.abs(unit)
    probability *= 0.5 * math.tanh(epsilon / 2.0)
    probability += small_side(epsilon)
    return probability


def draw_signs(unit: np.ndarray, epsilon: float, rng: Randomness) -> np.ndarray:
    """Signs in {-1, +1} with mean `unit * tanh(epsilon / 2)`: the core of one-bit, multi-bit and Duchi."""
    flipped = rng.random(unit.shape) < flip_probability(unit, epsilon)
    plus = np.not_equal(unit >= 0, flipped)
    return (2 * plus.view(np.int8) - 1).astype(np.int8, copy=False)


@dataclass(frozen=True)
class ScalarMechanism(ABC):
    """A mechanism for one number in a public range. Arrays are perturbed element by element.

    Each *element* spends `epsilon`. A person who sends several elements spends the sum: use `PerFeature` to state
    that total or `SampledFeatures` to keep it fixed.
    """

    epsilon: float
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_range(self.low, self.high)

    @property
    def center(self) -> float:
        """Middle of the public range."""
        return self.low + (self.high - self.low) / 2.0

    @property
    def half_width(self) -> float:
        """Half the length of the public range."""
        return (self.high - self.low) / 2.0

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Random reports for `values`, clipped to the public range; same shape. Randomness: the OS by default."""
        unit = np.atleast_1d(self.to_unit(values))
        report = self._draw(unit, rng if rng is not None else os_generator())
        return report.reshape(np.shape(values))

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased estimates of the values behind `report`; post-processing, costs nothing."""
        return self.center + self.half_width * self._unit_estimate(np.asarray(report))

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of `estimate(perturb(values))`, element by element."""
        return self.half_width**2 * self._unit_variance(self.to_unit(values))

    def to_unit(self, values: Any) -> np.ndarray:
        """Clip to [low, high] and move to [-1, 1]."""
        clipped = np.clip(finite(values).astype(np.float64, copy=False), self.low, self.high)
        return np.clip((clipped - self.center) / self.half_width, -1.0, 1.0)

    def describe(self) -> str:
        """One sentence on what one report spends."""
        return f"{type(self).__name__}: each number in [{self.low:g}, {self.high:g}] spends epsilon {self.epsilon:g}"

    @abstractmethod
    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray: ...

    @abstractmethod
    def _unit_estimate(self, report: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _unit_variance(self, unit: np.ndarray) -> np.ndarray: ...


class DiscreteMechanism(ScalarMechanism):
    """A scalar mechanism with finitely many reports, whose law can be written down and checked exactly."""

    @abstractmethod
    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """All possible reports, and the probability of each when the private value is `value`."""


class ContinuousMechanism(ScalarMechanism):
    """A scalar mechanism whose report has a density.

    Floating-point noise has gaps that can tell inputs apart, so reports are rounded to a public grid far coarser than
    those gaps and far finer than the noise (2^-20 of the noise scale). Rounding is post-processing of the exact law.
    """

    @abstractmethod
    def density(self, value: float, report: np.ndarray) -> np.ndarray:
        """Density of `report`, before rounding to the grid, when the private value is `value`."""

    @abstractmethod
    def report_range(self) -> tuple[float, float]:
        """An interval outside which the density ratio between two values no longer changes."""


def round_to_grid(values: np.ndarray, noise_scale: float) -> np.ndarray:
    """Round to multiples of the power of two next below 2^-20 of `noise_scale`."""
    grid = 2.0 ** (math.floor(math.log2(noise_scale)) - 20)
    return np.round(values / grid) * grid
