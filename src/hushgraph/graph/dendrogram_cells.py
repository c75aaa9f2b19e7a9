"""The pairs of nodes, divided by a dendrogram into cells: counted, and drawn in time proportional to what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgraph.graph.dendrogram import Dendrogram
from hushgraph.graph.pairs import pair_ends
from hushgraph.noise.source import NoiseSource


@dataclass(frozen=True, eq=False)
class Cells:
    """One cell for each inner node, of the pairs that part there, or one for a whole subtree, of all its pairs.

    `of` is the cell of every inner node. A cell spans the leaves from `first` to `last`; one of a single inner node is
    parted behind `gap`, one of a whole subtree has -1 there. `sizes` counts the pairs in each.
    """

    tree: Dendrogram
    of: np.ndarray
    first: np.ndarray
    gap: np.ndarray
    last: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of_tree(cls, tree: Dendrogram, small: np.ndarray) -> Cells:
        """Subtrees below an inner node marked `small` are one cell; every other inner node is one of its own."""
        heads, gaps = tree.heads(small), np.arange(len(tree.depths))
        top = np.where(heads >= 0, heads, gaps)
        chosen, of = np.unique(top, return_inverse=True)
        whole, first, last = heads[chosen] >= 0, tree.first[chosen], tree.last[chosen]
        leaves = last - first + 1
        sizes = np.where(whole, leaves * (leaves - 1) // 2, tree.pairs[chosen])
        return cls(tree, of, first, np.where(whole, -1, chosen), last, sizes)

    def counts(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """How many of these pairs are in every cell."""
        return np.bincount(self.of[self.tree.parting(source, target)], minlength=len(self.sizes))

    def draw(self, rates: np.ndarray, noise: NoiseSource) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of nodes, each pair of a cell by itself with the cell's rate.

        It follows from numbers that are released, so an ordinary generator will do. A binomial number of different
        places is drawn in every cell; where more than half would be taken, those that are left out are drawn.
        """
        rng = np.random.Generator(np.random.Philox(key=noise.integers(2, 1 << 53).numpy().astype(np.uint64)))
        taken = rng.binomial(self.sizes, rates)
        dense = np.flatnonzero(2 * taken > self.sizes)
        left_out = np.where(2 * taken > self.sizes, self.sizes - taken, taken)
        cell, place = _different_places(self.sizes, left_out, rng)
        keep = ~np.isin(cell, dense)
        inside = [_others(self.sizes[one], place[cell == one]) for one in dense.tolist()]
        cell = np.concatenate([cell[keep], np.repeat(dense, [len(part) for part in inside])])
        return self._ends(cell, np.concatenate([place[keep], *inside]))

    def _ends(self, cell: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of the pair at every place of a cell."""
        first, gap = self.first[cell], self.gap[cell]
        low, high = pair_ends(place, self.tree.num_nodes, undirected=True)  # of whole subtrees
        row, column = np.divmod(place, np.maximum(self.last[cell] - gap, 1))
        source = np.where(gap < 0, first + low, first + row)
        target = np.where(gap < 0, first + high, gap + 1 + column)
        return self.tree.order[source], self.tree.order[np.minimum(target, self.tree.num_nodes - 1)]


def _different_places(sizes: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """So many different places in every cell, at most half of them: drawn again until none is repeated."""
    ends = np.cumsum(sizes)
    starts, found, missing = ends - sizes, np.empty(0, dtype=np.int64), wanted
    while missing.any():
        cell = np.repeat(np.arange(len(sizes)), missing)
        tried = starts[cell] + rng.integers(0, sizes[cell])
        found = np.unique(np.concatenate([found, tried]))
        missing = wanted - np.bincount(np.searchsorted(ends, found, side="right"), minlength=len(sizes))
    cell = np.searchsorted(ends, found, side="right")
    return cell, found - starts[cell]


def _others(size: int, places: np.ndarray) -> np.ndarray:
    """The places of a cell that are not among these."""
    kept = np.ones(size, dtype=bool)
    kept[places] = False
    return np.flatnonzero(kept)
