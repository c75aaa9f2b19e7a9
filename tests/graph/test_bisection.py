from __future__ import annotations

import numpy as np
import pytest

from hushgraph.graph.bisection import bisected
from hushgraph.graph.dendrogram import GRID, Chain, Dendrogram, balanced, likelihood
from hushgraph.noise.source import NoiseSource

Ends = tuple[np.ndarray, np.ndarray]


def communities(groups: int, size: int, inside: float, between: float, seed: int = 0) -> tuple[Ends, np.ndarray]:
    """Links in and between equal groups, and the group of every node, nodes in random order."""
    rng, nodes = np.random.default_rng(seed), groups * size
    group = rng.permutation(np.repeat(np.arange(groups), size))
    low, high = np.triu_indices(nodes, 1)
    linked = rng.random(len(low)) < np.where(group[low] == group[high], inside, between)
    return (low[linked], high[linked]), group


def part(edges: Ends, keep: np.ndarray) -> Ends:
    return edges[0][keep], edges[1][keep]


def score(tree: Dendrogram, edges: Ends) -> float:
    return likelihood(tree, tree.count(*edges), np.zeros(len(tree.depths), dtype=np.int64))[0] / GRID


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 64, 100])
@pytest.mark.parametrize("links", [0, 1, 5])
def test_every_node_is_a_leaf_and_every_inner_node_has_two_children(nodes: int, links: int) -> None:
    rng = np.random.default_rng(nodes)
    pairs = np.sort(rng.integers(0, nodes, (2, links * nodes)), axis=0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1)
    tree = bisected(nodes, (pairs[0], pairs[1]))
    assert sorted(tree.order.tolist()) == list(range(nodes))
    assert len(tree.depths) == nodes - 1
    assert tree.pairs.sum() == nodes * (nodes - 1) // 2
    if nodes > 1:
        left, right, parent = tree.children
        assert sorted([*left, *right]) == sorted(set(range(2 * nodes - 1)) - {int(np.flatnonzero(parent < 0)[0])})


def test_communities_are_subtrees() -> None:
    edges, group = communities(4, 50, 0.4, 0.01)
    tree = bisected(200, edges)
    blocks = group[tree.order]
    assert np.count_nonzero(np.diff(blocks)) <= 6  # three changes between four groups, and a stray node or so


def test_the_start_is_far_better_than_a_random_tree_for_links_it_has_not_seen() -> None:
    edges, _ = communities(16, 25, 0.3, 0.005)
    shown = np.random.default_rng(1).random(len(edges[0])) < 0.8
    hidden, tree = part(edges, ~shown), bisected(400, part(edges, shown))
    other = balanced(np.random.default_rng(2).permutation(400))
    assert score(tree, hidden) > score(other, hidden) + 200.0


def test_the_tree_is_the_same_whenever_it_is_asked_for() -> None:
    edges, _ = communities(3, 20, 0.4, 0.02)
    one, other = bisected(60, edges), bisected(60, edges)
    assert np.array_equal(one.order, other.order)
    assert np.array_equal(one.depths, other.depths)


def test_a_chain_starts_at_the_tree_it_is_given() -> None:
    edges, _ = communities(3, 20, 0.4, 0.02)
    tree = bisected(60, edges)
    chain = Chain(60, edges, (np.empty(0, np.int64), np.empty(0, np.int64)), NoiseSource.seeded(0), tree)
    assert chain.scores[0] / GRID == score(tree, edges)
    assert {frozenset(tree.order[a : b + 1].tolist()) for a, b in zip(tree.first, tree.last, strict=True)} == {
        frozenset(chain.tree.order[a : b + 1].tolist()) for a, b in zip(chain.tree.first, chain.tree.last, strict=True)
    }


def test_mixing_is_seen_on_public_edges_alone() -> None:
    """Chains from the tree of the edges and from a random one come together; the public score shows it."""
    edges, nothing = communities(2, 6, 0.8, 0.1)[0], (np.empty(0, np.int64), np.empty(0, np.int64))
    means = []
    for start in (bisected(12, edges), None):
        chain, seen = Chain(12, edges, nothing, NoiseSource.seeded(3), start), []
        for _ in range(400):
            chain.run(200, 0.0)
            seen.append(chain.scores[0] / GRID)
        means.append(np.mean(seen[100:]))
    assert abs(means[0] - means[1]) < 0.5
