"""Pairs of nodes as numbers without gaps, so that a random set of pairs is a random set of numbers.

The pair of source `s` and target `t` has the number t (t - 1) / 2 + s where pairs are unordered and s < t, and
t (n - 1) + s where they are ordered, less one if s > t. Both ascend with target and source, as stored edges do, so a
symmetric graph is turned into numbers and back without sorting, and no N x N matrix is formed.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.packed import INT32_LIMIT, distinct


def pair_numbers(edges: MemoryEdges, *, undirected: bool) -> np.ndarray:
    """The numbers of the linked pairs, ascending, each once; `undirected` pairs are linked if either direction is."""
    source, target = edges.sources.numpy().astype(np.int64), edges.targets().numpy().astype(np.int64)
    if not undirected:
        return distinct(ordered_numbers(source, target, edges.num_nodes))
    below = source < target
    numbers = distinct(_triangle(target[below]) + source[below])
    if edges.is_symmetric():
        return numbers
    return np.union1d(numbers, _triangle(source[~below]) + target[~below])


def ordered_numbers(source: np.ndarray, target: np.ndarray, num_nodes: int) -> np.ndarray:
    """The numbers of ordered pairs."""
    return target * (num_nodes - 1) + source - (source > target)


def unordered_numbers(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The numbers of unordered pairs."""
    return _triangle(np.maximum(one, other)) + np.minimum(one, other)


def pair_ends(numbers: np.ndarray, num_nodes: int, *, undirected: bool) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of every pair; of unordered pairs the source is the smaller."""
    if not undirected:
        target, source = np.divmod(numbers, max(1, num_nodes - 1))
        return source + (source >= target), target
    target = ((1.0 + np.sqrt(8.0 * numbers + 1.0)) / 2.0).astype(np.int64)
    target -= _triangle(target) > numbers  # the root may be off by one
    target += _triangle(target + 1) <= numbers
    return numbers - _triangle(target), target


def pair_edges(numbers: np.ndarray, num_nodes: int, *, undirected: bool) -> MemoryEdges:
    """The graph that links the pairs with these ascending numbers; `undirected` pairs in both directions."""
    source, target = pair_ends(numbers, num_nodes, undirected=undirected)
    degrees = np.bincount(target, minlength=num_nodes)
    if undirected:
        source, degrees = _mirrored(source, degrees, num_nodes)
    offsets = np.concatenate(([0], np.cumsum(degrees)))
    kind = np.int64 if len(source) >= INT32_LIMIT else np.int32
    return MemoryEdges(torch.from_numpy(offsets.astype(kind)), torch.from_numpy(source.astype(np.int32)))


def _mirrored(source: np.ndarray, degrees: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources by target of a graph and its mirror image together, from those smaller than their target."""
    starts = np.concatenate(([0], np.cumsum(degrees)))
    ones = np.ones(len(source), dtype=np.int8)
    turned = sparse.csr_matrix((ones, source, starts), shape=(num_nodes, num_nodes)).tocsc()  # a counting sort
    more = np.diff(turned.indptr).astype(np.int64)
    ends = np.cumsum(degrees + more)
    found = np.empty(2 * len(source), dtype=np.int64)
    place = np.arange(len(source))
    found[place + np.repeat(ends - np.cumsum(degrees) - more, degrees)] = source  # smaller sources come first
    found[place + np.repeat(ends - np.cumsum(more), more)] = turned.indices
    return found, degrees + more


def _triangle(target: np.ndarray) -> np.ndarray:
    """How many unordered pairs have a larger node below `target`."""
    return target * (target - 1) // 2


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
