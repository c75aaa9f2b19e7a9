"""The hybrid mechanism (Wang et al. 2019): a coin decides between Piecewise and Duchi, both at the full epsilon.

The coin does not depend on the value, so the mixture keeps `epsilon` even for someone who sees which one was used.
With Piecewise chosen with probability 1 - e^(-eps/2) the variance no longer depends on the value; below eps = 0.61 the
best mixture is Duchi alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushgraph.local.base import ContinuousMechanism, coth_half, draw_signs
from hushgraph.local.duchi import Duchi
from hushgraph.local.piecewise import Piecewise
from hushgraph.local.randomness import Randomness

DUCHI_ONLY_BELOW = math.log(
    (
        -5.0
        + 2.0 * (6353.0 - 405.0 * math.sqrt(241.0)) ** (1.0 / 3.0)
        + 2.0 * (6353.0 + 405.0 * math.sqrt(241.0)) ** (1.0 / 3.0)
    )
    / 27.0
)
"""About 0.61: up to here the worst-case variance is smallest without Piecewise."""


@dataclass(frozen=True)
class Hybrid(ContinuousMechanism):
    """Mixture of Piecewise and Duchi. Formal guarantee: `epsilon`-local DP per number. Report: a float.

    The law has a continuous part (`density`) and two atoms (`law`); neither alone sums to one.
    """

    @cached_property
    def piecewise_probability(self) -> float:
        """How often Piecewise is used."""
        return 0.0 if self.epsilon <= DUCHI_ONLY_BELOW else -math.expm1(-self.epsilon / 2.0)

    @cached_property
    def _piecewise(self) -> Piecewise:
        return Piecewise(self.epsilon, -1.0, 1.0)

    @cached_property
    def _duchi(self) -> Duchi:
        return Duchi(self.epsilon, -1.0, 1.0)

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        smooth = self._piecewise._draw(unit, rng)
        atoms = coth_half(self.epsilon) * draw_signs(unit, self.epsilon, rng)
        return np.where(rng.random(unit.shape) < self.piecewise_probability, smooth, atoms)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return report.astype(np.float64)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        """Both parts are unbiased, so the variances mix."""
        share = self.piecewise_probability
        return share * self._piecewise._unit_variance(unit) + (1.0 - share) * self._duchi._unit_variance(unit)

    def density(self, value: float, report: np.ndarray) -> np.ndarray:
        """Density of the continuous part (total mass `piecewise_probability`)."""
        return self.piecewise_probability * self._piecewise.density(float(self.to_unit(value)), report)

    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """The two atoms and their probabilities (total mass 1 - `piecewise_probability`)."""
        signs, probabilities = self._duchi.law(float(self.to_unit(value)))
        return signs * self._duchi.bound, (1.0 - self.piecewise_probability) * probabilities

    def report_range(self) -> tuple[float, float]:
        """Range of the continuous part."""
        return self._piecewise.report_range()
