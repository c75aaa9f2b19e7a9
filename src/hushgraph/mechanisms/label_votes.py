"""Labels by noisy majority, and a noisy sum of how clearly teachers decided. Proof: docs/proofs/leads.md.

Counts stay inside. The sum of leads is released so that a bound on what the labels cost for the votes at hand can be
stated; what is charged is the bound for all data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hushgraph.errors import InputError
from hushgraph.mechanisms.canaries import Evidence, OpenVault
from hushgraph.mechanisms.votes import Answers, Votes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.leads import epsilon_of_labels, label_law
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.learners import Part


@dataclass(frozen=True)
class Labels(Answers):
    """`counts` has a 1 for the label of every query and else 0; `leads` is the noisy sum of leads, one number."""

    leads: Tensor


@dataclass(frozen=True)
class LabelVotes(Votes):
    """The class with the largest noisy count of every query, and the noisy sum of leads beyond `clear` of the teachers.

    Bound (L2, each number in multiples of its noise): the counts of a query move by sqrt(2) and its lead by 2. `share`
    of the square of the whole bound is that of the sum.
    """

    clear: float = 0.4
    share: float = 0.1

    name = "label-votes"
    proof = "leads"
    released = "labels by the votes of teachers on disjoint parts of the records, and how clear they were"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clear", "share"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InputError(f"{name}: expected a number between 0 and 1; got {getattr(self, name)!r}")

    def sensitivity(self, unit: Unit) -> float:
        """That of the counts, and what the sum adds."""
        return super().sensitivity(unit) / math.sqrt(1.0 - self.share)

    @property
    def low(self) -> int:
        """The lead from which on it counts."""
        return math.floor(self.clear * self.teachers)

    @property
    def moved(self) -> int:
        """How far one teacher can move the sum: the largest count of a query by 1, the second largest by 1."""
        return self.queries * min(2, self.teachers - self.low)

    def sum_noise(self, scale: float) -> float:
        """The noise of the sum where that of a count is `scale`."""
        return scale * self.moved / math.sqrt(2.0 * self.queries * self.share / (1.0 - self.share))

    def leads(self, counts: Tensor) -> Tensor:
        """The exact sum, int64."""
        if counts.shape[1] < 2:
            raise InputError(f"{self.name}: expected at least two classes; got {counts.shape[1]}")
        first, second = counts.topk(2, dim=1).values.unbind(dim=1)
        return (first - second - self.low).clamp(min=0).sum()

    def query(self, data: Any, queries: Part, **options: Any) -> Labels:
        """The classes with most votes, and the exact sum."""
        counts = self.counts(data, queries, **options)
        return self._labels(counts, self.leads(counts))

    def release(self, data: Any, scale: float, noise: NoiseSource, queries: Part, **options: Any) -> Labels:
        """The same with noise on all counts and on the sum."""
        return self.answers(self.counts(data, queries, **options), scale, noise)

    def answers(self, counts: Tensor, scale: float, noise: NoiseSource) -> Labels:
        """What is released for these exact counts."""
        return self._labels(*self._noisy(counts, scale, noise))

    def _noisy(self, counts: Tensor, scale: float, noise: NoiseSource) -> tuple[Tensor, Tensor]:
        noisy = counts + noise.integer_gaussian(tuple(counts.shape), scale)
        return noisy, self.leads(counts) + noise.integer_gaussian((1,), self.sum_noise(scale))[0]

    def _labels(self, counts: Tensor, leads: Tensor) -> Labels:
        first = torch.from_numpy(counts.numpy().argmax(axis=1))  # of equal counts the first, on every machine
        return Labels(torch.arange(self.queries), functional.one_hot(first, counts.shape[1]), leads)

    def epsilon_at_hand(self, answers: Labels, scale: float, delta: float) -> float:
        """What labels and sum cost at most for the votes at hand, with `delta`: from released values alone."""
        return epsilon_of_labels(
            float(answers.leads),
            self.sum_noise(scale),
            self.moved,
            self.queries,
            self.teachers,
            self.low,
            answers.counts.shape[1],
            scale,
            delta,
        )

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The counts, and the sum in multiples of its noise."""
        counts = self.counts(data, *inputs)
        return self._numbers(counts, self.leads(counts))

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same numbers with the noise of a release."""
        return self._numbers(*self._noisy(self.counts(data, *inputs), scale, noise))

    def _numbers(self, counts: Tensor, leads: Tensor) -> np.ndarray:
        return np.append(counts.double().flatten().numpy(), float(leads) / self.sum_noise(1.0))

    @classmethod
    def variants(cls) -> Sequence[LabelVotes]:
        """Few teachers."""
        return [cls(teachers=3, queries=1), cls(teachers=4, queries=2, share=0.5)]

    def to_tensors(self, value: Answers) -> dict[str, Any]:
        """Also the sum."""
        assert isinstance(value, Labels)
        return {**super().to_tensors(value), "leads": value.leads}

    def from_tensors(self, tensors: dict[str, Any]) -> Labels:
        """The inverse of `to_tensors`."""
        return Labels(tensors["queries"], tensors["counts"], tensors["leads"])

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """One teacher's vote on every query: the law of every label, and that of the sum."""
        made = self.plant(unit, rng)
        rows = [counts.numpy() for counts in (made.absent, made.planted)]
        sums = [float(self.leads(counts.long())) for counts in (made.absent, made.planted)]

        def ratio(answers: Labels, std: float) -> float:
            said = answers.counts.numpy().argmax(axis=1)
            absent, planted = (_log_laws(one, std)[np.arange(self.queries), said] for one in rows)
            middle, change = (sums[0] + sums[1]) / 2.0, sums[1] - sums[0]
            return float((planted - absent).sum() + (float(answers.leads) - middle) * change / self.sum_noise(std) ** 2)

        return Evidence(made.ratios(stage, coins, open_vault, ratio), "record")


def _log_laws(rows: np.ndarray, std: float) -> np.ndarray:
    """Of every query, the log probability of every label."""
    different, where = np.unique(rows, axis=0, return_inverse=True)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log([label_law(row, std) for row in different]), -1e4)[where.reshape(-1)]
