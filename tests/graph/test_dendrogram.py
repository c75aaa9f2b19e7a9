from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from hushgraph.graph.dendrogram import GRID, Chain, Dendrogram, likelihood, sensitivity
from hushgraph.noise.source import NoiseSource

Tree = frozenset  # of the leaf sets of all inner nodes
Pair = tuple[int, int]


# Trees by brute force


@cache
def shapes(leaves: frozenset[int]) -> tuple[tuple[tuple[frozenset[int], frozenset[int]], ...], ...]:
    """All binary trees over the leaves, each as its splits (left leaves, right leaves)."""
    if len(leaves) == 1:
        return ((),)
    first, *rest = sorted(leaves)
    found = []
    for size in range(len(rest)):
        for chosen in itertools.combinations(rest, size):
            left = frozenset({first, *chosen})
            for one in shapes(left):
                found += [((left, leaves - left), *one, *other) for other in shapes(leaves - left)]
    return tuple(found)


def all_trees(nodes: int) -> tuple[tuple[tuple[frozenset[int], frozenset[int]], ...], ...]:
    return shapes(frozenset(range(nodes)))


def shape_of(tree: Dendrogram) -> Tree:
    order = tree.order.tolist()
    return frozenset(frozenset(order[a : b + 1]) for a, b in zip(tree.first.tolist(), tree.last.tolist(), strict=True))


def key_of(splits: tuple[tuple[frozenset[int], frozenset[int]], ...]) -> Tree:
    return frozenset(left | right for left, right in splits)


def naive(splits: tuple[tuple[frozenset[int], frozenset[int]], ...], edges: set[Pair], taken: set[Pair]) -> float:
    """The log-likelihood of the edges in nats, among the pairs that are not taken."""
    total = 0.0
    for left, right in splits:
        pairs = {(min(a, b), max(a, b)) for a in left for b in right} - taken
        e, n = len(pairs & edges), len(pairs)
        if 0 < e < n:
            total += e * math.log(e / n) + (n - e) * math.log(1 - e / n)
    return total


def ends(pairs: set[Pair]) -> tuple[np.ndarray, np.ndarray]:
    listed = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return listed[:, 0], listed[:, 1]


def laws(nodes: int, public: set[Pair], weight: float) -> tuple[list[set[Pair]], np.ndarray]:
    """All private graphs, and the log of the target over all trees for each of them."""
    trees = all_trees(nodes)
    open_pairs = sorted(set(itertools.combinations(range(nodes), 2)) - public)
    graphs = [{p for p, bit in zip(open_pairs, bits, strict=True) if bit} for bits in _bits(len(open_pairs))]
    base = np.array([naive(tree, public, set()) for tree in trees])
    scores = np.array([[naive(tree, graph, public) for tree in trees] for graph in graphs])
    logs = base + weight * scores
    return graphs, logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)


def _bits(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=count))


def largest_ratio(values: np.ndarray, count: int) -> float:
    """The largest change over graphs that differ in one pair; graph i has the bits of i."""
    numbers = np.arange(len(values))
    return max(float(np.abs(values[numbers ^ (1 << bit)] - values).max()) for bit in range(count))


# The promise


def test_there_are_as_many_trees_as_there_should_be() -> None:
    assert [len(all_trees(n)) for n in (2, 3, 4, 5)] == [1, 3, 15, 105]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("public", [set(), {(0, 1), (2, 3)}], ids=["none", "some"])
def test_no_graph_of_five_nodes_realizes_more_than_epsilon(epsilon: float, public: set[Pair]) -> None:
    _, logs = laws(5, public, 0.5 * epsilon / sensitivity(5))
    found = largest_ratio(logs, 10 - len(public))
    assert 0.3 * epsilon < found <= epsilon
    if epsilon == 1.0 and not public:
        assert found == pytest.approx(0.497, abs=0.001)


