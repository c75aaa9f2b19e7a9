from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import merged, pair_edges, pair_numbers, without
from hushgraph.privacy.metadata import count_pairs

NODES = range(2, 12)


def edges_of(pairs: list[tuple[int, int]], nodes: int) -> MemoryEdges:
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return MemoryEdges.from_edge_index(index, nodes)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("undirected", [True, False])
def test_numbers_and_pairs_are_one_to_one_without_gaps(nodes: int, undirected: bool) -> None:
    kinds = itertools.combinations if undirected else itertools.permutations
    numbers = [int(pair_numbers(edges_of([pair], nodes), undirected=undirected)[0]) for pair in kinds(range(nodes), 2)]
    assert sorted(numbers) == list(range(count_pairs(nodes, undirected=undirected)))


@pytest.mark.parametrize("undirected", [True, False])
@given(st.integers(2, 30), st.integers(0, 1000))
def test_a_graph_comes_back(undirected: bool, nodes: int, seed: int) -> None:
    pairs = np.argwhere(np.random.default_rng(seed).random((nodes, nodes)) < 0.2)
    chosen = [(int(a), int(b)) for a, b in pairs if a != b]
    edges = edges_of(chosen, nodes)
    again = pair_edges(pair_numbers(edges, undirected=undirected), nodes, undirected=undirected)
    expected = {*chosen, *((b, a) for a, b in chosen)} if undirected else set(chosen)
    assert set(map(tuple, again.edge_index().t().tolist())) == expected
    assert again.num_edges == len(expected)
    assert again.is_symmetric() or not undirected


def test_one_node_has_no_pairs_and_too_many_are_refused() -> None:
    assert count_pairs(1, undirected=True) == 0
    assert pair_edges(np.empty(0, dtype=np.int64), 1, undirected=True).num_edges == 0
    with pytest.raises(InputError, match="2\\^53"):
        count_pairs(10**8, undirected=False)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_differences_and_unions_are_those_of_sets(one: set[int], other: set[int]) -> None:
    left, right = (np.array(sorted(found), dtype=np.int64) for found in (one, other))
    rest = without(left, right)
    assert rest.tolist() == sorted(one - other)
    assert merged(rest, right).tolist() == sorted(one | other)
