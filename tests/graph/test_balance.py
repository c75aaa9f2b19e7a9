from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph.balance import balance, tolerance
from hushgraph.graph.edges import MemoryEdges

SEND, RECEIVE = 2.0, 5.0


def world(seed: int, nodes: int, density: float) -> tuple[MemoryEdges, torch.Tensor]:
    """Random directed edges, the last node a hub in both directions, and who sends."""
    made = np.random.default_rng(seed)
    there = made.random((nodes, nodes)) < density
    there[-1], there[:, -1] = True, True
    np.fill_diagonal(there, False)
    edges = MemoryEdges.from_edge_index(torch.from_numpy(np.stack(there.nonzero())), nodes)
    return edges, torch.from_numpy(made.random(nodes) < 0.6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.sampled_from([0.05, 0.3, 0.9]))
def test_the_numbers_solve_the_equations(seed: int, nodes: int, density: float) -> None:
    edges, senders = world(seed, nodes, density)
    found = balance(edges, senders, ~senders, SEND, RECEIVE)
    dense = np.zeros((nodes, nodes))
    for source, target in edges.edge_index().t().tolist():
        dense[source, target] = float(senders[source]) * float(~senders[target])
    send = senders.numpy() / (1.0 + dense @ found.receive / SEND)
    receive = (~senders).numpy() / (1.0 + found.send @ dense / RECEIVE)
    assert np.allclose(found.send, send, rtol=tolerance(nodes, RECEIVE), atol=0)
    assert np.allclose(found.receive, receive, rtol=1e-14, atol=0)
    weights = found.send[:, None] * dense * found.receive
    assert weights.sum(1).max(initial=0) < SEND
    assert weights.sum(0).max(initial=0) < RECEIVE
    rows = np.random.default_rng(seed).standard_normal((nodes, 3))
    assert np.allclose(found.sums(rows), weights.T @ rows)


def test_a_lonely_pair_keeps_almost_all_of_its_weight() -> None:
    edges = MemoryEdges.from_edge_index(torch.tensor([[0], [1]]), 2)
    found = balance(edges, torch.tensor([True, False]), torch.tensor([False, True]), 1000.0, 1000.0)
    assert 0.997 < found.send[0] * found.receive[1] < 1.0


def test_a_graph_that_gives_way_slowly_comes_to_an_end() -> None:
    """All pairs, at the smallest capacities: the slowest contraction there is for so many nodes."""
    nodes = 400
    senders = torch.arange(nodes) % 2 == 0
    pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    found = balance(MemoryEdges.from_edge_index(pairs, nodes), senders, ~senders, 1.0, 1.0)
    half = nodes // 2
    number = (np.sqrt(1.0 + 4.0 * half) - 1.0) / (2.0 * half)  # u = r by symmetry: u + half u^2 = 1
    assert np.allclose(found.send[senders.numpy()], number, rtol=1e-3 / nodes * half)


def test_without_edges_or_senders_nothing_is_sent() -> None:
    none = MemoryEdges.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3)
    nobody = torch.zeros(3, dtype=torch.bool)
    assert balance(none, nobody, ~nobody, 1.0, 1.0).sums(np.ones((3, 2))).tolist() == [[0.0, 0.0]] * 3


def test_all_problems_are_listed_at_once() -> None:
    none = MemoryEdges.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3)
    everyone = torch.ones(3, dtype=torch.bool)
    with pytest.raises(InputError, match=r"(?s)both.*capacities"):
        balance(none, everyone, everyone, 0.5, 1.0)
