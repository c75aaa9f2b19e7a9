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

from hushgraph.attacks.base import Attack, AttackScores, Target
from hushgraph.attacks.membership import member_graph, split_truth
from hushgraph.errors import InputError


@dataclass(frozen=True)
class Lira(Attack):
    """The online attack with `shadows` shadow models and one variance per world."""

    shadows: int = 16
    seed: int = 0

    name = "membership, LiRA"
    assumes = (
        "reads the predictions about each node and knows its label; knows the candidates' features, labels and edges; "
        "can train the same method many times"
    )

    def run(self, target: Target, data: Data) -> AttackScores:
        """Score train nodes (members) and test nodes (not members)."""
        if self.shadows < 4:
            raise InputError(f"LiRA: expected at least 4 shadow models; got {self.shadows}")
        members, others = split_truth(data)
        asked = torch.cat([members, others])
        share = len(members) / len(asked)
        inside, odds = self._shadow_odds(target, data, asked, share)
        seen = log_odds(target.posteriors[asked], data.y[asked]).numpy()
        scores = likelihood_ratio(seen, odds, inside)
        truth = np.arange(len(asked)) < len(members)
        return self.scored(target, scores, truth, shadows=self.shadows)

    def _shadow_odds(self, target: Target, data: Data, asked: Tensor, share: float) -> tuple[np.ndarray, np.ndarray]:
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
        return inside, odds


def log_odds(posteriors: Tensor, labels: Tensor) -> Tensor:
    """log(p / (1 - p)) of the true class, in double precision."""
    true = posteriors.double().gather(1, labels.unsqueeze(1)).squeeze(1).clamp(1e-9, 1.0 - 1e-9)
    return (true / (1.0 - true)).log()


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
