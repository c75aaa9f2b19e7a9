"""The three-output mechanism (Zhao et al. 2020): -C, 0 or +C.

Answering 0 is allowed with probability a at the middle of the range and a/e^eps at its ends, linear between them; a = 0
gives Duchi's mechanism. The value of a that makes the worst-case variance smallest has three regimes:
0 up to eps = ln 2, the root of a cubic in between, and e^eps/(e^eps + 2), the largest the privacy constraint allows,
from eps = ln((3 + sqrt 65)/2) on. The tests compare it with a brute-force search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushgraph.local.base import DiscreteMechanism
from hushgraph.local.randomness import Randomness

_FIRST_ZERO = math.log(2.0)
_LARGEST_ZERO = math.log((3.0 + math.sqrt(65.0)) / 2.0)


def zero_probability(epsilon: float) -> float:
    """The probability of answering 0 at the middle of the range that minimizes the worst-case variance."""
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
class ThreeOutput(DiscreteMechanism):
    """Three-valued mechanism. Formal guarantee: `epsilon`-local DP per number. Report: int8 in {-1, 0, +1}."""

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

    def _away_and_zero(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of the sign opposite to the value, and of zero: linear in the distance from the center."""
        distance = np.abs(unit)
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
        return self.bound**2 * (1.0 - zero) - unit**2

    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """Reports -1, 0, +1 and their probabilities."""
        unit = self.to_unit(value)
        away, zero = (float(part) for part in self._away_and_zero(unit))
        toward = 1.0 - away - zero
        probabilities = [away, zero, toward] if unit >= 0 else [toward, zero, away]
        return np.array([-1, 0, 1], dtype=np.int8), np.array(probabilities)
