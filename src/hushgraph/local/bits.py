"""Randomizers whose report about a number is one of two or three values.

`OneBit` (Ding et al. 2017) and `Duchi` (Duchi, Jordan and Wainwright 2018) have the same law: a plus is the likelier
the closer the value is to `high`,

    P[+ | x] = 1/(e^eps + 1) + (x - low)/(high - low) * (e^eps - 1)/(e^eps + 1).

One sends it as a bit, the other as a sign; papers name both. `ThreeOutput` (Zhao et al. 2020) may also answer 0.
Proof: docs/proofs/local-features.md.

Random signs for very many numbers at once: the law of `bits.draw_signs`, for one random byte per number.

A number with probability p of a flip is flipped when U < p, U uniform. One random byte b fixes the first eight bits of
U, and for all but about one number in a hundred they decide: U < p whenever b + 1 <= 256 p, and never when b >= 256 p.
That much is done in whole arrays of small types, with a margin for their rounding errors. Where the margin is not kept,
53 more bits are drawn and the comparison is made exactly as `draw_signs` makes it, so the probabilities are those of
`bits.flip_probability`, rounded up by less than 2^-61 and never down: the realized epsilon cannot exceed the claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hushgraph.local.base import Randomness, ScalarMechanism, coth_half, small_side

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


_MARGIN = 0.25
_LEAST_SLOPE = 1e-30


@dataclass(frozen=True)
class ManySigns:
    """Signs about values in [low, high]; mean tanh(epsilon / 2) times the value moved to [-1, 1]."""

    epsilon: float
    low: float
    high: float

    def draw(self, values: np.ndarray, rng: Randomness) -> np.ndarray:
        """One sign in {-1, +1} per value, int8, same shape. Values outside the range are clipped."""
        if not self._is_quick:
            return draw_signs(self.unit(values), self.epsilon, rng)
        flat = values.reshape(-1)
        first = np.frombuffer(rng.bytes(flat.size), dtype=np.uint8)
        surely = self._surely_plus(flat)
        plus = first < surely
        open_places = np.flatnonzero(np.subtract(first, surely) <= 1)
        plus[open_places] = self._exactly(flat[open_places], first[open_places], rng)
        signs = plus.view(np.int8)
        signs *= 2
        signs -= 1
        return signs.reshape(values.shape)

    def unit(self, values: np.ndarray) -> np.ndarray:
        """Clip to [low, high] and move to [-1, 1]."""
        unit = np.clip(values, self.low, self.high, dtype=np.float64)
        unit -= self.low + (self.high - self.low) / 2.0
        unit /= (self.high - self.low) / 2.0
        return np.clip(unit, -1.0, 1.0, out=unit)

    @cached_property
    def _line(self) -> tuple[float, float]:
        """Slope and offset of 256 P[+1] as a function of the value."""
        slope = 256.0 * math.tanh(self.epsilon / 2.0) / (self.high - self.low)
        return slope, 256.0 * small_side(self.epsilon) - slope * self.low

    @cached_property
    def _is_quick(self) -> bool:
        """Whether float32 keeps 256 P[+1] within the margin: not for a range that is tiny or far from zero."""
        slope, offset = self._line
        error = 2.0**-22 * (slope * max(abs(self.low), abs(self.high)) + abs(offset) + 256.0)
        return error < _MARGIN / 2.0 and slope > _LEAST_SLOPE

    def _surely_plus(self, values: np.ndarray) -> np.ndarray:
        """How many of the 256 first bytes make the sign a plus whatever follows; at most one or two too few."""
        slope, offset = self._line
        with np.errstate(over="ignore"):
            scaled = values.astype(np.float32)
        scaled *= np.float32(slope)
        scaled += np.float32(offset - _MARGIN)
        # The same as clipping the values to the range: nobody's sign is surer than at its ends.
        least = 256.0 * small_side(self.epsilon) - _MARGIN
        most = 256.0 - 256.0 * small_side(self.epsilon) - _MARGIN
        return np.clip(scaled, max(0.0, least), min(255.0, most), out=scaled).astype(np.uint8)

    def _exactly(self, values: np.ndarray, first: np.ndarray, rng: Randomness) -> np.ndarray:
        """Whether the sign is a plus, for values that the first byte leaves open: U < p with 61 bits of U."""
        unit = self.unit(values)
        upper = unit >= 0
        # Small bytes mean plus: for the upper half of the range, where plus is likely, flips have the large bytes.
        byte = np.where(upper, 255.0 - first, first)
        flipped = rng.random(len(values)) < 256.0 * flip_probability(unit, self.epsilon) - byte
        return np.not_equal(upper, flipped)
