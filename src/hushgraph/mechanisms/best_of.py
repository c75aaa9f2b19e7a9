"""The best of a random number of runs: private selection. Proof: docs/proofs/selection.md.

It is made of whole plans, so its parts are mechanisms with proofs of their own; what it adds is how often they are
carried out, which nobody learns, and that only one of the results leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import mpmath

from hushgraph.errors import InputError, UnprovenError
from hushgraph.noise.discrete import uniform_below
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import BestOfDpEvent, Event, mean_runs
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit

_WORD, _WORDS = 32, 8
_BITS = _WORD * _WORDS
_DIGITS = 110
"""Decimal digits of the distribution function: well beyond the 256 bits it is compared with."""


@dataclass(frozen=True)
class BestOf(Mechanism):
    """K runs, each of one of the `candidates` at random, K from a truncated negative binomial law; the best is kept.

    The noise is that of the candidates, so a stage of this has a `scale` of 1 that means nothing.
    """

    candidates: tuple[Plan, ...]
    gamma: float
    shape: float = 0.0

    name = "best-of"
    proof = "selection"
    law = "selection"
    whole_runs = True
    released = "the best of several runs"

    def __post_init__(self) -> None:
        problems = []
        if not self.candidates or any(plan.branches or plan.paper is not None for plan in self.candidates):
            problems.append("candidates: expected plans without a choice of their own, not in paper mode; got others")
        if not 0.0 < self.gamma < 1.0 or not self.shape > -1.0:
            problems.append(f"expected gamma in (0, 1) and a shape above -1; got {self.gamma!r}, {self.shape!r}")
        InputError.collect(problems)

    @classmethod
    def of(cls, candidates: Sequence[Plan], mean: float, shape: float) -> Self:
        """With the number of runs that is `mean` on average."""
        return cls(tuple(candidates), gamma_for(mean, shape), shape)

    @property
    def reads(self) -> frozenset[str]:
        """Whatever one of the candidates reads."""
        return frozenset().union(*(stage.mechanism.reads for plan in self.candidates for stage in plan.stages))

    @property
    def mean(self) -> float:
        """The mean number of runs."""
        return mean_runs(self.gamma, self.shape)

    def sensitivity(self, unit: Unit) -> float:
        """1 where every part of every candidate is proved; the bounds are those of the parts."""
        stages = [stage for plan in self.candidates for stage in plan.stages if not stage.is_free(unit)]
        return 1.0 if all(math.isfinite(stage.mechanism.sensitivity(unit)) for stage in stages) else math.inf

    def event(self, unit: Unit, scale: float) -> Event:
        """What publishing the best costs."""
        if scale == 0.0 or not all(plan.budget.is_private for plan in self.candidates):
            return events.non_private()
        self.require(unit)
        return BestOfDpEvent(tuple(plan.ways(unit)[0] for plan in self.candidates), self.gamma, self.shape)

    def query(self, data: Any, *inputs: Any, **options: Any) -> NoReturn:
        """Runs are carried out by `methods.select`, each in a vault of its own."""
        raise UnprovenError("best-of: expected `fit_best`, which carries out whole runs; a vault cannot")

    def release(self, data: Any, scale: float, noise: Any, *inputs: Any, **options: Any) -> NoReturn:
        """As `query`."""
        self.query(data)

    def draw_runs(self, noise: NoiseSource) -> int:
        """How many runs to make: the law by its distribution function, compared with 256 fair bits."""
        with mpmath.workdps(_DIGITS):
            word = 0
            for _ in range(_WORDS):
                word = (word << _WORD) | uniform_below(1 << _WORD, noise)
            point = mpmath.mpf(word) / mpmath.mpf(2) ** _BITS
            return _quantile(point, mpmath.mpf(self.gamma), mpmath.mpf(self.shape))

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """None: its parts are in the matrix themselves."""
        return []

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        return cls(tuple(Plan.from_dict(one) for one in values["candidates"]), values["gamma"], values["shape"])


def _quantile(point: Any, gamma: Any, shape: Any) -> int:
    """The smallest k whose distribution function is above `point`."""
    odds = mpmath.log(1 / gamma) if shape == 0 else (gamma**-shape - 1) / shape
    runs, mass = 1, (1 - gamma) / odds
    below = mass
    smallest = mpmath.mpf(2) ** -(2 * _BITS)
    while below <= point and mass > smallest:
        mass *= (1 - gamma) * (runs + shape) / (runs + 1)
        below, runs = below + mass, runs + 1
    return runs


def gamma_for(mean: float, shape: float) -> float:
    """The gamma with this mean number of runs."""
    if not (math.isfinite(mean) and mean > 1.0) or not shape > -1.0:
        raise InputError(f"selection: expected a mean above 1 and a shape above -1; got {mean!r}, {shape!r}")
    low, high = 1e-9, 1.0 - 1e-9
    while high - low > 1e-15 * high:
        middle = math.sqrt(low * high)
        if middle in (low, high):
            break
        low, high = (middle, high) if mean_runs(middle, shape) > mean else (low, middle)
    return low
