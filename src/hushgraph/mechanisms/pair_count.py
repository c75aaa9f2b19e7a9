"""Do neighbors have the same label more often than two people at random? Proof: docs/proofs/pairs.md.

It is asked of few pairs, so that one node matters little. Every training node draws a role. A node with the role
*asker* picks one training node among the *answerers* in its own list; an answerer that several picked keeps one of
them. So a node is in at most one pair, whatever its degree. Beside them, training nodes are put in pairs blindly: what
equality by chance looks like.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.noise.discrete import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.units import Unit

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


@dataclass(frozen=True)
class PairCount(PureMechanism):
    """Three noisy counts: neighbors that agree, neighbors that differ, and blind pairs that agree.

    Bound (L1, all three together), for an owned record: an empty asker may hand its answerer's place to another asker,
    one pair less in one count and one more in the other; an empty answerer takes its own pair away; either takes at
    most one equal blind pair: 3. A replaced asker does the first at two answerers: 5.
    """

    name = "pair-count"
    proof = "pairs"
    reads = frozenset({"edges", "labels"})
    takes_edge_weights = True  # an edge counts, whatever its weight and its types are
    takes_edge_types = True
    released = "counts of pairs of neighbors"

    def sensitivity(self, unit: Unit) -> float:
        """3, or 5 under replacement, for an owned record."""
        return (5.0 if unit.footprint.replaced else 3.0) if unit.footprint.owned else math.inf

    def query(self, data: Any, noise: NoiseSource | None = None) -> PairCounts:
        """The exact counts; roles and choices are drawn from `noise`."""
        source = NoiseSource.from_os() if noise is None else noise
        known, nodes = data.labels.numpy(), data.train.numpy()
        asker, answerer = _pairs(data.whole_lists.load(), nodes, source)
        both = (known[asker] != NO_LABEL) & (known[answerer] != NO_LABEL)
        same = int(np.count_nonzero(both & (known[asker] == known[answerer])))
        order = nodes[np.argsort(source.pair_keys("pairs/blind", nodes, nodes), kind="stable")]
        half = len(order) // 2
        one, other = known[order[:half]], known[order[half : 2 * half]]
        blind_same = int(np.count_nonzero((one == other) & (one != NO_LABEL)))
        return PairCounts(same, int(np.count_nonzero(both)) - same, blind_same, half)

    def release(self, data: Any, scale: float, noise: NoiseSource) -> PairCounts:
        """The counts, each with whole-number noise."""
        exact = self.query(data, noise)
        whole = self.whole_scale(scale)
        equal, unequal, blind_equal = (
            count + discrete_laplace(whole, noise) for count in (exact.equal, exact.unequal, exact.blind_equal)
        )
        return PairCounts(equal, unequal, blind_equal, exact.blind)

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The three counts; roles and choices are those of the release that draws from the same `noise`."""
        return _three(self.query(data, noise))

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The three noisy counts."""
        return _three(self.release(data, scale, noise))

    def to_tensors(self, value: PairCounts) -> dict[str, Any]:
        """Four whole numbers."""
        return {"value": torch.tensor(astuple(value))}

    def from_tensors(self, tensors: dict[str, Any]) -> PairCounts:
        """The inverse of `to_tensors`."""
        return PairCounts(*tensors["value"].tolist())


def _three(counts: PairCounts) -> np.ndarray:
    return np.array([counts.equal, counts.unequal, counts.blind_equal], dtype=np.float64)


def _pairs(edges: MemoryEdges, train: np.ndarray, noise: NoiseSource) -> tuple[np.ndarray, np.ndarray]:
    """Who asks whom: every asker's choice from its own list, and every answerer's choice among its askers."""
    asks = np.zeros(edges.num_nodes, dtype=bool)
    answers = np.zeros(edges.num_nodes, dtype=bool)
    heads = noise.pair_keys("pairs/role", train, train) >> np.uint64(63) == 1
    asks[train[heads]], answers[train[~heads]] = True, True
    owners, entries = edges.sources.numpy(), edges.targets().numpy()
    used = np.flatnonzero(asks[owners] & answers[entries])
    owners, entries = owners[used].astype(np.int64), entries[used].astype(np.int64)
    chosen = _first_of_each(owners, noise.pair_keys("pairs/choice", owners, entries))
    owners, entries = owners[chosen], entries[chosen]
    kept = _first_of_each(entries, noise.pair_keys("pairs/kept", owners, entries))
    return owners[kept], entries[kept]


def _first_of_each(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The position of the smallest key of every group; exactly one each, among equal keys the first."""
    order = np.lexsort((keys, groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return order[starts]
