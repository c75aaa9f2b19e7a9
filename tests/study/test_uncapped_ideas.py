"""The bounds that the ideas of studies/uncapped_ideas.py are measured with: never exceeded, and reached or refuted."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms import BalancedSum
from hushgraph.privacy.units import NodeWithEdges

NODES, CLUSTERS, CAP = 24, 3, 2


@pytest.fixture
def ideas(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    return importlib.import_module("uncapped_ideas")


def edges_of(there: np.ndarray) -> MemoryEdges:
    return MemoryEdges.from_edge_index(torch.from_numpy(np.stack(there.nonzero())), len(there))


def random_links(seed: int, symmetric: bool) -> np.ndarray:
    """Random entries, and a hub or two."""
    rng = np.random.default_rng(seed)
    hubs = rng.random(NODES) < 0.1
    there = (rng.random((NODES, NODES)) < rng.choice([0.05, 0.2, 0.6])) | hubs[:, None] | hubs
    there = there | there.T if symmetric else there
    np.fill_diagonal(there, False)
    return there


def without(there: np.ndarray, node: int) -> np.ndarray:
    left = there.copy()
    left[node], left[:, node] = False, False
    return left


@pytest.mark.parametrize("symmetric", [True, False])
def test_no_node_moves_doubled_sums_by_more_than_two_bounds(ideas: ModuleType, symmetric: bool) -> None:
    """Everybody sends to half of the nodes; one that only sends costs one bound."""
    mechanism, worst = BalancedSum(2.0), 0.0
    bound = mechanism.sensitivity(NodeWithEdges())
    for seed in range(30):
        rng = np.random.default_rng(seed)
        there, receives = random_links(seed, symmetric), np.arange(NODES) % 2 == 0
        rows = rng.standard_normal((NODES, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        everyone = np.ones(NODES, dtype=bool)
        node = int(rng.integers(NODES))
        before, after = (
            ideas.doubled_sums(edges_of(one), everyone, receives, rows, 2.0) for one in (there, without(there, node))
        )
        change = before - after
        change[node] = 0.0
        share = np.linalg.norm(change) / (bound * (2.0 if receives[node] else 1.0))
        worst = max(worst, share)
    assert 0.2 < worst <= 1.0


def counts(ideas: ModuleType, there: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    found: np.ndarray = ideas.cell_counts(edges_of(there), cluster, CAP, CLUSTERS)
    return found


def test_no_node_moves_the_coarse_graph_by_more_than_its_bound(ideas: ModuleType) -> None:
    bound, worst = ideas.count_bound(CLUSTERS, CAP), 0.0
    for seed in range(20):
        there = random_links(seed, symmetric=seed % 2 == 0)
        cluster = np.random.default_rng(seed).integers(0, CLUSTERS, NODES)
        whole = counts(ideas, there, cluster)
        worst = max(worst, *(np.linalg.norm(whole - counts(ideas, without(there, v), cluster)) for v in range(NODES)))
    assert 0.3 * bound < worst <= bound


def test_a_hub_reaches_the_bound_of_the_coarse_graph(ideas: ModuleType) -> None:
    there, cluster = np.zeros((NODES, NODES), dtype=bool), np.arange(NODES) % CLUSTERS
    there[0], there[:, 0] = True, True
    there[0, 0] = False
    moved = np.linalg.norm(counts(ideas, there, cluster) - counts(ideas, without(there, 0), cluster))
    assert moved == pytest.approx(ideas.count_bound(CLUSTERS, CAP))


def test_cells_are_plain_counts_where_no_node_is_over_the_cap(ideas: ModuleType) -> None:
    ring, cluster = np.roll(np.eye(NODES, dtype=bool), 1, axis=1), np.arange(NODES) % CLUSTERS
    plain = np.zeros((CLUSTERS, CLUSTERS))
    np.add.at(plain, (cluster[ring.nonzero()[0]], cluster[ring.nonzero()[1]]), 1.0)
    assert np.array_equal(counts(ideas, ring, cluster), plain)


def test_normalized_rows_have_no_bound() -> None:
    """Every node lists the hub and one other: when the hub goes, all rows change."""

    def cells(there: np.ndarray, cluster: np.ndarray) -> np.ndarray:
        rows = there @ np.eye(2)[cluster]
        return np.eye(2)[cluster].T @ (rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0))

    moved = []
    for nodes in (20, 200):
        there, cluster = np.zeros((nodes, nodes)), np.zeros(nodes, dtype=int)
        cluster[1] = 1
        there[2:, :2] = 1.0
        moved.append(np.linalg.norm(cells(there, cluster) - cells(without(there, 0), cluster)))
    assert moved[1] > 9.0 * moved[0] > 50.0


def test_a_hub_moves_class_mass_by_a_quarter_of_its_bound(ideas: ModuleType) -> None:
    """A star: what its leaves have of the hub, summed to the end, is all gone with it."""
    leaves = 40
    there = np.zeros((leaves + 1, leaves + 1))
    there[0, 1:], there[1:, 0] = 1.0, 1.0
    start = np.eye(leaves + 1)[:, :1]
    mass = ideas.class_mass(there, start)
    share = ideas.DAMPING / (1.0 + ideas.DAMPING)
    assert np.allclose(mass[1:], share, atol=1e-3)
    assert 0.25 < np.linalg.norm(mass[1:]) / ideas.mass_bound(leaves) <= 1.0
    assert math.isclose(ideas.mass_bound(leaves), math.sqrt(2 * leaves))


def test_releases_together_cost_what_the_votes_cost() -> None:
    """(change / noise)^2 in units of 1 / z^2, for a node that trains and for another one."""
    root, bound = math.sqrt(2.0), 1.3
    two_hops = (root * bound, 2.0 * root * bound)
    assert (bound / two_hops[0]) ** 2 <= 1.0
    assert (bound / two_hops[0]) ** 2 + (2.0 * bound / two_hops[1]) ** 2 == pytest.approx(1.0)
    clusters, table = 2.0 * bound, 2.0 / math.sqrt(3.0)
    assert (bound / clusters) ** 2 + (1.0 / table) ** 2 == pytest.approx(1.0)
    assert (2.0 * bound / clusters) ** 2 == pytest.approx(1.0)
