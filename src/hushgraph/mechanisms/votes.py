"""How many teachers vote for each class, with Gaussian noise. Proof: docs/proofs/votes.md.

Teachers are trained on disjoint parts of the training records (Papernot et al., ICLR 2017 and 2018). The noisy counts
of all classes are released, not only the largest: the bound is the same, and whoever learns from them knows the law of
their noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.executors.processes import Processes
from hushgraph.graph.checks import CheckedGraph
from hushgraph.mechanisms.canaries import Evidence, OpenVault
from hushgraph.mechanisms.planted_votes import PlantedVotes, room_for
from hushgraph.mechanisms.view import View
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism, Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.learners import Learner, Part, Ridge, learner_from
from hushgraph.training.teachers import Ensemble


@dataclass(frozen=True)
class Answers:
    """Noisy counts of votes, `[answered, classes]`, and the numbers of the queries that were answered."""

    queries: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Ballot(Mechanism):
    """What all mechanisms on votes share: teachers on disjoint parts, and their exact counts on public queries."""

    teachers: int = 250
    queries: int = 1
    learner: Learner = field(default_factory=Ridge)
    seed: int = 0

    proof = "votes"
    takes_workers = True
    released = "votes of teachers on disjoint parts of the records"

    def __post_init__(self) -> None:
        for name in ("teachers", "queries"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name}: expected a whole number of at least 1; got {value!r}")

    @property
    def reads(self) -> frozenset[str]:
        """What the learner reads."""
        return self.learner.reads

    def one_teacher(self, unit: Unit) -> bool:
        """Whether one unit lies in the part of one teacher: one record, and entries that all name that node."""
        f = unit.footprint
        return f.records <= 1 and (f.incident or "edges" not in self.reads)

    def check(self, queries: Any, *rest: Any) -> None:
        """The proof is about so many queries and no more."""
        if len(queries) != self.asked:
            raise InputError(f"{self.name}: expected {self.asked} queries, as planned; got {len(queries)}")

    @property
    def asked(self) -> int:
        """How many queries the teachers are asked."""
        return self.queries

    def counts(self, data: Any, queries: Part, workers: int = 1, folder: Path | None = None) -> Tensor:
        """The exact counts, int64 `[queries, classes]`; every teacher adds one to each row."""
        self.check(queries)
        made = Ensemble(self.teachers, self.learner, self.seed, data.executor or Processes(workers), folder)
        classes = data.metadata.classes
        edges = data.whole_lists if "edges" in self.reads else None
        total = torch.zeros((len(queries), classes), dtype=torch.int64)
        votes = made.votes(data.features, data.labels, edges, data.train, queries, classes, data.public)
        for number, voted in enumerate(votes):
            total[torch.arange(len(voted)), voted] += 1
            data.report(number + 1, self.teachers)
        if not bool((total.sum(dim=1) == self.teachers).all()):
            raise InputError(f"{self.name}: expected one vote of each teacher on every query; got others")
        return total

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """Every canary has a release of its own."""
        return room_for(self.asked)

    def plant(self, unit: Unit, rng: np.random.Generator) -> PlantedVotes:
        """What all canaries of votes begin with."""

        def counts_of(graph: CheckedGraph, asked: Part) -> Tensor:
            return self.counts(View(graph, self.reads, None, NoiseSource.from_os(), "canary"), asked)

        return PlantedVotes.make(self.learner, self.asked, unit, counts_of, rng)

    @classmethod
    def read(cls, values: dict[str, Any]) -> Mechanism:
        """The mechanism with its learner."""
        return cls(**{**values, "learner": learner_from(values["learner"])})

    @classmethod
    def variants(cls) -> Sequence[Mechanism]:
        """Few teachers, so that one of them is moved by one record of a small graph."""
        return [cls(teachers=3, queries=1), cls(teachers=4, queries=2)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Part]:
        """Queries that follow from no graph."""
        made = torch.Generator().manual_seed(11)
        return (Part(torch.randn(self.asked, graph.metadata.features, generator=made)),)

    def to_tensors(self, value: Answers) -> dict[str, Any]:
        """The counts and which queries they answer."""
        return {"queries": value.queries, "counts": value.counts}

    def from_tensors(self, tensors: dict[str, Any]) -> Answers:
        """The inverse of `to_tensors`."""
        return Answers(tensors["queries"], tensors["counts"])


@dataclass(frozen=True)
class Votes(Ballot, GaussianMechanism):
    """Noisy counts of all classes for every query.

    Bound (L2): one unit moves one teacher, whose vote on each query leaves one class for another: sqrt(2) a query.
    Counts and noise are whole numbers.
    """

    name = "votes"

    def sensitivity(self, unit: Unit) -> float:
        """sqrt(2) for each query."""
        return math.sqrt(2.0 * self.queries) if self.one_teacher(unit) else math.inf

    def query(self, data: Any, queries: Part, **options: Any) -> Answers:
        """The exact counts."""
        return Answers(torch.arange(self.queries), self.counts(data, queries, **options))

    def release(self, data: Any, scale: float, noise: NoiseSource, queries: Part, **options: Any) -> Answers:
        """The counts with noise."""
        exact = self.query(data, queries, **options)
        return replace(exact, counts=exact.counts + noise.integer_gaussian(tuple(exact.counts.shape), scale))

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The counts."""
        return self.query(data, *inputs).counts.numpy().astype(np.float64)

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The noisy counts."""
        return self.release(data, scale, noise, *inputs).counts.numpy().astype(np.float64)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """One teacher's vote on every query; the ratios are Gaussian."""
        made = self.plant(unit, rng)
        information = float((made.planted - made.absent).square().sum()) / (stage.scale or 1.0) ** 2
        ratios = made.ratios(stage, coins, open_vault, made.gaussian_ratio)
        return Evidence(ratios, "record", information=np.full(len(coins), information))
