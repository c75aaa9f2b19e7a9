"""Randomizers whose report about a number is a place on a public grid.

Publications state these with densities. Here each has finitely many reports: the value is rounded at random to one of
T + 1 neighboring *positions*, without bias, and the report is a whole number whose law depends on the position alone.
The ratio of two probabilities is then e^eps exactly, for whole numbers drawn exactly, and no gap between floating-point
numbers can tell values apart. The variance is the published one to within a thousandth.

- `Piecewise` (Wang et al. 2019) and `Suboptimal` (PM-SUB, Zhao et al. 2020): likely near the value, uniform elsewhere;
- `Hybrid` (Wang et al. 2019): a coin chooses between Piecewise and Duchi;
- `Laplace`: two-sided geometric noise.

Proof: docs/proofs/local-features.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.base import Randomness, ScalarMechanism
from hushgraph.local.bits import Duchi

WINDOW = 256
"""Places of the likely window of a piecewise law."""

SCALE = 64
"""At least so many places in one scale of Laplace noise."""

_REACH = 40.0  # Laplace noise is cut off at so many scales, where e^-40 of it is left
_SMALLEST_LAPLACE = 1e-4
_INVERSION_ERROR = 2.0**-39  # in log probabilities, times the places of one scale; see the proof
_SMALL = 2.0**-8  # uniform numbers below this get more bits, so that all are precise for their size

DUCHI_ONLY_BELOW = math.log(
    (
        -5.0
        + 2.0 * (6353.0 - 405.0 * math.sqrt(241.0)) ** (1.0 / 3.0)
        + 2.0 * (6353.0 + 405.0 * math.sqrt(241.0)) ** (1.0 / 3.0)
    )
    / 27.0
)
"""About 0.61: up to here the worst-case variance of a mixture is smallest without Piecewise."""


class GridMechanism(ScalarMechanism):
    """A mechanism that rounds the value at random to a position 0..`travel` first."""

    @property
    @abstractmethod
    def travel(self) -> int:
        """T, the position of the upper end of the range."""

    def _position(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        """Random positions with mean (unit + 1)/2 * T. Privacy does not rest on how this is rounded."""
        below, rest = self._between(unit)
        return below + (rng.random(unit.shape) < rest)

    def _between(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The position below the value, and the chance of taking the next one."""
        place = (np.asarray(unit) + 1.0) * (self.travel / 2.0)
        below = np.clip(np.floor(place), 0.0, self.travel - 1.0)
        return below.astype(np.int64), np.clip(place - below, 0.0, 1.0)

    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """A mixture of the laws at two neighboring positions."""
        below, rest = (part.item() for part in self._between(np.array(unit)))
        reports, first = self._position_law(below)
        return reports, (1.0 - rest) * first + rest * self._position_law(below + 1)[1]

    @abstractmethod
    def _position_law(self, position: int) -> tuple[np.ndarray, np.ndarray]: ...


class PiecewiseFamily(GridMechanism):
    """The family: W likely places move with the value over T + W places; `shape_exponent` s sets T/W = t = e^(eps s).

    In unit terms, with continuous reports: range [-A, A] for A = (e^eps + t)(t + 1)/(t (e^eps - 1)), window of length
    2 (e^eps + t)/(t (e^eps - 1)), and P[inside] = e^eps/(e^eps + t).
    """

    shape_exponent: ClassVar[float]

    @cached_property
    def travel(self) -> int:
        """T, which is also the number of places outside the window."""
        return round(WINDOW * math.exp(self.epsilon * self.shape_exponent))

    @cached_property
    def places(self) -> int:
        """How many reports there are."""
        return self.travel + WINDOW

    @cached_property
    def outside_probability(self) -> float:
        """Probability that the report is drawn outside the window: T/(W e^eps + T)."""
        ratio = self.travel / WINDOW * math.exp(-self.epsilon)
        return ratio / (1.0 + ratio)

    @cached_property
    def step(self) -> float:
        """How far one place moves the unit estimate: the window's extra mass times T/2 is the mean at the upper end."""
        extra = (1.0 - self.outside_probability) * -math.expm1(-self.epsilon)
        return 2.0 / (extra * self.travel)

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        window = self._position(unit, rng)
        inside = window + rng.integers(0, WINDOW, unit.shape)
        outside = rng.integers(0, self.travel, unit.shape)
        outside += WINDOW * (outside >= window)
        return np.where(rng.random(unit.shape) < self.outside_probability, outside, inside)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return self.step * (report - (self.places - 1) / 2.0)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        """Second moments, in places around the middle, of all places and of the window's extra mass."""
        _, rest = self._between(unit)
        each = self.outside_probability / self.travel
        extra = (1.0 - self.outside_probability) / WINDOW - each
        center = (unit * self.travel / 2.0) ** 2 + rest * (1.0 - rest)
        window = WINDOW * (center + (WINDOW**2 - 1) / 12.0)
        return np.asarray(self.step**2 * (each * self.places * (self.places**2 - 1) / 12.0 + extra * window) - unit**2)

    def _position_law(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        probabilities = np.full(self.places, self.outside_probability / self.travel)
        probabilities[position : position + WINDOW] = (1.0 - self.outside_probability) / WINDOW
        return np.arange(self.places), probabilities


@dataclass(frozen=True)
class Piecewise(PiecewiseFamily):
    """The piecewise mechanism, t = e^(eps/2). Formal guarantee: `epsilon`-local DP per number. Report: a place."""

    name = "piecewise"
    shape_exponent = 1.0 / 2.0


@dataclass(frozen=True)
class Suboptimal(PiecewiseFamily):
    """PM-SUB, t = e^(eps/3): its worst variance is within a few percent of the best t's. Else as `Piecewise`."""

    name = "suboptimal"
    shape_exponent = 1.0 / 3.0


@dataclass(frozen=True)
class Hybrid(ScalarMechanism):
    """Mixture of Piecewise and Duchi. Formal guarantee: `epsilon`-local DP per number. Report: a place or a sign.

    The coin does not depend on the value, so the mixture keeps `epsilon` even for someone who sees which one was used:
    reports below `places` are places of Piecewise, the next two are Duchi's minus and plus. With Piecewise chosen with
    probability 1 - e^(-eps/2) the variance does not depend on the value.
    """

    name = "hybrid"

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

    @property
    def places(self) -> int:
        """How many reports are places of Piecewise."""
        return self._piecewise.places if self.piecewise_probability else 0

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        signs = self.places + (self._duchi._draw(unit, rng) > 0)
        if not self.places:
            return signs
        chosen = rng.random(unit.shape) < self.piecewise_probability
        return np.where(chosen, self._piecewise._draw(unit, rng), signs)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        signs = np.sign(2 * (report - self.places) - 1)
        return np.where(report < self.places, self._piecewise._unit_estimate(report), self._duchi.bound * signs)

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        """Both parts are unbiased, so the variances mix."""
        share = self.piecewise_probability
        return share * self._piecewise._unit_variance(unit) + (1.0 - share) * self._duchi._unit_variance(unit)

    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]:
        share = self.piecewise_probability
        places = share * self._piecewise._unit_law(unit)[1] if self.places else np.empty(0)
        signs = (1.0 - share) * self._duchi._unit_law(unit)[1]
        return np.arange(self.places + 2), np.concatenate([places, signs])


