"""Piecewise-constant mechanisms: the report is likely near the value and uniform elsewhere.

One family with a shape t > 0 (Zhao et al. 2020). In unit terms the report lies in [-A, A]; its density is e^eps times
higher inside a window [L(x), R(x)] that moves with the value:

    A = (e^eps + t)(t + 1) / (t (e^eps - 1)),   L, R = (e^eps + t)(x t -+ 1) / (t (e^eps - 1))
    P[inside] = e^eps / (e^eps + t)

`Piecewise` is t = e^(eps/2) (Wang et al. 2019); `Suboptimal` (PM-SUB) is t = e^(eps/3), whose worst-case variance is
within a few percent of the best t. Better than Duchi's mechanism for larger epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hushgraph.local.base import ContinuousMechanism, round_to_grid
from hushgraph.local.randomness import Randomness


@dataclass(frozen=True)
class _PiecewiseFamily(ContinuousMechanism):
    """The family; `shape_exponent` s fixes t = e^(eps s)."""

    shape_exponent: ClassVar[float]

    @cached_property
    def shape(self) -> float:
        """t."""
        return math.exp(self.epsilon * self.shape_exponent)

    @cached_property
    def slope(self) -> float:
        """(e^eps + t)/(e^eps - 1): how fast the window's center moves with the value."""
        return (1.0 + self.shape * math.exp(-self.epsilon)) / -math.expm1(-self.epsilon)

    @cached_property
    def half_window(self) -> float:
        """Half the length of the window."""
        return self.slope / self.shape

    @cached_property
    def bound(self) -> float:
        """A, the largest unit report."""
        return self.slope + self.half_window

    @cached_property
    def outside_probability(self) -> float:
        """Probability that the report is drawn outside the window."""
        ratio = self.shape * math.exp(-self.epsilon)
        return ratio / (1.0 + ratio)

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        left = self.slope * unit - self.half_window
        inside = left + 2.0 * self.half_window * rng.random(unit.shape)
        outside = -self.bound + 2.0 * self.slope * rng.random(unit.shape)
        outside = np.where(outside < left, outside, outside + 2.0 * self.half_window)
        chosen = np.where(rng.random(unit.shape) < self.outside_probability, outside, inside)
        return np.clip(round_to_grid(chosen, self.half_window), -self.bound, self.bound)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return report.astype(np.float64)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        """Mixture of two uniforms: second moment of [-A, A] at the low density plus the window's extra density."""
        low_density = self.outside_probability / (2.0 * self.slope)
        extra = (1.0 - self.outside_probability) / (2.0 * self.half_window) - low_density
        center = self.slope * unit
        window_moment = 2.0 * self.half_window * (center**2 + self.half_window**2 / 3.0)
        return low_density * 2.0 * self.bound**3 / 3.0 + extra * window_moment - unit**2

    def density(self, value: float, report: np.ndarray) -> np.ndarray:
        """Density of a unit report in [-A, A]; zero elsewhere."""
        report = np.asarray(report, dtype=np.float64)
        center = self.slope * self.to_unit(value)
        inside = np.abs(report - center) <= self.half_window
        heights = np.where(
            inside,
            (1.0 - self.outside_probability) / (2.0 * self.half_window),
            self.outside_probability / (2.0 * self.slope),
        )
        return np.where(np.abs(report) <= self.bound, heights, 0.0)

    def report_range(self) -> tuple[float, float]:
        """The whole range of reports."""
        return -self.bound, self.bound


@dataclass(frozen=True)
class Piecewise(_PiecewiseFamily):
    """The piecewise mechanism. Formal guarantee: `epsilon`-local DP per number. Report: a float in [-A, A]."""

    shape_exponent: ClassVar[float] = 1.0 / 2.0


@dataclass(frozen=True)
class Suboptimal(_PiecewiseFamily):
    """PM-SUB. Formal guarantee: `epsilon`-local DP per number. Report: a float in [-A, A]."""

    shape_exponent: ClassVar[float] = 1.0 / 3.0
