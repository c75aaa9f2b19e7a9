"""Randomizers whose report about a number is one of two or three values.

`OneBit` (Ding et al. 2017) and `Duchi` (Duchi, Jordan and Wainwright 2018) have the same law: a plus is the likelier
the closer the value is to `high`,

    P[+ | x] = 1/(e^eps + 1) + (x - low)/(high - low) * (e^eps - 1)/(e^eps + 1).

One sends it as a bit, the other as a sign; papers name both. `ThreeOutput` (Zhao et al. 2020) may also answer 0.
Proof: docs/proofs/local-features.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hushgraph.local.base import ScalarMechanism, coth_half, small_side
from hushgraph.local.randomness import Randomness

_FIRST_ZERO = math.log(2.0)
_LARGEST_ZERO = math.log((3.0 + math.sqrt(65.0)) / 2.0)


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


def sign_law(unit: float, epsilon: float) -> np.ndarray:
    """The probabilities of a minus and of a plus."""
    away = float(flip_probability(np.array(unit), epsilon))
    return np.array([away, 1.0 - away] if unit >= 0 else [1.0 - away, away])


@dataclass(frozen=True)
class OneBit(ScalarMechanism):
    """One random bit per number. Formal guarantee: `epsilon`-local DP per number. Report: uint8 in {0, 1}."""

    name = "one-bit"

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        return (draw_signs(unit, self.epsilon, rng) > 0).astype(np.uint8)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return (2.0 * report - 1.0) * coth_half(self.epsilon)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        return coth_half(self.epsilon) ** 2 - unit**2

    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0, 1], dtype=np.uint8), sign_law(unit, self.epsilon)


@dataclass(frozen=True)
class Duchi(ScalarMechanism):
    """Two-valued mechanism. Formal guarantee: `epsilon`-local DP per number. Report: the sign, int8 in {-1, +1}.

    The estimate is the report times B = (e^eps + 1)/(e^eps - 1). Its error is smallest at the ends of the range; no
    two-valued mechanism has a smaller worst error.
    """

    name = "duchi"

    @property
    def bound(self) -> float:
        """B, the magnitude of a unit estimate."""
        return coth_half(self.epsilon)

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        return draw_signs(unit, self.epsilon, rng)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return self.bound * report

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        return self.bound**2 - unit**2

    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([-1, 1], dtype=np.int8), sign_law(unit, self.epsilon)


def zero_probability(epsilon: float) -> float:
    """The probability of answering 0 at the middle of the range that minimizes the worst-case variance.

    Three regimes: 0 up to eps = ln 2, the root of a cubic in between, and e^eps/(e^eps + 2), the largest that the
    privacy constraint allows, from eps = ln((3 + sqrt 65)/2) on. The tests compare it with a brute-force search.
    """
    if epsilon < _FIRST_ZERO:
        return 0.0
    if epsilon > _LARGEST_ZERO:
        return 1.0 / (1.0 + 2.0 * math.exp(-epsilon))
    e = math.exp(epsilon)
    quadratic = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
    cubic = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
    angle = math.pi / 3 + math.acos(max(-1.0, min(1.0, -cubic / (2 * quadratic**1.5)))) / 3
    return max(0.0, (e**2 + 4 * e + 5 - 2 * math.sqrt(quadratic) * math.cos(angle)) / 6)


@dataclass(frozen=True)
class ThreeOutput(ScalarMechanism):
    """Three-valued mechanism. Formal guarantee: `epsilon`-local DP per number. Report: int8 in {-1, 0, +1}.

    0 has probability a at the middle of the range and a/e^eps at its ends, linear between them; a = 0 is Duchi.
    """

    name = "three-output"

    @cached_property
    def zero_at_center(self) -> float:
        """a, the probability of the report 0 when the value is the middle of the range."""
        return zero_probability(self.epsilon)

    @cached_property
    def away_at_end(self) -> float:
        """Probability of the opposite sign when the value is at an end: the smallest of that report."""
        return (1.0 - self.zero_at_center * math.exp(-self.epsilon)) / (math.exp(self.epsilon) + 1.0)

    @cached_property
    def bound(self) -> float:
        """C, the magnitude of a non-zero unit estimate: one over the mean sign at the end of the range."""
        return 1.0 / (self.away_at_end * math.expm1(self.epsilon))

    def _away_and_zero(self, unit: Any) -> tuple[Any, Any]:
        """Probabilities of the sign opposite to the value, and of zero: linear in the distance from the center."""
        distance = abs(unit)
        away_at_center = (1.0 - self.zero_at_center) / 2.0
        away = (1.0 - distance) * away_at_center + distance * self.away_at_end
        zero = self.zero_at_center * ((1.0 - distance) + distance * math.exp(-self.epsilon))
        return away, zero

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        away, zero = self._away_and_zero(unit)
        toward = np.where(unit >= 0, 1, -1)
        is_zero = rng.random(unit.shape) < zero
        flipped = rng.random(unit.shape) < away / (1.0 - zero)
        return np.where(is_zero, 0, np.where(flipped, -toward, toward)).astype(np.int8)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return self.bound * report

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        _, zero = self._away_and_zero(unit)
        return np.asarray(self.bound**2 * (1.0 - zero) - unit**2)

    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]:
        away, zero = self._away_and_zero(unit)
        toward = 1.0 - away - zero
        probabilities = [away, zero, toward] if unit >= 0 else [toward, zero, away]
        return np.array([-1, 0, 1], dtype=np.int8), np.array(probabilities)
