"""Local randomizers for a label: one of k public classes.

`RandomizedResponse` (k-RR) sends one class, the true one most often. `UnaryEncoding` sends k bits and has a smaller
error when there are many classes and epsilon is small. Both have an unbiased one-hot estimator; the mean of its rows
estimates the class frequencies. Proof: docs/proofs/local-labels.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.base import Randomizer, Randomness, check_epsilon, is_count, log_quotient, os_generator, small_side


def check_classes(classes: int) -> None:
    """Refuse fewer than two classes."""
    if not is_count(classes, 2):
        raise InputError(f"expected at least 2 classes; got {classes!r}; list the public classes")


def valid_labels(values: Any, classes: int) -> np.ndarray:
    """`values` as integer labels; anything outside 0..k-1 is refused rather than clipped."""
    labels = np.asarray(values)
    if labels.dtype.kind not in "iu":
        raise InputError(f"expected integer labels; got type {labels.dtype}; number the classes from 0")
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise InputError(f"expected labels in 0..{classes - 1}; got {labels.min()}..{labels.max()}; check the list")
    return labels.astype(np.int64)


@dataclass(frozen=True)
class LabelMechanism(Randomizer):
    """A randomizer for one of `classes` public classes."""

    epsilon: float
    classes: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_classes(self.classes)

    def inputs(self) -> Sequence[int]:
        """All classes."""
        return range(self.classes)

    def extreme_inputs(self) -> tuple[int, int]:
        """Any two classes differ equally; these are the first two."""
        return 1, 0


@dataclass(frozen=True)
class RandomizedResponse(LabelMechanism):
    """Generalized randomized response. Formal guarantee: `epsilon`-local DP per label. Report: a class number.

    The true class is sent with probability e^eps/(e^eps + k - 1), any other with 1/(e^eps + k - 1).
    """

    name = "randomized-response"

    @property
    def other_probability(self) -> float:
        """Probability of one given wrong class."""
        return math.exp(-self.epsilon) / (1.0 + (self.classes - 1) * math.exp(-self.epsilon))

    @property
    def true_probability(self) -> float:
        """Probability of the true class."""
        return 1.0 / (1.0 + (self.classes - 1) * math.exp(-self.epsilon))

    @property
    def transition(self) -> np.ndarray:
        """k x k matrix of P[report = column | label = row]; public, for forward correction."""
        off = np.full((self.classes, self.classes), self.other_probability)
        np.fill_diagonal(off, self.true_probability)
        return off

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Random reports for labels: a uniform class with probability k/(e^eps + k - 1), else the truth."""
        labels = np.atleast_1d(valid_labels(values, self.classes))
        source = rng if rng is not None else os_generator()
        replaced = source.random(labels.shape) < self.classes * self.other_probability
        uniform = source.integers(0, self.classes, labels.shape)
        return np.where(replaced, uniform, labels).reshape(np.shape(values))

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased one-hot estimates, shape (..., k)."""
        one_hot = np.eye(self.classes)[valid_labels(report, self.classes)]
        gap = self.true_probability - self.other_probability
        return (one_hot - self.other_probability) / gap

    def variance(self, values: Any) -> np.ndarray:
        """Variance of each entry of the one-hot estimate, shape (..., k)."""
        sent = self.transition[valid_labels(values, self.classes)]
        return sent * (1.0 - sent) / (self.true_probability - self.other_probability) ** 2

    def law(self, value: int) -> tuple[np.ndarray, np.ndarray]:
        """All classes and the probability of reporting each."""
        return np.arange(self.classes), self.transition[int(valid_labels(value, self.classes))]

    def log_ratio(self, report: Any, high: int, low: int) -> np.ndarray:
        """epsilon for a report of `high`, -epsilon for one of `low`, 0 for others; `[people, 1]`."""
        logs = log_quotient(self.law(high)[1], self.law(low)[1])
        return logs[valid_labels(report, self.classes)].reshape(-1, 1)


@dataclass(frozen=True)
class UnaryEncoding(LabelMechanism):
    """Unary encoding. Formal guarantee: `epsilon`-local DP per label. Report: k bits, uint8, shape (..., k).

    The bit of the true class is 1 with probability p, every other bit with probability q. `symmetric`: p = 1 - q =
    e^(eps/2)/(e^(eps/2) + 1). `optimized` (Wang et al. 2017): p = 1/2, q = 1/(e^eps + 1), the least
    variance for rare classes.
    """

    kind: Literal["symmetric", "optimized"] = "optimized"

    name = "unary"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("symmetric", "optimized"):
            raise InputError(f"expected kind 'symmetric' or 'optimized'; got {self.kind!r}; choose one")

    @property
    def drop_probability(self) -> float:
        """1 - p: the bit of the true class is 0."""
        return 0.5 if self.kind == "optimized" else small_side(self.epsilon / 2.0)

    @property
    def add_probability(self) -> float:
        """q: the bit of another class is 1."""
        return small_side(self.epsilon if self.kind == "optimized" else self.epsilon / 2.0)

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Random bit rows for labels. Randomness: the OS by default."""
        truth = self._one_hot(values)
        source = rng if rng is not None else os_generator()
        flips = source.random(truth.shape) < np.where(truth, self.drop_probability, self.add_probability)
        return (truth ^ flips).astype(np.uint8)

    def estimate(self, report: Any) -> np.ndarray:
        """Unbiased one-hot estimates, shape (..., k)."""
        bits = np.asarray(report, dtype=np.float64)
        return (bits - self.add_probability) / (1.0 - self.drop_probability - self.add_probability)

    def variance(self, values: Any) -> np.ndarray:
        """Variance of each entry of the one-hot estimate, shape (..., k)."""
        chance = self._bit_probabilities(values)
        return chance * (1.0 - chance) / (1.0 - self.drop_probability - self.add_probability) ** 2

    def law(self, value: int) -> tuple[np.ndarray, np.ndarray]:
        """All 2^k bit rows and their probabilities; only for few classes."""
        chance = self._bit_probabilities(value)
        rows = np.array(list(itertools.product((0, 1), repeat=self.classes)), dtype=np.uint8)
        return rows, np.where(rows, chance, 1.0 - chance).prod(axis=1)

    @property
    def one_part(self) -> UnaryEncoding:
        """The two bits in which two labels differ; all others have the same law for both."""
        return replace(self, classes=2)

    def log_ratio(self, report: Any, high: int, low: int) -> np.ndarray:
        """From the bits of both classes, `[people, 1]`."""
        bits = np.asarray(report).reshape(-1, self.classes) > 0
        top, bottom = self._bit_probabilities(high), self._bit_probabilities(low)
        ones, zeros = log_quotient(top, bottom), log_quotient(1.0 - top, 1.0 - bottom)
        return np.where(bits, ones, zeros).sum(axis=1, keepdims=True)

    def _one_hot(self, values: Any) -> np.ndarray:
        return np.eye(self.classes, dtype=bool)[valid_labels(values, self.classes)]

    def _bit_probabilities(self, values: Any) -> np.ndarray:
        return np.where(self._one_hot(values), 1.0 - self.drop_probability, self.add_probability)
