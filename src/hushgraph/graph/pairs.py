"""Pairs of nodes as numbers without gaps, so that a random set of pairs is a random set of numbers.

Pair number `n * (g - 1) + i` is node `i` with the node `g` places after it, in a circle of `n` nodes. Ordered pairs are
numbered from 0 to n (n - 1). Of the two orders of an unordered pair one has at most n / 2 places between them; those
pairs are numbered from 0 to n (n - 1) / 2. No root is taken and no N x N matrix is formed.
"""

from __future__ import annotations

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.packed import distinct, pack

_MOST_PAIRS = 1 << 53
"""As many coins as a noise source tosses in one go."""


def count_pairs(num_nodes: int, *, undirected: bool) -> int:
    """How many pairs of different nodes there are."""
    ordered = num_nodes * (num_nodes - 1)
    found = ordered // 2 if undirected else ordered
    if found > _MOST_PAIRS:
        raise InputError(f"pairs of nodes: expected at most 2^53; got {found:.3g} of {num_nodes} nodes")
    return found


def pair_numbers(edges: MemoryEdges, *, undirected: bool) -> np.ndarray:
    """The numbers of the linked pairs, ascending, each once; `undirected` pairs are linked if either direction is."""
    first, second = edges.sources.numpy().astype(np.int64), edges.targets().numpy().astype(np.int64)
    nodes = edges.num_nodes
    gap = second - first
    gap += nodes * (gap < 0)
    if undirected:
        turned = (2 * gap > nodes) | ((2 * gap == nodes) & (first > second))
        first = np.where(turned, second, first)
        gap = np.where(turned, nodes - gap, gap)
    numbers = (gap - 1) * nodes + first
    numbers.sort()
    return distinct(numbers)


def pair_edges(numbers: np.ndarray, num_nodes: int, *, undirected: bool) -> MemoryEdges:
    """The graph that links the pairs with these numbers; `undirected` pairs in both directions."""
    gap, first = np.divmod(numbers, max(1, num_nodes))
    second = first + gap + 1
    second -= num_nodes * (second >= num_nodes)
    packed = pack(second, first)
    if undirected:
        packed = np.concatenate((packed, pack(first, second)))
    return MemoryEdges.from_packed(packed, num_nodes)


def without(numbers: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The ascending `numbers` that are not among the ascending `taken`."""
    if not len(numbers) or not len(taken):
        return numbers
    if len(taken) < len(numbers):
        at = np.searchsorted(numbers, taken)
        at = at[at < len(numbers)] if len(at) and at[-1] >= len(numbers) else at
        kept = np.ones(len(numbers), dtype=bool)
        kept[at[numbers[at] == taken[: len(at)]]] = False
        return numbers[kept]
    at = np.minimum(np.searchsorted(taken, numbers), len(taken) - 1)
    return numbers[taken[at] != numbers]


def merged(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Two ascending arrays without a common number as one."""
    together = np.concatenate((one, other))
    together.sort(kind="stable")  # two runs: one merge
    return together
