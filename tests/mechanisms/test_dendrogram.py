from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.dendrogram import Chain, Dendrogram, likelihood
from hushgraph.graph.dendrogram_cells import Cells
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_edges, pair_ends, pair_numbers
from hushgraph.mechanisms import DendrogramChain, DendrogramChoice, DendrogramEdges
from hushgraph.mechanisms.dendrogram import NOTHING, both_ends
from hushgraph.mechanisms.dendrogram_choice import drawn
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.notes import Code
from hushgraph.testing import Variations
from small_graphs import random_graph

PRIVATE = units.PrivateEdge()


def view(edges: MemoryEdges, public: MemoryEdges | None = None) -> Any:
    metadata = SimpleNamespace(num_nodes=edges.num_nodes)
    nothing = lambda done, total: None  # noqa: E731
    return SimpleNamespace(whole_lists=edges, public_edges=public, metadata=metadata, report=nothing)


def tree_of(nodes: int, seed: int = 0, steps: int = 50) -> Dendrogram:
    chain = Chain(nodes, NOTHING, NOTHING, NoiseSource.seeded(seed))
    chain.run(steps, 0.0)
    return chain.tree


def numbered(numbers: list[int], nodes: int) -> MemoryEdges:
    return pair_edges(np.array(numbers, dtype=np.int64), nodes, undirected=True)


# The unit


def test_neighbors_of_a_private_edge_leave_the_public_edges_alone() -> None:
    data = random_graph(0)
    data.public_edge_index = data.edge_index[:, (data.edge_index.sum(0) % 3) == 0]
    graph = check_graph(data)
    known = pair_numbers(graph.public_edges, undirected=True)
    others = list(PRIVATE.neighbors(Variations(graph), np.random.default_rng(0)))
    assert len(others) >= graph.edges.num_edges // 2 - len(known)
    for other in others:
        assert np.isin(known, pair_numbers(other.edges, undirected=True)).all()
        assert abs(other.edges.num_edges - graph.edges.num_edges) == 2


def test_a_run_for_private_edges_says_nothing_about_all_edges() -> None:
    assert not PRIVATE.covers(units.UndirectedEdge())
    assert PRIVATE.covers(units.PrivateEdge())
    assert units.UndirectedEdge().covers(PRIVATE)
    assert PRIVATE.footprint == units.UndirectedEdge().footprint
    assert Code.PUBLIC_PART in {note.code for note in PRIVATE.unprotected}


# The choice


def test_the_choice_realizes_at_most_its_epsilon_on_all_graphs_of_four_nodes() -> None:
    for public in ([], [0, 4]):
        known = numbered(public, 4) if public else None
        trees = [tree_of(4, seed) for seed in range(6)]
        free = [k for k in range(6) if k not in public]
        laws = {}
        for bits in itertools.product((0, 1), repeat=len(free)):
            linked = [k for k, bit in zip(free, bits, strict=True) if bit]
            one, other = both_ends(view(numbered(sorted([*public, *linked]), 4), known), public=True)
            scores = [likelihood(tree, tree.count(*one), tree.count(*other))[1] for tree in trees]
            logs = np.array(scores) / DendrogramChoice.denominator(4, 0.5)
            laws[bits] = logs - np.logaddexp.reduce(logs)
        ratios = [
            np.abs(law - laws[(*bits[:i], 1 - bits[i], *bits[i + 1 :])]).max()
            for bits, law in laws.items()
            for i in range(len(bits))
        ]
        assert 0.1 < max(ratios) <= 2.0


def test_trees_are_drawn_by_the_stated_law_and_not_another() -> None:
    """Chi-squared on 4,000 draws from a fixed seed."""
    scores, noise = [0, -700, -1500, 300, 300], NoiseSource.seeded(5)
    counts = np.bincount([drawn(scores, 1000, noise) for _ in range(4_000)], minlength=5)

    def p_value(denominator: float) -> float:
        weights = np.exp(np.array(scores) / denominator)
        return float(stats.chisquare(counts, 4_000 * weights / weights.sum()).pvalue)

    assert p_value(1000) > 1e-6
    assert max(p_value(1500), p_value(667)) < 1e-6


def test_candidates_follow_from_public_edges_alone() -> None:
    rng = np.random.default_rng(0)
    known = numbered([1, 5, 9, 20], 9)
    choice, shown = DendrogramChoice(steps_per_node=45, candidates=4), []
    for _ in range(3):
        edges = numbered(np.union1d([1, 5, 9, 20], rng.integers(0, 36, 12)).tolist(), 9)
        trees, _ = choice._candidates(view(edges, known), NoiseSource.seeded(1))
        shown.append([(tree.order.tolist(), tree.depths.tolist()) for tree in trees])
    assert shown[0] == shown[1] == shown[2]


def test_only_the_chain_is_asymptotic() -> None:
    assert DendrogramChain.asymptotic
    assert not DendrogramChoice.asymptotic
    assert not DendrogramEdges.asymptotic


