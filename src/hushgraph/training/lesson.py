"""What a student is, and what it is given: noisy votes on public records, and public records without votes.

Whatever a student does is computed from released and public values, so it costs nothing more than the votes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.training.learners import Part

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Lesson:
    """All that a student sees: public records, which of them were voted on, and the noisy counts of these votes.

    `noise` is the standard deviation of the noise of a count, which the plan has.
    """

    public: Part
    labeled: Tensor
    counts: Tensor
    teachers: int
    use_counts: bool
    noise: float = 0.0

    @property
    def shares(self) -> Tensor:
        """Of the votes, by class; with noise of mean 0."""
        return self.counts.float() / self.teachers

    @property
    def labels(self) -> Tensor:
        """The class with the largest noisy count."""
        return self.counts.argmax(dim=1)

    @property
    def targets(self) -> Tensor:
        """What to regress on, centered: shares of votes (with noise of mean 0), or the chosen class alone."""
        classes = self.counts.shape[1]
        if self.use_counts:
            return self.shares - 1.0 / classes
        return functional.one_hot(self.labels, classes).float() - 1.0 / classes


@dataclass(frozen=True)
class Student(ABC):
    """Settings of a student; their names are those of the method's settings."""

    @classmethod
    def settings(cls) -> list[str]:
        """The settings that it takes from the method."""
        return [field.name for field in dataclasses.fields(cls)]

    @abstractmethod
    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """The untrained network; `most` public records are voted on. Weights come from torch's global generator."""

    @abstractmethod
    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """Train `network`, and say what was found on the way."""
