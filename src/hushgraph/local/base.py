"""What every local randomizer has in common.

A randomizer runs on a person's device. It takes a private value, draws a random *report*, and only the report leaves
the device. It is a value itself: a frozen dataclass of public parameters, written by `as_dict` and read back by
`hushgraph.local.from_dict`, so that a plan can hold it and a ledger can store it. All of them promise:

- *privacy*: for any two values x, x' and any set of reports S, P[report in S | x] <= e^epsilon P[report in S | x'];
- *no bias*: the mean of `estimate(report)` is the value (clipped to its public range); `FeatureRR` alone has a bias;
- *known error*: `variance(value)` is the exact variance of that estimate;
- *a law that can be written down*: finitely many reports, whose probabilities `law` gives.

Ranges and class lists are public and fixed before any value is looked at; taking them from the data would break the
promise. Inside, numbers are moved to [-1, 1] ("unit" values), where each randomizer is defined.

Measure the epsilon a randomizer really has, by enumerating its law.

Over all the inputs of a finite set the result is exact. Over values of a range it is a lower bound on the true epsilon,
so a value above the claim is a proof of a mistake; the ends of the range are among them, where the ratios of all
randomizers here are largest.

Where local mechanisms get their randomness.

The default is the operating system's cryptographic source. `OsRandom` offers the draws the mechanisms need,
under the names and shapes of `numpy.random.Generator`, so a test may pass a seeded numpy generator instead. A
seeded generator must never be used on real answers: whoever knows the seed can subtract the noise.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from hushgraph.errors import InputError

LARGEST_EPSILON = 30.0
"""Per number. Above this a 53-bit uniform cannot realize the unlikely reports; such a budget promises nothing."""

GRID_OF_INPUTS = 33
"""How many values of a range are enumerated by default, both ends and the middle among them."""


def is_number(value: Any) -> bool:
    """Whether `value` is a finite real number (and not a truth value)."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: Any, least: int) -> bool:
    """Whether `value` is a whole number of at least `least`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse a budget that is not a positive finite number within floating-point reach."""
    if not (is_number(epsilon) and 0 < epsilon <= LARGEST_EPSILON):
        raise InputError(
            f"expected {name} in (0, {LARGEST_EPSILON:g}]; got {epsilon!r}; give the budget one report may spend"
        )


def check_total(epsilon: float) -> None:
    """Refuse a total that is not a positive finite number; it may be large when many parts share it."""
    if not (is_number(epsilon) and epsilon > 0):
        raise InputError(f"expected epsilon > 0; got {epsilon!r}; give the budget one report may spend")


def check_range(low: float, high: float) -> None:
    """Refuse a range that is empty, infinite or not a number."""
    if not (is_number(low) and is_number(high) and low < high and math.isfinite(high - low)):
        raise InputError(
            f"expected a public range with low < high; got [{low!r}, {high!r}]; state the range without data"
        )


