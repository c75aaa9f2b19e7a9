"""From one number to a vector of d features.

Sending every feature costs d times the epsilon of one. Two honest ways to deal with that:

- `SampledFeatures`: the device picks m of the d features at random, without looking at them, and spends epsilon/m on
  each. The total is `epsilon`; features that were not picked send nothing. The estimate is scaled by d/m to stay
  unbiased.
- `PerFeature`: every feature is sent; the total is d times the epsilon of one feature, and the object says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.base import LARGEST_EPSILON, ScalarMechanism, finite
from hushgraph.local.randomness import Randomness, os_generator


@dataclass(frozen=True)
class SampledReport:
    """What `n` people sent: for each, `m` feature numbers (sorted) and one report for each of them."""

    index: np.ndarray
    value: np.ndarray
    dimensions: int

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or self.index.shape != self.value.shape:
            raise InputError(
                f"expected two equal (n, m) arrays; got {self.index.shape} and {self.value.shape}; check them"
            )

    def __len__(self) -> int:
        return len(self.index)

    def dense(self, dtype: Any = np.float64, fill: float = 0) -> np.ndarray:
        """The (n, d) matrix with the reports at their places and `fill` where nothing was sent."""
        matrix = np.full((len(self.index), self.dimensions), fill, dtype=dtype)
        np.put_along_axis(matrix, self.index.astype(np.intp), self.value.astype(dtype), axis=1)
        return matrix


def check_dimensions(dimensions: int, sampled: int) -> None:
    """Refuse sizes that make no sense."""
    if not (isinstance(dimensions, int | np.integer) and dimensions >= 1):
        raise InputError(f"expected dimensions >= 1; got {dimensions!r}; give the number of features")
    if not (isinstance(sampled, int | np.integer) and 1 <= sampled <= dimensions):
        raise InputError(f"expected 1 <= sampled <= {dimensions}; got {sampled!r}; leave it out to get the best one")


def rows_of(values: Any, dimensions: int) -> np.ndarray:
    """`values` as an (n, d) array of finite floats; one vector becomes one row."""
    array = finite(values)
    array = array[None, :] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != dimensions:
        raise InputError(f"expected rows of {dimensions} features; got shape {np.shape(values)}; check the columns")
    return array


def sample_dimensions(people: int, dimensions: int, sampled: int, rng: Randomness) -> np.ndarray:
    """For each person, `sampled` different feature numbers out of `dimensions`, uniformly, sorted; (n, m) int32.

    Few features: Floyd's algorithm over all people at once. Many: the smallest of d random keys.
    """
    if sampled == dimensions:
        return np.broadcast_to(np.arange(dimensions, dtype=np.int32), (people, dimensions))
    if sampled * sampled <= 4 * dimensions:
        return _floyd(people, dimensions, sampled, rng)
    block = max(1, 8_000_000 // dimensions)
    pieces = [_smallest_keys(min(block, people - start), dimensions, sampled, rng) for start in range(0, people, block)]
    return np.concatenate(pieces) if pieces else np.empty((0, sampled), dtype=np.int32)


def _floyd(people: int, dimensions: int, sampled: int, rng: Randomness) -> np.ndarray:
    chosen = np.empty((people, sampled), dtype=np.int32)
    for position, last in enumerate(range(dimensions - sampled, dimensions)):
        candidate = rng.integers(0, last + 1, people)
        taken = (chosen[:, :position] == candidate[:, None]).any(axis=1)
        chosen[:, position] = np.where(taken, last, candidate)
    return np.sort(chosen, axis=1)


def _smallest_keys(people: int, dimensions: int, sampled: int, rng: Randomness) -> np.ndarray:
    keys = rng.random((people, dimensions))
    return np.sort(np.argpartition(keys, sampled - 1, axis=1)[:, :sampled], axis=1).astype(np.int32)


def best_sampled(make: Callable[[float], ScalarMechanism], epsilon: float, dimensions: int) -> int:
    """The number of sampled features that makes the worst variance of one estimated feature smallest.

    `make(e)` builds the mechanism for one feature at budget e. Only public facts enter.
    """
    fewest = min(dimensions, max(1, math.ceil(epsilon / LARGEST_EPSILON)))
    candidates = range(fewest, min(dimensions, math.ceil(epsilon) + 1) + 1)
    return min(candidates, key=lambda m: _worst_variance(make(epsilon / m), dimensions, m))


def _worst_variance(mechanism: ScalarMechanism, dimensions: int, sampled: int) -> float:
    values = np.linspace(mechanism.low, mechanism.high, 201)
    return float(_sampled_variance(mechanism, values, dimensions, sampled).max())


def _sampled_variance(mechanism: ScalarMechanism, values: np.ndarray, dimensions: int, sampled: int) -> np.ndarray:
    """Variance of center + (d/m) [sampled] (estimate - center)."""
    offset = np.clip(values, mechanism.low, mechanism.high) - mechanism.center
    return (dimensions / sampled) * (mechanism.variance(values) + offset**2) - offset**2


@dataclass(frozen=True)
class SampledFeatures:
    """Spend `epsilon` on a whole vector: m random features, each through `mechanism` at epsilon/m.

    Formal guarantee: m * mechanism.epsilon-local DP per vector. Build it with `SampledFeatures.with_total`.
    """

    mechanism: ScalarMechanism
    dimensions: int
    sampled: int

    def __post_init__(self) -> None:
        check_dimensions(self.dimensions, self.sampled)

    @classmethod
    def with_total(
        cls,
        kind: type[ScalarMechanism],
        epsilon: float,
        dimensions: int,
        low: float = 0.0,
        high: float = 1.0,
        sampled: int | None = None,
    ) -> SampledFeatures:
        """A vector mechanism of class `kind` whose total is `epsilon`; `sampled` is chosen for least variance."""
        if sampled is None:
            sampled = best_sampled(lambda share: kind(share, low, high), epsilon, dimensions)
        return cls(kind(epsilon / sampled, low, high), dimensions, sampled)

    @property
    def epsilon(self) -> float:
        """Total for one vector."""
        return self.sampled * self.mechanism.epsilon

    def perturb(self, values: Any, rng: Randomness | None = None) -> SampledReport:
        """Reports of `sampled` random features of each row. Randomness: the OS by default."""
        source = rng if rng is not None else os_generator()
        rows = rows_of(values, self.dimensions)
        index = sample_dimensions(len(rows), self.dimensions, self.sampled, source)
        picked = np.take_along_axis(rows, index.astype(np.intp), axis=1)
        return SampledReport(index, self.mechanism.perturb(picked, source), self.dimensions)

    def estimate(self, report: SampledReport, dtype: Any = np.float64) -> np.ndarray:
        """Unbiased (n, d) estimates; features that were not sent are estimated by the middle of the range."""
        center = self.mechanism.center
        scaled = center + (self.dimensions / self.sampled) * (self.mechanism.estimate(report.value) - center)
        return SampledReport(report.index, scaled, self.dimensions).dense(dtype, fill=center)

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of each estimated feature, over the choice of features and the noise."""
        return _sampled_variance(self.mechanism, finite(values), self.dimensions, self.sampled)

    def describe(self) -> str:
        """One sentence on what one report spends."""
        return (
            f"{type(self.mechanism).__name__} on {self.sampled} of {self.dimensions} features, chosen at random: the "
            f"whole vector spends epsilon {self.epsilon:g} ({self.mechanism.epsilon:g} for each sent feature)"
        )


