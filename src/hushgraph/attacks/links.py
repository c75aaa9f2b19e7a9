"""Link stealing: which pairs of nodes are connected?

* `LinkTeller` (Wu and others, 2022): send features with one node's changed a little and see whose predictions move.
  One query per *source* gives its influence on every other node.
* `PosteriorSimilarity` (He and others, 2021): connected nodes get similar predictions.
* `ReleasedRows`: for an attacker with the model's files. A released row of a node is a noisy sum of its neighbors'
  rows; project it on the row of the suspected neighbor. Of the three this one uses most of what was released.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.attacks.base import Attack, AttackScores, Progress, Target, dense_features, silent
from hushgraph.errors import InputError
from hushgraph.settings import setting


@dataclass(frozen=True)
class Pairs:
    """Node pairs `source[i]`, `other[i]` and whether they are connected."""

    source: np.ndarray
    other: np.ndarray
    connected: np.ndarray


def sample_pairs(data: Data, sources: int, per_source: int, seed: int) -> Pairs:
    """For random sources, as many neighbors as non-neighbors each (at most `per_source / 2` of either).

    A neighbor has more edges than a random node, and predictions give degrees away; so non-neighbors are drawn as
    ends of random edges too. Otherwise a guess at degrees would pass for a guess at links.
    """
    rng = np.random.default_rng(seed)
    edges = data.edge_index.numpy()
    num_nodes = int(data.num_nodes or 0)
    order = np.argsort(edges[0], kind="stable")
    starts = np.searchsorted(edges[0][order], np.arange(num_nodes + 1))
    candidates = np.flatnonzero(np.diff(starts) > 0)
    if len(candidates) == 0:
        raise InputError("link attack: expected a graph with edges; got none")
    chosen = rng.choice(candidates, size=min(sources, len(candidates)), replace=False)
    parts = [_pairs_of(int(v), edges[1][order[starts[v] : starts[v + 1]]], edges[1], per_source, rng) for v in chosen]
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    return Pairs(joined[0], joined[1], joined[2].astype(bool))


def _pairs_of(
    source: int, neighbors: np.ndarray, ends: np.ndarray, per_source: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    taken = rng.choice(neighbors, size=min(per_source // 2, len(neighbors)), replace=False)
    others = ends[rng.integers(0, len(ends), size=4 * per_source + 16)]
    others = others[~np.isin(others, neighbors) & (others != source)]
    others = others[np.sort(np.unique(others, return_index=True)[1])][: len(taken)]
    both = np.concatenate([taken, others])
    return np.full(len(both), source), both, np.arange(len(both)) < len(taken)


@dataclass(frozen=True)
class PairAttack(Attack):
    """An attack on links: about `per_source` node pairs for each of `sources` random nodes, half of them connected."""

    sources: int = setting(100, least=1, help="nodes whose links are guessed")
    per_source: int = setting(50, least=2, help="guesses about each of them")
    seed: int = 0

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Score the same sampled pairs, whatever the attack."""
        pairs = sample_pairs(data, self.sources, self.per_source, self.seed)
        scores = self.pair_scores(target, data, pairs, progress)
        return self.scored(target, scores, pairs.connected, queries=self.queries(pairs), **target.notes)

    def queries(self, pairs: Pairs) -> int:
        """How many queries these pairs take; none for an attacker who only reads."""
        return 0

    @abstractmethod
    def pair_scores(self, target: Target, data: Data, pairs: Pairs, progress: Progress) -> np.ndarray:
        """A score for every pair; higher: more likely connected."""


@dataclass(frozen=True)
class LinkTeller(PairAttack):
    """Influence by finite differences: `sources + 1` queries give all `sources * per_source` pairs."""

    step: float = setting(0.1, above=0, help="how much the features of a node are changed")

    name = "LinkTeller"
    assumes = (
        "may send node features to the model and read the predictions of all nodes; the server holds the edges; knows "
        "which nodes to ask about"
    )

    def queries(self, pairs: Pairs) -> int:
        """One for every source, and one with nothing changed."""
        return len(np.unique(pairs.source)) + 1

    def pair_scores(self, target: Target, data: Data, pairs: Pairs, progress: Progress) -> np.ndarray:
        """The influence of the source's features on the other's prediction."""
        query = target.needs("query")
        features = dense_features(data)
        before = _logs(query(features))
        sources, row = np.unique(pairs.source, return_inverse=True)
        influence = np.empty((len(sources), len(features)))
        for number, source in enumerate(sources):
            moved = _logs(query(self._changed(features, int(source)))) - before
            influence[number] = moved.norm(dim=1).numpy() / self.step
            progress("queries", number + 1, len(sources))
        found: np.ndarray = influence[row, pairs.other]
        return found

    def _changed(self, features: Tensor, source: int) -> Tensor:
        """The source's row grows by one step; a row of zeros becomes a small constant row."""
        changed = features.clone()
        row = features[source]
        changed[source] = row * (1.0 + self.step) if bool(row.any()) else torch.full_like(row, self.step)
        return changed


def _logs(posteriors: Tensor) -> Tensor:
    return posteriors.double().clamp_min(1e-300).log()


@dataclass(frozen=True)
class PosteriorSimilarity(PairAttack):
    """Correlation of the two nodes' published posteriors."""

    name = "posterior similarity"
    assumes = "reads the published predictions only"

    def pair_scores(self, target: Target, data: Data, pairs: Pairs, progress: Progress) -> np.ndarray:
        """The correlation of log posteriors."""
        logs = target.posteriors.clamp_min(1e-12).log()
        rows = F.normalize(logs - logs.mean(dim=1, keepdim=True), dim=1)
        return (rows[torch.from_numpy(pairs.source)] * rows[torch.from_numpy(pairs.other)]).sum(dim=1).numpy()


@dataclass(frozen=True)
class ReleasedRows(PairAttack):
    """Projection of each node's stored rows on the other node's, hop against the hop before it.

    Needs stored rows of equal width per hop, side by side, hop 0 first (as GAP releases them at edge level).
    """

    width: int = setting(16, least=1, help="columns of one hop")

    name = "released rows"
    assumes = "has the model's files, with all released rows, and knows all features"

    def pair_scores(self, target: Target, data: Data, pairs: Pairs, progress: Progress) -> np.ndarray:
        """The sum of both projections over all hops."""
        rows = target.needs("embeddings")
        if rows.shape[1] % self.width:
            raise InputError(f"released rows: expected hops of width {self.width}; got {rows.shape[1]} columns")
        hops = rows.reshape(len(rows), -1, self.width)
        one, other = hops[torch.from_numpy(pairs.source)], hops[torch.from_numpy(pairs.other)]
        both = (one[:, 1:] * other[:, :-1]).sum(dim=(1, 2)) + (other[:, 1:] * one[:, :-1]).sum(dim=(1, 2))
        return np.asarray(both.numpy())