@dataclass(frozen=True)
class Laplace(GridMechanism):
    """Laplace noise of scale (high - low)/epsilon. Formal guarantee: `epsilon`-local DP per number. Report: a place.

    The noise is two-sided geometric on the positions, cut off 40 scales beyond the range. `spent` is a little less than
    `epsilon`: the difference pays for the rounding of the logarithms that the noise is drawn with.
    """

    name = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < _SMALLEST_LAPLACE:
            raise InputError(
                f"expected epsilon of at least {_SMALLEST_LAPLACE:g} for laplace; got {self.epsilon:g}; use one-bit"
            )

    @property
    def scale(self) -> float:
        """Scale of the noise in the units of the value."""
        return (self.high - self.low) / self.spent

    @cached_property
    def travel(self) -> int:
        """T: a power of two with at least 64 positions in one scale."""
        return max(2, 2 ** math.ceil(math.log2(SCALE * self.epsilon)))

    @cached_property
    def spent(self) -> float:
        """The epsilon of the law that is written down."""
        return self.epsilon - _INVERSION_ERROR * self.travel / self.epsilon

    @cached_property
    def reach(self) -> int:
        """How many places beyond the range a report may lie."""
        return math.ceil(_REACH * self.travel / self.spent)

    @property
    def _decay(self) -> float:
        """-log of the ratio of two neighboring probabilities."""
        return self.spent / self.travel

    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray:
        noise = self._geometric(unit.shape, rng) - self._geometric(unit.shape, rng)
        return np.clip(self._position(unit, rng) + noise, -self.reach, self.travel + self.reach)

    def _geometric(self, shape: tuple[int, ...], rng: Randomness) -> np.ndarray:
        """P[k] = (1 - r) r^k, r = e^-decay, by inversion of a uniform number of which small values have 159 bits."""
        uniform = rng.random(math.prod(shape))
        small = np.flatnonzero(uniform < _SMALL)
        uniform[small] += 2.0**-53 * (rng.random(len(small)) + 2.0**-53 * rng.random(len(small)))
        with np.errstate(divide="ignore"):
            count = np.log(uniform) / -self._decay
        return np.clip(count, 0.0, 2.0 * (self.travel + self.reach)).astype(np.int64).reshape(shape)

    def _unit_estimate(self, report: np.ndarray) -> np.ndarray:
        return 2.0 * report / self.travel - 1.0

    def _unit_variance(self, unit: np.ndarray) -> np.ndarray:
        _, rest = self._between(unit)
        noise = 2.0 * math.exp(-self._decay) / math.expm1(-self._decay) ** 2
        return np.asarray((noise + rest * (1.0 - rest)) * (2.0 / self.travel) ** 2)

    def _position_law(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        reports = np.arange(-self.reach, self.travel + self.reach + 1)
        weight = np.exp(-self._decay * np.abs(reports - position))
        # The two ends stand for all that lies beyond them.
        weight[[0, -1]] /= -math.expm1(-self._decay)
        return reports, weight * math.tanh(self._decay / 2.0)
