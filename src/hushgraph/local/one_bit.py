"""The one-bit mechanism (Ding et al. 2017), the collection step of private graph convolution.

The device sends a single bit. The closer the value is to `high`, the likelier a 1:

    P[1 | x] = 1/(e^eps + 1) + (x - low)/(high - low) * (e^eps - 1)/(e^eps + 1)

Proof: docs/proofs/local-features.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgraph.local.base import DiscreteMechanism, coth_half, draw_signs, flip_probability
from hushgraph.local.randomness import Randomness


@dataclass(frozen=True)
class OneBit(DiscreteMechanism):
    """One random bit per number. Formal guarantee: `epsilon`-local DP per number. Report: uint8 in {0, 1}."""

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        return (draw_signs(unit, self.epsilon, rng) > 0).astype(np.uint8)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return (2.0 * report - 1.0) * coth_half(self.epsilon)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        return coth_half(self.epsilon) ** 2 - unit**2

    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """Reports 0 and 1 and their probabilities."""
        unit = self.to_unit(value)
        away = float(flip_probability(unit, self.epsilon))
        probabilities = [away, 1.0 - away] if unit >= 0 else [1.0 - away, away]
        return np.array([0, 1], dtype=np.uint8), np.array(probabilities)