@pytest.mark.parametrize("mechanism", [DendrogramChain(10), DendrogramChoice(10, candidates=3)])
def test_trees_go_through_tensors_and_refuse_odd_settings(mechanism: Any) -> None:
    tree = mechanism.release(view(numbered([0, 3, 7], 6)), 1.0, NoiseSource.seeded(2))
    again = mechanism.from_tensors(mechanism.to_tensors(tree))
    assert np.array_equal(again.order, tree.order)
    assert np.array_equal(again.depths, tree.depths)
    with pytest.raises(InputError, match="steps_per_node"):
        type(mechanism)(steps_per_node=0)


# Cells and edges


def naive_heads(tree: Dendrogram, small: np.ndarray) -> list[frozenset[tuple[int, int]]]:
    """Cells by recursion from the root: a small subtree as a whole, otherwise one inner node and then its children."""
    order = tree.order.tolist()

    def below(first: int, last: int) -> list[frozenset[tuple[int, int]]]:
        if first == last:
            return []
        gap = first + int(np.argmin(tree.depths[first:last]))
        left, right = order[first : gap + 1], order[gap + 1 : last + 1]
        if small[gap]:
            return [frozenset(itertools.combinations(sorted(left + right), 2))]
        parted = frozenset((min(a, b), max(a, b)) for a in left for b in right)
        return [parted, *below(first, gap), *below(gap + 1, last)]

    return below(0, len(order) - 1)


@pytest.mark.parametrize("seed", range(4))
def test_every_pair_is_in_one_cell_as_the_published_recursion_has_it(seed: int) -> None:
    tree, mechanism = tree_of(24, seed, 400), DendrogramEdges()
    for scale in (0.01, 0.5, 5.0, 100.0):
        leaves = tree.last - tree.first + 1
        small = (scale / tree.pairs >= 0.05) & (scale / (leaves * (leaves - 1)) >= 0.01)
        cells = mechanism.cells(tree, scale)
        source, target = pair_ends(np.arange(24 * 23 // 2), 24, undirected=True)
        of = cells.of[tree.parting(source, target)]
        groups = {frozenset(zip(source[of == k].tolist(), target[of == k].tolist(), strict=True)) for k in set(of)}
        assert groups == set(naive_heads(tree, small))
        assert np.array_equal(cells.counts(source, target), cells.sizes)


def test_one_edge_moves_all_counts_together_by_one() -> None:
    tree = tree_of(7, 1)
    cells = DendrogramEdges().cells(tree, 0.7)
    for a, b in itertools.combinations(range(7), 2):
        assert cells.counts(np.array([a]), np.array([b])).sum() == 1


@pytest.mark.parametrize("whole", [False, True])
def test_pairs_are_drawn_by_the_rate_of_their_cell(whole: bool) -> None:
    """Binomial counts of 2,000 graphs from fixed seeds, each pair within 6 standard deviations."""
    tree = tree_of(9, 3)
    cells = Cells.of_tree(tree, np.full(8, whole) if whole else tree.pairs <= 2)
    rates, times = np.linspace(0.05, 0.95, len(cells.sizes)), 2_000
    found: dict[tuple[int, int], int] = {}
    for seed in range(times):
        drawn_pairs = np.sort(np.stack(cells.draw(rates, NoiseSource.seeded(seed))), axis=0).T.tolist()
        assert len({tuple(pair) for pair in drawn_pairs}) == len(drawn_pairs)
        for a, b in drawn_pairs:
            found[a, b] = found.get((a, b), 0) + 1
    for a, b in itertools.combinations(range(9), 2):
        rate = rates[cells.of[tree.parting(np.array([a]), np.array([b]))[0]]]
        assert abs(found.get((a, b), 0) - times * rate) < 6 * math.sqrt(times * rate * (1 - rate))


def test_public_edges_come_out_and_rates_of_one_and_zero_are_kept() -> None:
    known = numbered([0, 8, 14], 30)
    edges = numbered([0, 8, 14, 20, 21, 22], 30)
    mechanism, tree = DendrogramEdges(), tree_of(30)
    found = mechanism.release(view(edges, known), 1e-3, NoiseSource.seeded(0), tree)
    assert np.isin([0, 8, 14], pair_numbers(found, undirected=True)).all()
    nothing = DendrogramEdges(public=False).release(view(numbered([], 30), known), 1e-3, NoiseSource.seeded(0), tree)
    assert nothing.num_edges == 0
    full = numbered(list(range(435)), 30)
    assert mechanism.release(view(full), 1e-3, NoiseSource.seeded(0), tree).num_edges == 870


def test_what_is_no_tree_and_odd_settings_are_refused() -> None:
    with pytest.raises(InputError, match="released dendrogram"):
        DendrogramEdges().check(torch.zeros(3))
    with pytest.raises(InputError, match="split_share"):
        DendrogramEdges(split_share=0.0)
    with pytest.raises(InputError, match="directions"):
        DendrogramEdges(undirected=False)
