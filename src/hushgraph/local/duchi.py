"""Duchi, Jordan and Wainwright's mechanism (2018) for one number.

The report is one of two values, +B or -B in unit terms, with B = (e^eps + 1)/(e^eps - 1), so that its mean is the
value. It has the same law as the one-bit mechanism followed by its rectifier; both are kept because the papers name
both. Its error is smallest at the ends of the range and it is the best two-valued mechanism for small epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgraph.local.base import DiscreteMechanism, coth_half, draw_signs, flip_probability
from hushgraph.local.randomness import Randomness


@dataclass(frozen=True)
class Duchi(DiscreteMechanism):
    """Two-valued mechanism. Formal guarantee: `epsilon`-local DP per number. Report: the sign, int8 in {-1, +1}."""

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

    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """Signs -1 and +1 and their probabilities."""
        unit = self.to_unit(value)
        away = float(flip_probability(unit, self.epsilon))
        probabilities = [away, 1.0 - away] if unit >= 0 else [1.0 - away, away]
        return np.array([-1, 1], dtype=np.int8), np.array(probabilities)
