"""Do neighbors have the same label more often than two people at random?

It is asked of few pairs, so that one node matters little. Every train node draws a role. A node with the role *asker*
picks one train node among the *answerers* in its own list; an answerer that several picked keeps one of them. So a node
is in at most one pair, whatever its degree: taking a record away changes the counts of equal and unequal pairs by at
most 2 together. Beside them, train nodes are put in pairs blindly: what equality by chance looks like. Proof:
docs/proofs/pairs.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hushgraph.graph.edges import InNeighbors
from hushgraph.mechanisms.count import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.pairs import PairStage

NO_LABEL = -1


@dataclass(frozen=True)
class PairCounts:
    """Pairs of neighbors with equal and with unequal labels; blind pairs with equal labels, out of `blind`."""

    equal: int
    unequal: int
    blind_equal: int
    blind: int

    @property
    def excess(self) -> float:
        """How much more often neighbors agree than two nodes at random (from -1 to 1; 0 where nothing was seen)."""
        seen, blind = max(self.equal, 0) + max(self.unequal, 0), max(self.blind, 1)
        if seen == 0:
            return 0.0
        return max(self.equal, 0) / seen - min(max(self.blind_equal / blind, 0.0), 1.0)


def noisy_pairs(edges: InNeighbors, labels: Tensor, train: Tensor, stage: PairStage, noise: NoiseSource) -> PairCounts:
    """The counts with whole-number noise on each; `noise` must be a stream used for this one release."""
    exact = count_pairs(edges, labels, train, noise)

    def with_noise(count: int) -> int:
        return count + discrete_laplace(stage.scale, noise)

    return PairCounts(with_noise(exact.equal), with_noise(exact.unequal), with_noise(exact.blind_equal), exact.blind)


def count_pairs(edges: InNeighbors, labels: Tensor, train: Tensor, noise: NoiseSource) -> PairCounts:
    """The exact counts: private. `train` are node numbers (public); `labels` are `NO_LABEL` where a record is null."""
    known, nodes = labels.numpy(), train.numpy()
    asker, answerer = _pairs(edges, nodes, noise)
    both = (known[asker] != NO_LABEL) & (known[answerer] != NO_LABEL)
    same = int(np.count_nonzero(both & (known[asker] == known[answerer])))
    order = nodes[np.argsort(noise.pair_keys("pairs/blind", nodes, nodes), kind="stable")]
    half = len(order) // 2
    one, other = known[order[:half]], known[order[half : 2 * half]]
    blind_same = int(np.count_nonzero((one == other) & (one != NO_LABEL)))
    return PairCounts(same, int(np.count_nonzero(both)) - same, blind_same, half)


def _pairs(edges: InNeighbors, train: np.ndarray, noise: NoiseSource) -> tuple[np.ndarray, np.ndarray]:
    """Who asks whom: every asker's choice from its own list, and every answerer's choice among its askers."""
    asks = np.zeros(edges.num_nodes, dtype=bool)
    answers = np.zeros(edges.num_nodes, dtype=bool)
    heads = noise.pair_keys("pairs/role", train, train) >> np.uint64(63) == 1
    asks[train[heads]], answers[train[~heads]] = True, True
    owners, entries = edges.sources.numpy(), edges.targets().numpy()
    used = np.flatnonzero(asks[owners] & answers[entries])
    owners, entries = owners[used].astype(np.int64), entries[used].astype(np.int64)
    keys = noise.pair_keys("pairs/choice", owners, entries)
    chosen = _first_of_each(owners, keys)
    owners, entries, keys = owners[chosen], entries[chosen], keys[chosen]
    kept = _first_of_each(entries, noise.pair_keys("pairs/kept", owners, entries))
    return owners[kept], entries[kept]


def _first_of_each(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The position of the smallest key of every group; exactly one each, among equal keys the first."""
    order = np.lexsort((keys, groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return order[starts]
