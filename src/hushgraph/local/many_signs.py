"""Random signs for very many numbers at once: the law of `bits.draw_signs`, for one random byte per number.

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

import numpy as np

from hushgraph.local.base import small_side
from hushgraph.local.bits import draw_signs, flip_probability
from hushgraph.local.randomness import Randomness

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
