"""Noisy counts of votes with Laplace noise: the first PATE. Proof: docs/proofs/votes.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from dp_accounting import dp_event as dpa

from hushgraph.mechanisms.canaries import Evidence, OpenVault
from hushgraph.mechanisms.votes import Answers, Ballot
from hushgraph.noise.discrete import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.learners import Part


@dataclass(frozen=True)
class LaplaceVotes(Ballot, PureMechanism):
    """Counts of all classes for every query, with whole-number Laplace noise.

    Bound (L1): one unit moves one teacher, whose vote leaves one class for another: two counts a query move, by 1 each.
    A count costs the pure epsilon e = 1 / scale, and all that move are composed exactly.
    """

    name = "laplace-votes"

    def sensitivity(self, unit: Unit) -> float:
        """2 for each query."""
        return 2.0 * self.queries if self.one_teacher(unit) else math.inf

    def reference(self, unit: Unit) -> float:
        """The bound of one query: all have the same noise, and many cost less than their sum."""
        return 2.0 if self.one_teacher(unit) else math.inf

    def event(self, unit: Unit, scale: float) -> Event:
        """All counts that move, each with noise of its own; their pure epsilon where there is one query."""
        pure = super().event(unit, scale)
        if self.queries == 1 or isinstance(pure, dpa.NonPrivateDpEvent):
            return pure
        return events.pure_many(math.nextafter(1.0 / scale, math.inf), 2 * self.queries)

    def query(self, data: Any, queries: Part, **options: Any) -> Answers:
        """The exact counts."""
        return Answers(torch.arange(self.queries), self.counts(data, queries, **options))

    def release(self, data: Any, scale: float, noise: NoiseSource, queries: Part, **options: Any) -> Answers:
        """The counts, each with noise of its own."""
        exact, whole = self.query(data, queries, **options), self.whole_scale(scale)
        drawn = [discrete_laplace(whole, noise) for _ in range(exact.counts.numel())]
        return replace(exact, counts=exact.counts + torch.tensor(drawn).view_as(exact.counts))

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The counts."""
        return self.query(data, *inputs).counts.numpy().astype(np.float64)

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The noisy counts."""
        return self.release(data, scale, noise, *inputs).counts.numpy().astype(np.float64)

    def realized(self, unit: Unit, scale: float) -> float | None:
        """Pure epsilon is what is charged for one query only: for several there is a smaller epsilon at delta."""
        return super().realized(unit, scale) if self.queries == 1 else None

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """One teacher's vote on every query."""
        made = self.plant(unit, rng)

        def ratio(answers: Answers, scale: float) -> float:
            counts = answers.counts.double()
            nearer = (counts - made.absent).abs() - (counts - made.planted).abs()
            return float(nearer.sum()) / scale

        return Evidence(made.ratios(stage, coins, open_vault, ratio), "record")
