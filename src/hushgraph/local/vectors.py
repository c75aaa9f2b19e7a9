"""From one number to a vector of d features.

Sending every feature costs d times the epsilon of one. Two honest ways to deal with that:

- `SampledFeatures`: the device picks m of the d features at random, without looking at them, and spends epsilon/m on
  each. The total is `epsilon`; features that were not picked send nothing. The estimate is scaled by d/m to stay
  unbiased.
- `PerFeature`: every feature is sent; the total is d times the epsilon of one feature, and the object says so.

Either way a report is m or d independent parts, each drawn by `mechanism`.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.base import (
    LARGEST_EPSILON,
    Randomizer,
    Randomness,
    ScalarMechanism,
    check_total,
    finite,
    is_count,
    os_generator,
    share_of,
)


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
    if not is_count(dimensions, 1):
        raise InputError(f"expected dimensions >= 1; got {dimensions!r}; give the number of features")
    if not (is_count(sampled, 1) and sampled <= dimensions):
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
class VectorMechanism(Randomizer):
    """A randomizer for a vector of `dimensions` features, which sends some or all of them through `mechanism`."""

    mechanism: ScalarMechanism
    dimensions: int

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, ScalarMechanism):
            raise InputError(
                f"expected a randomizer of single numbers as mechanism; got {type(self.mechanism).__name__}; "
                "choose one of hushgraph.local.SCALARS"
            )
        check_dimensions(self.dimensions, 1)

    @property
    def epsilon(self) -> float:
        """Total for one vector."""
        return self.parts * self.mechanism.epsilon

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many features are sent."""

    @property
    def one_part(self) -> ScalarMechanism:
        """The mechanism of one sent feature."""
        return self.mechanism

    def inputs(self) -> Sequence[np.ndarray]:
        """Vectors with all features equal, across the range."""
        return [np.full(self.dimensions, value) for value in self.mechanism.inputs()]

    def extreme_inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """All features at the top, all at the bottom."""
        high, low = self.mechanism.extreme_inputs()
        return np.full(self.dimensions, high), np.full(self.dimensions, low)

    def _pair_numbers(self, high: Any, low: Any) -> tuple[np.ndarray, np.ndarray]:
        """The different pairs (high, low) over the features, and for every feature the number of its pair."""
        pairs = np.stack([np.broadcast_to(np.asarray(end, dtype=float), self.dimensions) for end in (high, low)])
        found, numbers = np.unique(pairs, axis=1, return_inverse=True)
        return found.T, numbers.reshape(-1)


@dataclass(frozen=True)
class SampledFeatures(VectorMechanism):
    """Spend a fixed epsilon on a whole vector: `sampled` random features, each through `mechanism`.

    Formal guarantee: m * mechanism.epsilon-local DP per vector. Build it with `SampledFeatures.with_total`.
    """

    sampled: int

    name = "sampled-features"

    def __post_init__(self) -> None:
        super().__post_init__()
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
        check_total(epsilon)
        check_dimensions(dimensions, 1 if sampled is None else sampled)
        if sampled is None:
            sampled = best_sampled(lambda share: kind(share, low, high), epsilon, dimensions)
        return cls(kind(share_of(epsilon, sampled), low, high), dimensions, sampled)

    @property
    def parts(self) -> int:
        """m, the number of features that are sent."""
        return self.sampled

    def perturb(self, values: Any, rng: Randomness | None = None) -> SampledReport:
        """Reports of `sampled` random features of each row."""
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

    def law(self, value: Any) -> tuple[SampledReport, np.ndarray]:
        """Every report and its probability for one vector. Only for few features: there are C(d, m) r^m."""
        laws = [self.mechanism.law(feature) for feature in rows_of(value, self.dimensions)[0]]
        subsets = list(itertools.combinations(range(self.dimensions), self.sampled))
        products = [product_law([laws[i] for i in chosen]) for chosen in subsets]
        index = np.repeat(np.array(subsets, dtype=np.int32), [len(reports) for reports, _ in products], axis=0)
        values = np.concatenate([reports for reports, _ in products])
        probabilities = np.concatenate([chances for _, chances in products]) / len(subsets)
        return SampledReport(index, values, self.dimensions), probabilities

    def log_ratio(self, report: SampledReport, high: Any, low: Any) -> np.ndarray:
        """One column for each sent feature; which were sent says nothing."""
        pairs, numbers = self._pair_numbers(high, low)
        group = numbers[report.index]
        found = np.empty(report.index.shape)
        for number, pair in enumerate(pairs):
            found[group == number] = self.mechanism.log_ratios(report.value[group == number], *pair)
        return found


@dataclass(frozen=True)
class PerFeature(VectorMechanism):
    """Send every feature through `mechanism`. Formal guarantee: d * mechanism.epsilon-local DP per vector.

    The form used by private graph convolution, whose published epsilon is the per-feature one.
    """

    name = "per-feature"

    @classmethod
    def with_total(
        cls, kind: type[ScalarMechanism], epsilon: float, dimensions: int, low: float = 0.0, high: float = 1.0
    ) -> PerFeature:
        """Split a total `epsilon` evenly: each feature gets epsilon/d."""
        check_total(epsilon)
        check_dimensions(dimensions, 1)
        return cls(kind(share_of(epsilon, dimensions), low, high), dimensions)

    @property
    def parts(self) -> int:
        """d: all features are sent."""
        return self.dimensions

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """One report per feature, (n, d)."""
        return self.mechanism.perturb(rows_of(values, self.dimensions), rng)

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased (n, d) estimates."""
        return self.mechanism.estimate(report)

    def variance(self, values: Any) -> np.ndarray:
        """Exact variance of each estimated feature."""
        return self.mechanism.variance(values)

    def law(self, value: Any) -> tuple[np.ndarray, np.ndarray]:
        """Every report and its probability for one vector. Only for few features: there are r^d."""
        return product_law([self.mechanism.law(feature) for feature in rows_of(value, self.dimensions)[0]])

    def log_ratio(self, report: Any, high: Any, low: Any) -> np.ndarray:
        """One column for each feature."""
        pairs, numbers = self._pair_numbers(high, low)
        reports = np.asarray(report)
        found = np.empty(reports.shape)
        for number, pair in enumerate(pairs):
            found[:, numbers == number] = self.mechanism.log_ratios(reports[:, numbers == number], *pair)
        return found


def product_law(laws: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """All combinations of independent reports, one row each, and their probabilities."""
    reports = np.meshgrid(*(reports for reports, _ in laws), indexing="ij")
    chances = np.meshgrid(*(chances for _, chances in laws), indexing="ij")
    return np.stack([part.ravel() for part in reports], axis=1), np.prod([part.ravel() for part in chances], axis=0)
