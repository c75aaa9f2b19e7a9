"""Canaries for votes: a record that alone decides what one teacher votes, on every query.

Without it all teachers vote for the first class, with it one of them votes for the second: the counts of every query
move by (-1, 1), and its largest count by 1, which is as far as one record can move them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.graph.checks import CheckedGraph
from hushgraph.mechanisms.canaries import SCALES, OpenVault, audit_graph
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.learners import Learner, Part

_MOST, _FEWEST, _ANSWERS = 1_000, 200, 400_000

CountsOf = Callable[[CheckedGraph, Part], Tensor]


def room_for(queries: int) -> int:
    """How many canaries there are: every one has a release of its own, so many queries leave room for fewer."""
    return max(_FEWEST, min(_MOST, _ANSWERS // queries))


@dataclass(frozen=True)
class PlantedVotes:
    """The graphs without and with the record, the queries, and the exact counts in both graphs."""

    worlds: tuple[CheckedGraph, CheckedGraph]
    asked: Part
    absent: Tensor
    planted: Tensor

    @classmethod
    def make(
        cls, learner: Learner, queries: int, unit: Unit, counts_of: CountsOf, rng: np.random.Generator
    ) -> PlantedVotes:
        """The record is new (`replaced`: another one) for the unit; all queries look a little like it."""
        columns = _columns(learner)
        picture = torch.from_numpy(rng.random((1, columns))).float()
        others = torch.from_numpy(rng.random((queries, columns))).float()
        asked = Part((picture + others) / 2.0, torch.empty((2, 0), dtype=torch.int64))
        before = 0 if unit.footprint.replaced else -1
        worlds = (_world(picture, before), _world(picture, 1))
        absent, planted = (counts_of(graph, asked).double() for graph in worlds)
        return cls(worlds, asked, absent, planted)

    def ratios(
        self, stage: Stage, coins: np.ndarray, open_vault: OpenVault, ratio: Callable[[Any, float], float]
    ) -> np.ndarray:
        """`ratio(answers, scale)` for the release of every canary: a row for each of `SCALES`."""
        found = np.empty((len(SCALES), len(coins)))
        for number, coin in enumerate(coins):
            answers = open_vault(self.worlds[int(coin)]).release(stage.name, self.asked)
            found[:, number] = [ratio(answers, scale * (stage.scale or 1.0)) for scale in SCALES]
        return found

    def gaussian_ratio(self, answers: Any, std: float) -> float:
        """The log likelihood ratio of the counts that were answered, with Gaussian noise."""
        change = (self.planted - self.absent)[answers.queries]
        middle = (self.planted + self.absent)[answers.queries] / 2.0
        return float(((answers.counts.double() - middle) * change).sum()) / std**2


def _columns(learner: Learner) -> int:
    """Rows that every learner takes: pictures of 16 x 16 pixels, or of the height that the learner expects."""
    height = getattr(learner, "image_height", None)
    return 256 if height is None else 16 * int(height)


def _world(picture: Tensor, label: int) -> CheckedGraph:
    """One training record, empty where the label is -1, and a second that is not for training."""
    rows = torch.cat([picture if label >= 0 else torch.zeros_like(picture), torch.zeros_like(picture)])
    graph = audit_graph(rows, torch.empty((2, 0), dtype=torch.int64), torch.tensor([max(label, 0), 0]))
    if label >= 0:
        return graph
    return replace(graph, labels=torch.tensor([-1, 0]))