def finite(values: Any) -> np.ndarray:
    """`values` as floats; NaN and infinities are refused, because clipping would hide them."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"expected numbers; got an array of type {array.dtype}; convert the values first")
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError("expected finite values; got NaN or infinity; fill or drop missing values before perturbing")
    return array


def share_of(total: float, parts: int) -> float:
    """The largest share with `parts * share <= total` in floating point: never a hair over the total."""
    share = total / parts
    while share > 0 and parts * share > total:
        share = math.nextafter(share, 0.0)
    return share


def coth_half(epsilon: float) -> float:
    """(e^epsilon + 1) / (e^epsilon - 1), stable for small and large epsilon."""
    return 1.0 / math.tanh(epsilon / 2.0)


def small_side(epsilon: float) -> float:
    """1 / (e^epsilon + 1), the smallest probability a two-outcome mechanism may give, without cancellation."""
    return math.exp(-epsilon) / (1.0 + math.exp(-epsilon))


class Randomizer(ABC):
    """One person's randomized report, as a value. `epsilon` is what the whole report spends.

    What an audit needs is here too, so that it asks for no type: a report may consist of `parts` that are drawn
    independently of each other by the same randomizer, `one_part`; their epsilons add up to `epsilon`.
    """

    name: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def epsilon(self) -> float:
            """What one report spends."""

    @abstractmethod
    def perturb(self, values: Any, rng: Randomness | None = None) -> Any:
        """Random reports for `values`. Randomness: the operating system's, unless a test passes a generator."""

    @abstractmethod
    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased estimates of the values behind `report`; post-processing, costs nothing."""

    @abstractmethod
    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of `estimate(perturb(values))`, element by element."""

    @abstractmethod
    def law(self, value: Any) -> tuple[Any, np.ndarray]:
        """Every possible report, as if each came from a person of its own, and its probability given `value`."""

    @abstractmethod
    def inputs(self) -> Sequence[Any]:
        """Inputs whose laws are worth comparing: all labels, or values across the whole range."""

    @abstractmethod
    def extreme_inputs(self) -> tuple[Any, Any]:
        """The top and the bottom input: some report tells these two apart by the whole epsilon."""

    @abstractmethod
    def log_ratio(self, report: Any, high: Any, low: Any) -> np.ndarray:
        """log P[part | high] / P[part | low] for every part of every report, `[people, parts]`."""

    @property
    def parts(self) -> int:
        """How many independent parts one report has."""
        return 1

    @property
    def one_part(self) -> Randomizer:
        """The randomizer of one part."""
        return self

    def realized(self) -> float:
        """The epsilon that a whole report really has, by enumeration: those of independent parts add up."""
        return self.parts * realized_epsilon(self.one_part)

    def as_dict(self) -> dict[str, Any]:
        """Name and parameters as plain JSON values; `from_dict` gives back an equal randomizer."""
        return {"name": self.name, **{field.name: _plain(getattr(self, field.name)) for field in _fields(self)}}


def _fields(randomizer: Any) -> Sequence[Any]:
    return fields(randomizer)


def _plain(value: Any) -> Any:
    if isinstance(value, Randomizer):
        return value.as_dict()
    if isinstance(value, tuple):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


