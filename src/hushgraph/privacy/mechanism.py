"""A mechanism: the only code that sees raw data, with everything that is known about it in one place.

A mechanism is a frozen dataclass of public parameters. It says which parts of a dataset it `reads`, how far one unit
can move its answer (`sensitivity`), how to answer without noise (`query`) and with it (`release`), what a release
costs (`event`), and how to try to catch it (`canary`). One file of `hushgraph.mechanisms` holds one of them; its proof
is docs/proofs/<proof>.md.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hushgraph import registry
from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.units import Unit

if TYPE_CHECKING:
    from hushgraph.privacy.plan import Stage

Law = Literal[
    "gaussian",
    "discrete-laplace",
    "randomized-response",
    "noisy-top",
    "exponential",
    "randomizer",
    "selection",
    "none",
]


@dataclass(frozen=True)
class Mechanism(ABC):
    """Base of all mechanisms.

    `law` is that of the noise, `sampling` how examples are drawn (None: all of them count). A mechanism that `trains`
    changes the module it is given instead of returning a value, so inference leaves it out. One of `whole_runs` carries
    out plans of its own and covers what they release. What is proved of an `asymptotic` one holds in the limit of a
    long chain, and not exactly for the chain that is run; certificates say so.
    """

    kind: ClassVar[registry.Kind] = "mechanisms"
    name: ClassVar[str]
    proof: ClassVar[str]
    law: ClassVar[Law] = "gaussian"
    trains: ClassVar[bool] = False
    takes_class_weights: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False
    takes_edge_weights: ClassVar[bool] = False
    takes_edge_types: ClassVar[bool] = False
    takes_workers: ClassVar[bool] = False
    takes_ranks: ClassVar[bool] = False
    whole_runs: ClassVar[bool] = False
    sampling: ClassVar[Literal["poisson"] | None] = None
    asymptotic: ClassVar[bool] = False
    released: ClassVar[str] = "a value"

    @property
    @abstractmethod
    def reads(self) -> frozenset[str]:
        """The parts of a dataset that are read, out of `edges`, `features`, `labels`; nothing else can be."""

    @abstractmethod
    def sensitivity(self, unit: Unit) -> float:
        """How far one unit can move one answer; infinite where no bound is proved."""

    @abstractmethod
    def query(self, data: Any, *inputs: Any, **options: Any) -> Any:
        """The answer without noise, bounded as the proof needs."""

    @abstractmethod
    def release(self, data: Any, scale: float, noise: Any, *inputs: Any, **options: Any) -> Any:
        """The answer with noise of the given scale, drawn from `noise`, a stream used for this one release."""

    @abstractmethod
    def event(self, unit: Unit, scale: float) -> Event:
        """What one release with noise of this scale costs."""

    def reference(self, unit: Unit) -> float:
        """The scale of noise that a relative noise of 1 stands for: the bound, unless a mechanism says otherwise."""
        return self.require(unit)

    def usable_scale(self, scale: float) -> float:
        """The least scale from `scale` on with which the noise can be drawn."""
        return scale

    def check(self, *inputs: Any) -> None:  # noqa: B027
        """Refuse inputs that the proof does not cover; called before anything is charged or read."""

    def claimed_event(self, unit: Unit, scale: float) -> Event:
        """What a publication would claim for a release, where that is more than can be proved."""
        return self.event(unit, scale)

    def as_published(self) -> Mechanism:
        """The mechanism as the publication of a method uses it, for paper mode."""
        return self

    def stays_private(self, unit: Unit) -> bool:
        """Whether the result is part of each node's own record, so that only a handle leaves the vault."""
        return False

    def canary(self, stage: Stage, unit: Unit, coins: Any, open_vault: Callable[..., Any], rng: Any) -> Any | None:
        """Evidence about planted units, or None where no canary is known (an audit then says so)."""
        return None

    def realized(self, unit: Unit, scale: float) -> float | None:
        """The epsilon that the law of one release realizes, by enumeration; None where it cannot be enumerated."""
        return None

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """How many canaries one run has room for."""
        return 1_000_000

    # What tests go through: every registered mechanism is checked against every unit (tests/test_matrix.py)

    @classmethod
    def variants(cls) -> Sequence[Mechanism]:
        """Typical mechanisms of this kind, for tables and tests."""
        return [cls()]

    def example_inputs(self, graph: Any) -> tuple[Any, ...]:
        """Inputs of `query` and `release` in which a node's part follows from its own record in `graph` alone."""
        return ()

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The numbers that `sensitivity` bounds (L1 for a pure mechanism, else L2), each in multiples of its noise."""
        return np.asarray(self.query(data, *inputs), dtype=np.float64)

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same numbers as released: each with noise of the given scale."""
        return np.asarray(self.release(data, scale, noise, *inputs), dtype=np.float64)

    # As data

    def to_tensors(self, value: Any) -> dict[str, Any]:
        """A released value as named tensors, for a model's folder."""
        return {"value": value}

    def from_tensors(self, tensors: dict[str, Any]) -> Any:
        """The inverse of `to_tensors`."""
        return tensors["value"]

    def require(self, unit: Unit) -> float:
        """The bound under a unit; one under which nothing is proved is refused."""
        bound = self.sensitivity(unit)
        if not math.isfinite(bound):
            raise UnprovenError(
                f"{self.name} has no proof under the unit '{unit.name}': no bound is known for {self.released}"
            )
        return bound

    def as_dict(self) -> dict[str, Any]:
        """The mechanism as plain JSON values; what is an empty tuple by default is left out as long as it is one."""
        own = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        empty = {one.name for one in dataclasses.fields(self) if one.default == () == own[one.name]}
        return {"name": self.name, **{name: _plain(value) for name, value in own.items() if name not in empty}}

    @classmethod
    def read(cls, values: dict[str, Any]) -> Mechanism:
        """The mechanism with these parameters, as `as_dict` gives them without the name; lists are tuples."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


@dataclass(frozen=True)
class GaussianMechanism(Mechanism):
    """A query of bounded L2 change, with Gaussian noise of standard deviation `scale` on a grid."""

    law = "gaussian"

    def event(self, unit: Unit, scale: float) -> Event:
        """One Gaussian with noise multiplier scale / sensitivity."""
        if scale == 0.0:
            return events.non_private()
        return events.gaussian(scale / self.require(unit))


@dataclass(frozen=True)
class PureMechanism(Mechanism):
    """A release that is purely epsilon-DP, with epsilon = sensitivity (L1) / scale.

    The discrete Laplace law is drawn for whole scales only: another scale is rounded up in a plan and refused here.
    """

    law: ClassVar[Law] = "discrete-laplace"

    def event(self, unit: Unit, scale: float) -> Event:
        """Pure epsilon."""
        if scale == 0.0:
            return events.non_private()
        bound = self.require(unit)
        if scale != self.usable_scale(scale):
            raise InputError(f"{self.name}: expected a whole scale of noise of at least 1; got {scale!r}")
        return events.pure(bound / scale)

    def realized(self, unit: Unit, scale: float) -> float | None:
        """Whole-number noise: the largest log ratio of P[k] ~ exp(-|k| / s) to the same law moved by the bound.

        The ratio is (|k - bound| - |k|) / s, largest at every k <= 0. Noise on several numbers that move by the bound
        together (L1) has the same largest ratio.
        """
        bound = self.sensitivity(unit)
        if self.law != "discrete-laplace" or not math.isfinite(bound):
            return None
        return bound / self.whole_scale(scale)

    @staticmethod
    def whole_scale(scale: float) -> int:
        """The scale that whole-number noise is sampled with: never below the one that is charged."""
        return max(1, math.ceil(scale))

    def usable_scale(self, scale: float) -> float:
        """The next whole number where the noise is discrete."""
        return float(self.whole_scale(scale)) if self.law == "discrete-laplace" and math.isfinite(scale) else scale

    def whole_scale_within(self, epsilon: float, unit: Unit) -> int:
        """The least whole scale of noise with which one release costs at most `epsilon`."""
        if not (math.isfinite(epsilon) and epsilon > 0.0):
            raise InputError(f"epsilon: expected a positive, finite number; got {epsilon!r}")
        bound = self.require(unit)
        scale = max(1, math.ceil(bound / epsilon))
        return scale if bound / scale <= epsilon else scale + 1  # the division above may have been rounded down


def mechanism_from_dict(values: dict[str, Any]) -> Mechanism:
    """The inverse of `Mechanism.as_dict`, for any registered mechanism."""
    rest = dict(values)
    try:
        found: Mechanism = registry.load("mechanisms", rest.pop("name")).read(rest)
        return found
    except (KeyError, TypeError) as error:
        raise InputError(f"expected a mechanism with its parameters; got {values!r}") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
