"""LiRA, the likelihood-ratio attack (Carlini and others, 2022), for nodes.

Many shadow models are trained on random halves of the attacked graph's candidates. For every node this gives two
samples of the log odds of its true class: from models that had it and from models that did not. The score is the log
ratio of the two fitted normals at what the target says. Unlike an average over nodes, it finds the few nodes that are
badly exposed, which is what true-positive rates at low false-positive rates show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.attacks.base import Progress, Target
from hushgraph.attacks.membership import MembershipAttack, log_odds, member_graph
from hushgraph.errors import InputError
from hushgraph.settings import at_least


@dataclass(frozen=True)
class Lira(MembershipAttack):
    """The online attack with `shadows` shadow models and one variance per world."""

    shadows: int = 16

    name = "membership, LiRA"
    assumes = (
        "reads the predictions about each node and knows its label; knows the candidates' features, labels and edges; "
        "can train the same method many times"
    )

    def __post_init__(self) -> None:
        InputError.collect(at_least(4, shadows=self.shadows))

    def models(self) -> int:
        """The shadows."""
        return self.shadows

    def node_scores(self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress) -> np.ndarray:
        """The log likelihood ratio of what the target says of each node."""
        inside, odds = self._shadow_odds(target, data, asked, share, progress)
        return likelihood_ratio(log_odds(target.posteriors[asked], data.y[asked]).numpy(), odds, inside)

    def _shadow_odds(
        self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """For every shadow, which nodes it had, and the log odds it gives all: `[shadows, nodes]`.

        Shadows are as large as the target. Every node is in about its share of them.
        """
        train = target.needs("trainer")
        rng = np.random.default_rng(self.seed)
        size = round(share * len(asked))
        inside = np.zeros((self.shadows, len(asked)), dtype=bool)
        odds = np.zeros((self.shadows, len(asked)))
        for shadow in range(self.shadows):
            inside[shadow, rng.permutation(len(asked))[:size]] = True
            nodes = asked[torch.from_numpy(inside[shadow])].sort().values
            posteriors = train(member_graph(data, nodes), self.seed + 1 + shadow)(data)
            odds[shadow] = log_odds(posteriors[asked], data.y[asked]).numpy()
            progress("shadow models", shadow + 1, self.shadows)
        return inside, odds


def likelihood_ratio(seen: np.ndarray, odds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The log ratio of two normals per node: mean by node and world, variance by world over all nodes."""
    mean_in, spread_in = _fit(odds, inside)
    mean_out, spread_out = _fit(odds, ~inside)
    with_it = -0.5 * ((seen - mean_in) / spread_in) ** 2 - np.log(spread_in)
    without = -0.5 * ((seen - mean_out) / spread_out) ** 2 - np.log(spread_out)
    ratio: np.ndarray = with_it - without
    return ratio


def _fit(odds: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of the chosen odds of every node (the overall mean where there are none), and one spread."""
    counts = chosen.sum(axis=0)
    overall = odds[chosen].mean() if chosen.any() else 0.0
    means = np.where(counts > 0, (odds * chosen).sum(axis=0) / np.maximum(counts, 1), overall)
    residual = (odds - means)[chosen]
    freedom = max(1, int(chosen.sum()) - int((counts > 0).sum()))
    return means, float(np.sqrt((residual**2).sum() / freedom)) + 1e-6