def log_quotient(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """log(top / bottom) for probabilities; 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(top == bottom, 0.0, np.log(top) - np.log(bottom))


@dataclass(frozen=True)
class ScalarMechanism(Randomizer):
    """A randomizer for one number in a public range. Arrays are perturbed element by element.

    Each *element* spends `epsilon`. A person who sends several elements spends the sum: use `PerFeature` to state
    that total or `SampledFeatures` to keep it fixed.
    """

    epsilon: float
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_range(self.low, self.high)

    @property
    def center(self) -> float:
        """Middle of the public range."""
        return self.low + (self.high - self.low) / 2.0

    @property
    def half_width(self) -> float:
        """Half the length of the public range."""
        return (self.high - self.low) / 2.0

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Random reports for `values`, clipped to the public range; same shape."""
        unit = np.atleast_1d(self.to_unit(values))
        report = self._draw(unit, rng if rng is not None else os_generator())
        return report.reshape(np.shape(values))

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased estimates of the values behind `report`; same shape."""
        return self.center + self.half_width * self._unit_estimate(np.asarray(report))

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of `estimate(perturb(values))`, element by element."""
        return self.half_width**2 * self._unit_variance(self.to_unit(values))

    def law(self, value: float) -> tuple[np.ndarray, np.ndarray]:
        """All possible reports, ascending, and the probability of each when the private value is `value`."""
        return self._unit_law(float(self.to_unit(value)))

    def inputs(self) -> Sequence[float]:
        """Values across the range."""
        return [float(value) for value in np.linspace(self.low, self.high, GRID_OF_INPUTS)]

    def extreme_inputs(self) -> tuple[float, float]:
        """Both ends of the range."""
        return self.high, self.low

    def log_ratio(self, report: Any, high: float, low: float) -> np.ndarray:
        """One number for every report, `[people, 1]`."""
        return self.log_ratios(np.asarray(report), high, low).reshape(-1, 1)

    def log_ratios(self, report: np.ndarray, high: float, low: float) -> np.ndarray:
        """log P[report | high] / P[report | low] element by element; one that is never sent counts as the next."""
        reports, top = self.law(high)
        places = np.minimum(np.searchsorted(reports, report), len(reports) - 1)
        return log_quotient(top, self.law(low)[1])[places]

    def to_unit(self, values: Any) -> np.ndarray:
        """Clip to [low, high] and move to [-1, 1]."""
        clipped = np.clip(finite(values).astype(np.float64, copy=False), self.low, self.high)
        return np.clip((clipped - self.center) / self.half_width, -1.0, 1.0)

    @abstractmethod
    def _draw(self, unit: np.ndarray, rng: Randomness) -> np.ndarray: ...

    @abstractmethod
    def _unit_estimate(self, report: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _unit_variance(self, unit: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _unit_law(self, unit: float) -> tuple[np.ndarray, np.ndarray]: ...


def realized_epsilon(randomizer: Randomizer, inputs: Iterable[Any] | None = None) -> float:
    """The largest log ratio of report probabilities between any two of `inputs` (default: `randomizer.inputs()`)."""
    values = randomizer.inputs() if inputs is None else inputs
    return _largest_ratio(np.stack([randomizer.law(value)[1] for value in values]))


def _largest_ratio(table: np.ndarray) -> float:
    """Largest log(max/min) down any column; infinite when one input allows a report that another forbids."""
    highest, lowest = table.max(axis=0), table.min(axis=0)
    possible = highest > 0
    if (lowest[possible] <= 0).any():
        return math.inf
    return float(np.log(highest[possible] / lowest[possible]).max()) if possible.any() else 0.0


Shape = int | tuple[int, ...] | None


class Randomness(Protocol):
    """The draws a mechanism may make. `numpy.random.Generator` fits; so does `OsRandom`."""

    def random(self, size: Any = None) -> Any:
        """Uniform floats in [0, 1)."""
        ...

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Uniform integers in [low, high), or [0, low) when `high` is left out."""
        ...

    def bytes(self, length: int) -> bytes:
        """That many random bytes."""
        ...


class OsRandom:
    """Uniform numbers, whole numbers and bytes from `os.urandom`.

    It keeps no state: nothing can be replayed, and a forked process that goes on using its parent's object draws other
    numbers than the parent, because each draw asks the operating system.
    """

    def random(self, size: Shape = None) -> Any:
        """Uniform floats in [0, 1), multiples of 2^-53."""
        uniforms = (self._words(size) >> np.uint64(11)) * 2.0**-53
        return float(uniforms[0]) if size is None else uniforms.reshape(size)

    def integers(self, low: int, high: int | None = None, size: Shape = None) -> Any:
        """Exactly uniform integers in [low, high): words past the last full multiple are drawn again."""
        start, stop = (0, low) if high is None else (low, high)
        width = stop - start
        if not 0 < width < 2**63:
            raise InputError(f"expected an integer range that is not empty; got [{start}, {stop}); check the bounds")
        limit = np.uint64(2**64 - (2**64 % width) - 1)
        words = self._words(size)
        while (rejected := words > limit).any():
            words[rejected] = self._words(int(rejected.sum()))
        drawn = (words % np.uint64(width)).astype(np.int64) + start
        return int(drawn[0]) if size is None else drawn.reshape(size)

    def bytes(self, length: int) -> bytes:
        """That many random bytes."""
        return os.urandom(length)

    @staticmethod
    def _words(size: Shape) -> np.ndarray:
        """Fresh 64-bit words, flat."""
        return np.frombuffer(os.urandom(8 * _count(size)), dtype=np.uint64).copy()


def os_generator() -> OsRandom:
    """The source used whenever no generator is passed: operating-system entropy."""
    return OsRandom()


def _count(size: Shape) -> int:
    if size is None:
        return 1
    return math.prod(size) if isinstance(size, tuple) else int(size)
