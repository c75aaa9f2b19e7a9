"""The one interface of all attacks: a target, the attacked graph, and scores with the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph.errors import InputError
from hushgraph.registry import Kind
from hushgraph.settings import Settings

Query = Callable[[Tensor], Tensor]
"""Posteriors of all nodes when the node features sent with the query are these; the server holds the edges."""

Predictor = Callable[[Data], Tensor]
Trainer = Callable[[Data, int], Predictor]
"""Trains the target's kind of model on a graph (with a seed) and returns what predicts on any other graph."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Target:
    """A model as an attacker meets it. Parts that this attacker does not get are None.

    posteriors: the class probabilities that the model publishes, one row per node of the attacked graph.
    embeddings: rows that are stored with the model, for an attacker who has its files.
    query: for an attacker who may send features and gets posteriors back.
    trainer: for an attacker who knows the method and can train models like it.
    network: for an attacker who has the weights of a classifier of images.
    """

    name: str
    posteriors: Tensor
    embeddings: Tensor | None = None
    query: Query | None = None
    trainer: Trainer | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    network: nn.Module | None = None

    def needs(self, part: str) -> Any:
        """The part called `part`, or a clear refusal."""
        value = getattr(self, part)
        if value is None:
            raise InputError(f"this attack needs the target's {part}; '{self.name}' does not offer them{_HINTS[part]}")
        return value


_HINTS = {
    "query": "",
    "trainer": "",
    "network": ". Give it a classifier of images",
    "posteriors": "",
    "embeddings": " (rows are stored at edge level only). Attack its predictions: set source=posteriors",
}


@dataclass(frozen=True)
class AttackScores:
    """What an attack returns: a score for every guess (higher: more likely true) and the truth."""

    attack: str
    target: str
    assumes: str
    scores: np.ndarray
    truth: np.ndarray
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scores.ndim != 1 or self.scores.shape != self.truth.shape or self.truth.dtype != bool:
            raise InputError(f"attack scores: expected one per guess; got {self.scores.shape} and {self.truth.shape}")
        if not np.isfinite(self.scores).all():
            raise InputError(f"{self.attack}: expected finite scores; got NaN or infinity")


@dataclass(frozen=True)
class Attack(Settings, ABC):
    """An attack. `assumes` says what the attacker must have."""

    kind: ClassVar[Kind] = "attacks"
    name: ClassVar[str]
    assumes: ClassVar[str]

    @abstractmethod
    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Attack `target`; `data` is the attacked graph (or images), which holds the truth."""

    def scored(self, target: Target, scores: np.ndarray, truth: np.ndarray, **details: Any) -> AttackScores:
        """The result under this attack's name."""
        guesses = np.asarray(scores, dtype=np.float64)
        return AttackScores(self.name, target.name, self.assumes, guesses, np.asarray(truth, dtype=bool), details)


def dense_features(data: Data) -> Tensor:
    """The features of a graph as an ordinary matrix."""
    x = data.x
    if hasattr(x, "to_dense"):
        dense: Tensor = x.to_dense()
        return dense.float()
    if isinstance(x, Tensor):
        return x.float()
    from hushgraph.graph.rows import dense_rows

    return dense_rows(x).float()
