"""Sums with bounded weights are exact, and no unit moves them by more than without weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.packed import pack
from hushgraph.graph.quantized import quantize
from hushgraph.graph.weights import LEVELS, EdgeWeights
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms import LabelSum, NeighborSum
from hushgraph.noise.source import NoiseSource
from hushgraph.testing import Cell, Variations, units
from matrix_graphs import GRAPHS, fits, own_rows, view_of
from small_graphs import random_graph

ROOTS = 1e-12
SUMS = [NeighborSum(), *(one for one in LabelSum.variants() if not one.noise_factors)]
CELLS = [Cell(mechanism, unit) for mechanism in SUMS for unit in units()]
BOUNDED = [cell for cell in CELLS if cell.status == "bounded"]


def every_level(nodes: int, rng: np.random.Generator, most: int = LEVELS) -> EdgeWeights:
    """A level for every pair of nodes, mostly the largest and the smallest."""
    source, target = (axis.ravel() for axis in np.meshgrid(np.arange(nodes), np.arange(nodes)))
    pairs = np.sort(pack(target, source))
    return EdgeWeights(pairs, rng.choice([0, most, most, int(rng.integers(0, most + 1))], len(pairs)))


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_a_weighted_sum_is_that_of_a_loop_in_whole_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, count = int(rng.integers(1, 12)), int(rng.integers(0, 40))
    index = torch.from_numpy(rng.integers(0, nodes, (2, count)))
    values = torch.from_numpy(rng.uniform(0.0, 9.0, count))
    rows = quantize(torch.from_numpy(rng.standard_normal((nodes, 3))).float(), normalize=True)
    found = EdgeWeights.of(index, values, 8.0).sum(MemoryEdges.from_edge_index(index, nodes).coalesce(), rows)
    largest: dict[tuple[int, int], float] = {}
    for source, target, value in zip(*index.tolist(), values.tolist()):
        largest[source, target] = max(value, largest.get((source, target), 0.0))
    expected = torch.zeros(nodes, 3, dtype=torch.int64)
    for (source, target), value in largest.items():
        expected[target] += round(min(value, 8.0) / 8.0 * LEVELS) * rows.values[source].to(torch.int64)
    assert torch.equal(found, expected)


def test_weights_of_the_bound_are_no_weights():
    index, rows = torch.tensor([[0, 1, 2], [1, 2, 0]]), quantize(torch.randn(3, 4), normalize=True)
    edges = MemoryEdges.from_edge_index(index, 3)
    assert torch.equal(EdgeWeights.of(index, torch.full((3,), 5.0), 5.0).sum(edges, rows), LEVELS * edges.sum(rows))


# Brute force over the neighbors of every unit


def apart(cell: Cell, graph: CheckedGraph, other: CheckedGraph, seed: int) -> float:
    before, after = (
        cell.mechanism.before_noise(
            view_of(one, cell.mechanism, cell.unit, seed), NoiseSource.seeded(seed), *cell.mechanism.example_inputs(one)
        )
        for one in (graph, other)
    )
    change = before - after
    if cell.mechanism.stays_private(cell.unit):
        change[own_rows(graph, other)] = 0.0
    return float(np.sqrt((change**2).sum()))


def largest_share(cell: Cell, most: int = LEVELS) -> float:
    """Over all neighbors; a record that changes has other weights in its list as well."""
    found = [0.0]
    for number, plain in enumerate(GRAPHS):
        if not fits(plain, cell.unit):
            continue
        rng = np.random.default_rng(number)
        nodes = plain.metadata.num_nodes
        first, second = (every_level(nodes, rng, most) for _ in range(2))
        graph = replace(plain, edge_weights=first)
        for other in cell.unit.neighbors(Variations(graph), np.random.default_rng(number)):
            changed = own_rows(graph, other)
            own = changed[first.pairs & 0xFFFFFFFF]
            levels = np.where(own, second.levels, first.levels)
            found.append(apart(cell, graph, replace(other, edge_weights=EdgeWeights(first.pairs, levels)), number))
    return max(found) / cell.bound


@pytest.mark.parametrize("cell", BOUNDED, ids=str)
def test_no_neighbor_moves_a_weighted_sum_by_more_than_the_bound(cell: Cell) -> None:
    assert largest_share(cell) <= 1.0 + ROOTS


def test_weights_of_twice_the_bound_would_be_caught():
    assert any(largest_share(cell, 2 * LEVELS - 1) > 1.2 for cell in BOUNDED)


def test_the_noise_is_that_of_the_plan():
    """Standard deviations of 12,000 numbers: within 5% but for once in 10^13."""
    graph = replace(GRAPHS[0], edge_weights=every_level(9, np.random.default_rng(0)))
    rows, mechanism = torch.randn(9, 400), NeighborSum()
    found = torch.cat(
        [
            mechanism.release(view_of(graph, mechanism, None), 2.0, NoiseSource.seeded(seed), rows)
            - mechanism.query(view_of(graph, mechanism, None), rows)
            for seed in range(4)
        ]
    )
    assert float(found.std()) == pytest.approx(2.0, rel=0.05)


# Methods


def weighted(seed: int = 2) -> Any:
    data = random_graph(seed, 60)
    data.edge_weight = torch.rand(data.edge_index.shape[1], generator=torch.Generator().manual_seed(seed)) * 4.0
    data.weight_bound = 4.0
    return data


@pytest.mark.parametrize("method", [hg.GAP(epochs=2), hg.ProGAP(epochs=2), hg.Chorus(epochs=2), hg.DPMLP(epochs=2)])
def test_methods_that_read_weights_cost_what_they_cost_without(method: hg.Method) -> None:
    unit, budget = hg.units.Node(max_degree=5), (8.0, 1e-3)
    with_weights, without = (
        method.fit(data, unit, budget, ledger=Ledger.in_memory(), seed=0) for data in (weighted(), random_graph(2, 60))
    )
    assert with_weights.certificate.epsilon == without.certificate.epsilon
    same = torch.equal(with_weights.predict_proba(weighted()), without.predict_proba(random_graph(2, 60)))
    assert same == (method.name == "dp-mlp")


def test_an_edge_of_weight_zero_is_no_edge():
    data, fewer = weighted(), weighted()
    gone = torch.arange(data.edge_index.shape[1]) % 3 == 0
    data.edge_weight = torch.where(gone, 0.0, 4.0)
    fewer.edge_index, fewer.edge_weight = data.edge_index[:, ~gone], None
    for mechanism, rows in ((NeighborSum(), torch.randn(60, 4)), (LabelSum(), torch.rand(60, 3)), (LabelSum(), None)):
        found, expected = (mechanism.query(view_of(check_graph(one), mechanism, None), rows) for one in (data, fewer))
        assert found.any()
        assert torch.equal(found, expected)


def test_weights_of_the_bound_change_nothing_in_a_sum_of_labels():
    data, bare = weighted(), weighted()
    data.edge_weight, bare.edge_weight = torch.full_like(data.edge_weight, 9.0), None
    for mechanism in SUMS[1:]:
        for guesses in (None, torch.rand(60, 3)):
            found, expected = (
                mechanism.query(view_of(check_graph(one), mechanism, None), guesses) for one in (data, bare)
            )
            assert torch.equal(found, expected)


def test_others_refuse_them_by_name():
    with pytest.raises(InputError, match=r"reads weights \(auto, chorus, gap, progap\); got lpgnet"):
        hg.LPGNet().fit(weighted(), hg.units.UndirectedEdge(), (4.0, 1e-3), ledger=Ledger.in_memory())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight_bound": None}, "no sensitivity is known for weighted edges without a bound"),
        ({"weight_bound": 0.0}, "weight_bound: expected a number above 0"),
        ({"weight_bound": float("inf")}, "weight_bound: expected a number above 0"),
        ({"edge_weight": torch.ones(3)}, "one number per edge"),
        ({"edge_weight": "negative"}, "at least 0"),
        ({"edge_weight": "nan"}, "finite numbers"),
    ],
)
def test_weights_that_are_none_are_refused(change: dict[str, Any], words: str) -> None:
    data = weighted()
    for name, value in change.items():
        wrong = {"negative": -data.edge_weight, "nan": data.edge_weight * float("nan")}
        data[name] = wrong[value] if isinstance(value, str) else value
    with pytest.raises(InputError, match=words):
        check_graph(data)
