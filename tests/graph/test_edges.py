"""Neighbor lists by destination, against a plain Python reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges

edge_lists = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


def tensor(edges: list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


@given(edge_lists)
@settings(max_examples=150, deadline=None)
def test_equals_the_naive_lists(case: tuple[int, list[tuple[int, int]]]) -> None:
    num_nodes, edges = case
    graph = MemoryEdges.from_edge_index(tensor(edges), num_nodes)
    offsets = graph.offsets.tolist()
    for node in range(num_nodes):
        expected = sorted(source for source, target in edges if target == node)
        assert graph.sources[offsets[node] : offsets[node + 1]].tolist() == expected
    assert graph.num_nodes == num_nodes
    assert graph.num_edges == len(edges)
    assert graph.in_degree().tolist() == [sum(t == v for _, t in edges) for v in range(num_nodes)]
    assert graph.out_degree().tolist() == [sum(s == v for s, _ in edges) for v in range(num_nodes)]
    assert sorted(map(tuple, graph.edge_index().T.tolist())) == sorted(edges)
    reverse = sorted((t, s) for s, t in edges)
    assert sorted(map(tuple, graph.transpose().edge_index().T.tolist())) == reverse
    before = graph.out_degree()
    assert graph.is_symmetric() == (reverse == sorted(edges))
    assert torch.equal(graph.out_degree(), before)
    assert graph.count_duplicates() == len(edges) - len(set(edges))
    assert sorted(map(tuple, graph.coalesce().edge_index().T.tolist())) == sorted(set(edges))
    assert graph.coalesce().num_nodes == num_nodes


def test_isolated_and_last_nodes_keep_their_place() -> None:
    graph = MemoryEdges.from_edge_index(torch.tensor([[0], [1]]), num_nodes=5)
    assert graph.num_nodes == 5
    assert graph.in_degree().tolist() == [0, 1, 0, 0, 0]
    assert graph.transpose().num_nodes == 5


def test_index_types() -> None:
    edges = torch.tensor([[0, 2], [2, 1]], dtype=torch.int32)
    graph = MemoryEdges.from_edge_index(edges, 3)
    assert graph.sources.dtype == torch.int32
    assert graph.offsets.dtype == torch.int32
    assert graph.in_degree().dtype == torch.int64


def test_the_input_is_left_alone() -> None:
    edges = torch.tensor([[3, 0, 1], [0, 2, 2]])
    before = edges.clone()
    MemoryEdges.from_edge_index(edges, 4)
    assert torch.equal(edges, before)


def test_parts_and_loading_give_the_same_edges() -> None:
    graph = MemoryEdges.from_edge_index(torch.tensor([[3, 0, 1], [0, 2, 2]]), 4)
    assert torch.equal(torch.cat(list(graph.edge_blocks()), 1), graph.edge_index())
    assert graph.load() is graph


@pytest.mark.parametrize(
    ("edges", "num_nodes", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), 2, r"shape \[2, E\]"),
        (torch.zeros(2, 2), 2, "integer node numbers"),
        (torch.tensor([[0], [2]]), 2, "from 0 to 1; got 0 to 2"),
        (torch.tensor([[-1], [0]]), 2, "got -1 to 0"),
        (torch.zeros(2, 0, dtype=torch.int64), 2**31, "split the graph"),
    ],
)
def test_wrong_edges_are_refused(edges: torch.Tensor, num_nodes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MemoryEdges.from_edge_index(edges, num_nodes)