@dataclass(frozen=True)
class PerFeature:
    """Send every feature through `mechanism`. Formal guarantee: d * mechanism.epsilon-local DP per vector.

    The form used by private graph convolution, whose published epsilon is the per-feature one.
    """

    mechanism: ScalarMechanism
    dimensions: int

    def __post_init__(self) -> None:
        check_dimensions(self.dimensions, 1)

    @classmethod
    def with_total(
        cls, kind: type[ScalarMechanism], epsilon: float, dimensions: int, low: float = 0.0, high: float = 1.0
    ) -> PerFeature:
        """Split a total `epsilon` evenly: each feature gets epsilon/d."""
        check_dimensions(dimensions, 1)
        return cls(kind(epsilon / dimensions, low, high), dimensions)

    @property
    def epsilon(self) -> float:
        """Total for one vector: d times the epsilon of one feature."""
        return self.dimensions * self.mechanism.epsilon

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """One report per feature, (n, d)."""
        return self.mechanism.perturb(rows_of(values, self.dimensions), rng)

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased (n, d) estimates."""
        return self.mechanism.estimate(report)

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of each estimated feature."""
        return self.mechanism.variance(values)

    def describe(self) -> str:
        """One sentence on what one report spends; names the total, not only the share."""
        return (
            f"{type(self.mechanism).__name__} on all {self.dimensions} features: epsilon {self.mechanism.epsilon:g} "
            f"per feature, {self.epsilon:g} in total for one person"
        )