def test_the_published_exponent_and_bound_realize_more_than_epsilon() -> None:
    """Without the factor 2, and with the bound that lost an exponent: 1.39 at epsilon 1."""
    published = math.log(6) + math.log(1 + 1 / 5)
    _, logs = laws(5, set(), 1.0 / published)
    assert largest_ratio(logs, 10) == pytest.approx(1.39, abs=0.01)


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_the_bound_on_the_score_is_reached_and_not_exceeded(nodes: int) -> None:
    pairs = nodes * (nodes - 1) // 2
    graphs = [
        {p for p, bit in zip(itertools.combinations(range(nodes), 2), b, strict=True) if bit} for b in _bits(pairs)
    ]
    scores = np.array([[naive(tree, graph, set()) for tree in all_trees(nodes)] for graph in graphs])
    assert largest_ratio(scores, pairs) <= sensitivity(nodes)
    assert largest_ratio(scores, pairs) == pytest.approx(sensitivity(nodes), abs=1e-5)
    assert sensitivity(5) == pytest.approx(2.7034, abs=1e-4)


# The chain


@pytest.mark.parametrize(
    ("nodes", "public", "private"),
    [
        (4, set(), {(0, 1), (1, 2)}),
        (5, {(0, 1), (2, 3)}, {(0, 4), (1, 4), (0, 2)}),
        (5, set(), {(0, 1), (2, 3), (3, 4)}),
    ],
)
def test_the_chain_has_the_target_as_its_law(nodes: int, public: set[Pair], private: set[Pair]) -> None:
    """Chi-squared on 4,000 states, 25 proposals apart, from a fixed seed; half the weight is rejected."""
    trees, weight = all_trees(nodes), 1.5
    chain = Chain(nodes, ends(public), ends(private), NoiseSource.seeded(1))
    found: dict[Tree, int] = {}
    for _ in range(4_000):
        chain.run(25, weight)
        shape = shape_of(chain.tree)
        found[shape] = found.get(shape, 0) + 1
    counts = np.array([found.get(key_of(tree), 0) for tree in trees])
    assert counts.sum() == 4_000

    def p_value(weight: float) -> float:
        logs = np.array([naive(tree, public, set()) + weight * naive(tree, private, public) for tree in trees])
        law = np.exp(logs - np.logaddexp.reduce(logs))
        return float(stats.chisquare(counts, 4_000 * law).pvalue)

    assert p_value(weight) > 1e-6
    assert p_value(0.5 * weight) < 1e-6


@pytest.mark.parametrize(("nodes", "edges"), [(2, 1), (3, 2), (40, 120), (400, 1500)])
def test_updates_on_the_way_agree_with_a_count_from_scratch(nodes: int, edges: int) -> None:
    rng = np.random.default_rng(nodes)
    pairs = sorted({(int(min(p)), int(max(p))) for p in rng.integers(0, nodes, (2 * edges, 2)) if p[0] != p[1]})
    public, private = set(pairs[::3]), set(pairs) - set(pairs[::3])
    chain = Chain(nodes, ends(public), ends(private), NoiseSource.seeded(2))
    for _ in range(4):
        tree = chain.tree
        assert sorted(tree.order.tolist()) == list(range(nodes))
        assert chain.scores == likelihood(tree, tree.count(*ends(public)), tree.count(*ends(private)))
        chain.run(3_000, 0.3)


def test_scores_are_the_likelihood_to_the_grid() -> None:
    for splits in all_trees(5)[::7]:
        tree = next(t for t in _dendrograms() if shape_of(t) == key_of(splits))
        public, private = {(0, 1)}, {(1, 2), (3, 4), (0, 3)}
        found = likelihood(tree, tree.count(*ends(public)), tree.count(*ends(private)))
        expected = naive(splits, public, set()), naive(splits, private, public)
        assert np.allclose(np.array(found) / GRID, expected, atol=5 / GRID)


@cache
def _dendrograms() -> list[Dendrogram]:
    """All trees of five leaves, from a chain without edges."""
    chain, found = Chain(5, ends(set()), ends(set()), NoiseSource.seeded(3)), {}
    while len(found) < 105:
        chain.run(3, 0.0)
        found.setdefault(shape_of(chain.tree), chain.tree)
    return list(found.values())


def test_a_released_tree_is_its_shape_alone() -> None:
    """Two states of one shape, reached on different ways, give the same arrays."""
    seen: dict[Tree, tuple[list[int], list[int]]] = {}
    chain = Chain(4, ends({(0, 1)}), ends({(1, 2)}), NoiseSource.seeded(4))
    for _ in range(500):
        chain.run(2, 0.5)
        tree = chain.tree
        arrays = (tree.order.tolist(), tree.depths.tolist())
        assert seen.setdefault(shape_of(tree), arrays) == arrays
    assert len(seen) == 15
