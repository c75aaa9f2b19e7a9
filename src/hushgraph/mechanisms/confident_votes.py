"""Confident-GNMax: votes are released only where the teachers agree. Proof: docs/proofs/votes.md.

Papernot et al., ICLR 2018, Algorithm 1, with a number of answers that is fixed beforehand: whether one more query is
answered follows from noisy checks, so it is decided in view of what was released. The Gaussian filter allows that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.mechanisms.canaries import Evidence, OpenVault
from hushgraph.mechanisms.votes import Answers, Votes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.learners import Part


@dataclass(frozen=True)
class ConfidentVotes(Votes):
    """Goes through `checks` queries in order; answers those whose noisy largest count reaches `threshold`.

    It stops after `queries` answers. The noise of a check is `check_noise` times that of a count. Bound (L2, each
    number in multiples of its noise): a check moves by 1, an answer by sqrt(2); all checks and all answers are paid.
    """

    checks: int = 1
    threshold: float = 150.0
    check_noise: float = 2.0

    name = "confident-votes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.queries <= self.checks:
            raise InputError(f"checks: expected at least {self.queries}, the number of answers; got {self.checks!r}")
        if not (math.isfinite(self.threshold) and math.isfinite(self.check_noise) and self.check_noise > 0.0):
            raise InputError(
                f"expected a finite threshold and a positive check_noise; got {self.threshold!r}, {self.check_noise!r}"
            )

    @property
    def asked(self) -> int:
        """All that are checked."""
        return self.checks

    def sensitivity(self, unit: Unit) -> float:
        """The checks and the answers together, in multiples of the noise of a count."""
        if not self.one_teacher(unit):
            return math.inf
        return math.sqrt(self.checks / self.check_noise**2 + 2.0 * self.queries)

    def query(self, data: Any, queries: Part, **options: Any) -> Answers:
        """The first queries on which enough teachers agree, and their counts."""
        counts = self.counts(data, queries, **options)
        return self._answered(counts, counts.max(dim=1).values)

    def release(self, data: Any, scale: float, noise: NoiseSource, queries: Part, **options: Any) -> Answers:
        """The same with noise on the checks and on the counts of what is answered."""
        counts = self.counts(data, queries, **options)
        noisy_checks, noisy_counts = self._noisy(counts, scale, noise)
        answered = self._answered(counts, noisy_checks).queries
        return Answers(answered, noisy_counts[answered])

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """All checks, and the counts of as many queries as can be answered."""
        counts = self.counts(data, *inputs)
        return self._numbers(counts.max(dim=1).values, counts)

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same numbers with the noise of a release."""
        return self._numbers(*self._noisy(self.counts(data, *inputs), scale, noise))

    def _noisy(self, counts: Tensor, scale: float, noise: NoiseSource) -> tuple[Tensor, Tensor]:
        """Noise for every count is drawn before it is known which are answered; what is not answered is forgotten."""
        largest = counts.max(dim=1).values
        checks = largest + noise.integer_gaussian(tuple(largest.shape), self.check_noise * scale)
        return checks, counts + noise.integer_gaussian(tuple(counts.shape), scale)

    def _answered(self, counts: Tensor, checks: Tensor) -> Answers:
        passed = (checks >= self.threshold).nonzero().squeeze(1)[: self.queries]
        return Answers(passed, counts[passed])

    def _numbers(self, checks: Tensor, counts: Tensor) -> np.ndarray:
        parts = [checks.double() / self.check_noise, counts[: self.queries].double().flatten()]
        return torch.cat(parts).numpy()

    @classmethod
    def variants(cls) -> Sequence[ConfidentVotes]:
        """Every query can be answered; half of them can."""
        return [
            cls(teachers=3, queries=2, checks=2, threshold=2.0),
            cls(teachers=4, queries=2, checks=4, threshold=3.0),
        ]

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """One teacher's vote on every query: which checks pass, and the counts of those that do."""
        made = self.plant(unit, rng)
        largest = [counts.max(dim=1).values.numpy() for counts in (made.absent, made.planted)]

        def ratio(answers: Answers, std: float) -> float:
            passed = self._seen(answers)
            absent, planted = (self._log_law(passed, one[: len(passed)], std) for one in largest)
            return planted - absent + made.gaussian_ratio(answers, std)

        return Evidence(made.ratios(stage, coins, open_vault, ratio), "record")

    def _seen(self, answers: Answers) -> np.ndarray:
        """Which checks passed, up to the last one that was made."""
        full = len(answers.queries) == self.queries
        passed = np.zeros(int(answers.queries[-1]) + 1 if full else self.checks, dtype=bool)
        passed[answers.queries.numpy()] = True
        return passed

    def _log_law(self, passed: np.ndarray, largest: np.ndarray, std: float) -> float:
        """The log probability of so many checks with these outcomes; noise is rounded to whole numbers."""
        place = (np.ceil(self.threshold - largest) - 0.5) / (self.check_noise * std)
        return float(np.where(passed, stats.norm.logsf(place), stats.norm.logcdf(place)).sum())
