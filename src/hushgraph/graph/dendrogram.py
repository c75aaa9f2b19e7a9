"""A dendrogram: a binary tree whose leaves are the nodes of a graph, and a chain that finds one that fits the edges.

A finished tree is two arrays: the leaves from left to right, and for each gap between neighbors in that order the depth
of the inner node that parts them. Every inner node is one gap, and two leaves part at the least deep gap between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushgraph.graph.dendrogram_kernels import COMPILED as COMPILED
from hushgraph.graph.dendrogram_kernels import GRID, heads, in_order, score, spans, term, walk
from hushgraph.noise.source import NoiseSource

_STEPS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """`order` holds the leaves, `depths` the depth of the inner node at every gap between two of them."""

    order: np.ndarray
    depths: np.ndarray

    @property
    def num_nodes(self) -> int:
        """How many leaves there are."""
        return len(self.order)

    @cached_property
    def _spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found: tuple[np.ndarray, np.ndarray, np.ndarray] = spans(self.depths)
        return found

    @property
    def first(self) -> np.ndarray:
        """The place of the first leaf below every inner node."""
        return self._spans[0]

    @property
    def last(self) -> np.ndarray:
        """The place of the last leaf below every inner node."""
        return self._spans[1]

    @cached_property
    def pairs(self) -> np.ndarray:
        """How many pairs of leaves part at every inner node."""
        gaps = np.arange(len(self.depths))
        return (gaps - self.first + 1) * (self.last - gaps)

    @cached_property
    def _least(self) -> list[np.ndarray]:
        """For every power of two, the least deep gap among that many from each gap on."""
        rows, width = [np.arange(len(self.depths))], 1
        while 2 * width <= len(self.depths):
            rows.append(self._less_deep(rows[-1][:-width], rows[-1][width:]))
            width *= 2
        return rows

    def _less_deep(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(self.depths[one] <= self.depths[other], one, other)

    def parting(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The inner node, as a gap, at which each pair of leaves parts."""
        place = np.empty(self.num_nodes, dtype=np.int64)
        place[self.order] = np.arange(self.num_nodes)
        low = np.minimum(place[source], place[target])
        width = np.maximum(place[source], place[target]) - low
        power, found = np.frexp(width)[1] - 1, np.empty(len(low), dtype=np.int64)
        for level, row in enumerate(self._least):
            here = power == level
            start, end = low[here], low[here] + width[here] - (1 << level)
            found[here] = self._less_deep(row[start], row[end])
        return found

    @property
    def children(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The left and the right child of every inner node, and the parent of every node (of the root -1).

        Leaves are numbered as nodes; the inner node at gap k has the number of leaves plus k.
        """
        n, gaps, above = self.num_nodes, np.arange(len(self.depths)), self._spans[2]
        left, right = self.order[:-1].copy(), self.order[1:].copy()
        below = gaps[above >= 0]
        first = below < above[below]
        left[above[below[first]]] = n + below[first]
        right[above[below[~first]]] = n + below[~first]
        parent = np.full(2 * n - 1, -1, dtype=np.int64)
        parent[left], parent[right] = n + gaps, n + gaps
        return left, right, parent

    def count(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """How many of these pairs part at every inner node."""
        return np.bincount(self.parting(source, target), minlength=len(self.depths))

    def heads(self, small: np.ndarray) -> np.ndarray:
        """For every inner node, its topmost ancestor (or itself) among those marked `small`; -1 where there is none."""
        found: np.ndarray = heads(np.argsort(self.depths, kind="stable"), self._spans[2], small)
        return found


def likelihood(tree: Dendrogram, public: np.ndarray, private: np.ndarray) -> tuple[int, int]:
    """The scores of both kinds of edges, in steps of 1 / GRID, from how many of them part at every inner node."""
    pairs = tree.pairs
    of_public = sum(term(n, e) for n, e in zip(pairs.tolist(), public.tolist(), strict=True) if e)
    left = (pairs - public).tolist()
    return of_public, sum(term(n, e) for n, e in zip(left, private.tolist(), strict=True) if e)


def sensitivity(num_nodes: int) -> float:
    """How far one pair can move the score of the private edges of any tree, in nats, rounding included.

    Proof: docs/proofs/dendrogram.md. N is the largest number of pairs that can part at one inner node.
    """
    pairs = max(2, num_nodes * num_nodes // 4)
    exact = np.log(pairs) + (pairs - 1) * np.log1p(1.0 / (pairs - 1))
    return float(exact) * (1.0 + 2.0**-40) + 2.0 / GRID + pairs * 2.0**-48


def balanced(order: np.ndarray) -> Dendrogram:
    """A balanced tree over the leaves in this order."""
    place = np.arange(1, len(order))
    return Dendrogram(order, len(order).bit_length() - np.frexp(place & -place)[1])


@dataclass
class Chain:
    """The Metropolis chain with target exp(public score + private_rate * private score).

    Edges are unordered pairs of different nodes, each once. The chain starts at the tree `start`, which must follow
    from what is public; by default at a balanced tree over a random order of the leaves.
    """

    num_nodes: int
    public: tuple[np.ndarray, np.ndarray]
    private: tuple[np.ndarray, np.ndarray]
    noise: NoiseSource
    start: Dendrogram | None = None

    def __post_init__(self) -> None:
        n, known = self.num_nodes, len(self.public[0])
        source, target = (np.concatenate(ends).astype(np.int64) for ends in zip(self.public, self.private, strict=True))
        tree = self.start or balanced(np.argsort(self.noise.integers(n, 1 << 53).numpy(), kind="stable"))
        self._left, self._right, self._parent = tree.children
        self._root = int(np.flatnonzero(self._parent < 0)[0])
        self._size = np.concatenate([np.ones(n, dtype=np.int64), tree.last - tree.first + 1])
        parted = tree.parting(source, target)
        self._at = n + parted
        both = (np.bincount(part, minlength=max(0, n - 1)) for part in (parted[:known], parted[known:]))
        self._counts = np.stack(list(both), axis=1)
        ends, edges = np.concatenate((source, target)), np.tile(np.arange(len(source)), 2)
        self._incident = edges[np.argsort(ends, kind="stable")]
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=n)))).astype(np.int64)
        self.accepted = 0

    def steps(self, count: int, private_rate: float, public_rate: float = 1.0) -> Iterator[int]:
        """Carry out `count` proposals, in parts; yields how many are done."""
        done = 0
        while done < count and self.num_nodes > 2:
            part = min(_STEPS_AT_ONCE, count - done)
            words = self.noise.integers(2 * part, 1 << 53).numpy()
            arrays = (self._left, self._right, self._parent, self._size, self._counts, self._at)
            edges = (self._starts, self._incident, len(self.public[0]))
            rates = (public_rate / GRID, private_rate / GRID)
            self._root, accepted = walk(words, self._root, *arrays, *edges, *rates)
            self.accepted += accepted
            done += part
            yield done

    def run(self, count: int, private_rate: float, public_rate: float = 1.0) -> None:
        """Carry out `count` proposals."""
        for _ in self.steps(count, private_rate, public_rate):
            pass

    @property
    def scores(self) -> tuple[int, int]:
        """The scores of the public and the private edges, in steps of 1 / GRID. Private: for tests and public edges."""
        found: tuple[int, int] = score(self._left, self._right, self._size, self._counts)
        return found

    @property
    def tree(self) -> Dendrogram:
        """The tree as it is now: its shape, and nothing of how it came about."""
        return Dendrogram(*in_order(self._root, self._left, self._right, self._parent))
