"""A dendrogram from public edges alone, by halving: where a chain over trees starts.

All blocks of one depth are parted at once. The nodes of a block are put in the order of a slow vector of the random
walk inside it (found by repeated averaging over neighbors), and the block is cut where two blocks with a rate of links
each, and one between them, explain its edges best. Nothing is random but the first vectors, which are public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from hushgraph.graph.dendrogram import Dendrogram

Ends = tuple[np.ndarray, np.ndarray]
_AVERAGES = 50
_LEAST_PART = 8
"""A part has at least one in so many nodes of its block, so that trees stay shallow."""


def bisected(num_nodes: int, edges: Ends, seed: int = 0) -> Dendrogram:
    """A tree over the nodes in which linked nodes part late. `edges` are unordered public pairs, each once."""
    rng = np.random.default_rng(seed)
    depths = np.zeros(max(0, num_nodes - 1), dtype=np.int64)
    blocks = _Blocks(np.arange(num_nodes), np.zeros(min(1, num_nodes), dtype=np.int64))
    depth = 0
    while len(blocks.starts) < num_nodes:
        block = blocks.of_nodes()
        inside = block[edges[0]] == block[edges[1]]
        edges = edges[0][inside], edges[1][inside]
        order = np.lexsort((_slow_vector(block, edges, rng), block))
        blocks = _Blocks(order, blocks.starts)
        cuts = blocks.cuts(edges)
        depths[cuts] = depth
        blocks = _Blocks(order, np.sort(np.concatenate([blocks.starts, cuts + 1])))
        depth += 1
    return Dendrogram(blocks.order, depths)


def _slow_vector(block: np.ndarray, edges: Ends, rng: np.random.Generator) -> np.ndarray:
    """For every block, values that change slowly along its edges; infinite for nodes without an edge inside."""
    nodes, both = len(block), (np.concatenate(edges), np.concatenate(edges[::-1]))
    links = sparse.csr_matrix((np.ones(len(both[0])), both), shape=(nodes, nodes))
    degree = np.bincount(both[0], minlength=nodes).astype(np.float64)
    weight = np.maximum(np.bincount(block, weights=degree), 1.0)

    def mean(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = (np.bincount(block, weights=degree * values) / weight)[block]
        return found

    values = rng.standard_normal(nodes)
    for _ in range(_AVERAGES):
        values = (values + links @ values / np.maximum(degree, 1.0)) / 2.0
        values -= mean(values)
        size = np.sqrt(mean(values**2))
        values /= np.where(size > 0, size, 1.0)
    return np.where(degree > 0, values, np.inf)


@dataclass(frozen=True)
class _Blocks:
    """The nodes in `order`; a block goes from one of `starts` to the next."""

    order: np.ndarray
    starts: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(np.append(self.starts, len(self.order)))

    def of_nodes(self) -> np.ndarray:
        """The number of every node's block."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = np.repeat(np.arange(len(self.starts)), self.sizes)
        return found

    def cuts(self, edges: Ends) -> np.ndarray:
        """The place of the last node left of the best cut, for every block with more than one node."""
        start, size = np.repeat(self.starts, self.sizes), np.repeat(self.sizes, self.sizes)
        left = np.arange(len(self.order)) - start + 1
        right = size - left
        between, in_left, in_right = self._counts(edges, start, start + size - 1)
        score = _fit(left * right, between) + _fit(left * (left - 1) // 2, in_left)
        score += _fit(right * (right - 1) // 2, in_right)
        least = np.maximum(1, size // _LEAST_PART)
        score = np.where((left >= least) & (right >= least), score, -np.inf)
        best = np.repeat(np.maximum.reduceat(score, self.starts), self.sizes)
        chosen = np.flatnonzero((score == best) & (size > 1))
        first = np.unique(start[chosen], return_index=True)[1]
        return chosen[first]

    def _counts(self, edges: Ends, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For a cut behind every place: edges across it, and inside the block to either side."""
        nodes = len(self.order)
        place = np.empty(nodes, dtype=np.int64)
        place[self.order] = np.arange(nodes)
        ends = np.sort(np.stack([place[edges[0]], place[edges[1]]]), axis=0)
        begun, ended = (np.append(0, np.cumsum(np.bincount(part, minlength=nodes))) for part in ends)
        here = np.arange(nodes) + 1
        in_left = ended[here] - ended[first]
        between = begun[here] - begun[first] - in_left
        return between, in_left, begun[last + 1] - begun[first] - in_left - between


def _fit(pairs: np.ndarray, linked: np.ndarray) -> np.ndarray:
    """The largest log-likelihood of so many linked pairs."""
    share = linked / np.maximum(pairs, 1)
    found: np.ndarray = xlogy(linked, share) + xlogy(pairs - linked, 1.0 - share)
    return found
