"""Rooted subgraphs: against a naive search, and how many of them one node can change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, ragged, whole_graph
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mixture import occurrence_bound
from small_graphs import capped_edges

Lists = list[set[int]]


def graph_of(lists: Lists, cap: int | None = None) -> MemoryEdges:
    pairs = [(v, u) for v, own in enumerate(lists) for u in sorted(own) if u != v]
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    if cap is not None:
        edges = capped_edges(edges, len(lists), cap, NoiseSource.seeded(3).stream("degree cap"))
    return MemoryEdges.from_edge_index(edges, len(lists))


def content(graph: MemoryEdges, root: int, layers: int) -> set[tuple[int, int, int]]:
    """All that an example of `root` reads: (step, sender, receiver) of every message, by a search without tricks."""
    into = [set() for _ in range(graph.num_nodes)]
    for sender, receiver in graph.edge_index().T.tolist():
        into[receiver].add(sender)
    read, level = {(0, root, root)}, {root}
    for step in range(1, layers + 1):
        read |= {(step, sender, node) for node in level for sender in into[node]}
        level = level | {sender for node in level for sender in into[node]}
    return read


lists_strategy = st.integers(3, 14).flatmap(
    lambda n: st.lists(st.sets(st.integers(0, n - 1), max_size=n), min_size=n, max_size=n)
)


@settings(max_examples=60, deadline=None)
@given(lists_strategy, st.integers(1, 3))
def test_rows_and_messages_are_those_of_a_naive_search(lists: Lists, layers: int) -> None:
    graph = graph_of(lists)
    roots = torch.arange(0, len(lists), 2)
    subgraphs = RootedSubgraphs(graph, roots, layers)
    batch = subgraphs.batch(torch.arange(len(roots)).flip(0))
    for b, root in enumerate(roots.flip(0).tolist()):
        read = content(graph, root, layers)
        rows = batch.nodes[batch.row_offsets[0][b] : batch.row_offsets[0][b + 1]].tolist()
        assert len(rows) == len(set(rows))
        assert set(rows) == {sender for _, sender, _ in read}
        assert rows[0] == root
    nodes = batch.nodes
    for level, messages in enumerate(batch.layers):
        kept = nodes[messages.own]
        for row, receiver in enumerate(kept.tolist()):
            senders = nodes[messages.sources[messages.offsets[row] : messages.offsets[row + 1]]].tolist()
            assert sorted(senders) == sorted(
                graph.sources[graph.offsets[receiver] : graph.offsets[receiver + 1]].tolist()
            )
        assert messages.num_inputs == int(batch.row_offsets[level][-1]) == nodes.numel()
        nodes = kept
    assert nodes.tolist() == roots.flip(0).tolist()


@settings(max_examples=60, deadline=None)
@given(lists_strategy, st.integers(1, 3), st.integers(1, 3))
def test_no_node_occurs_in_more_roots_than_the_bound(lists: Lists, cap: int, layers: int) -> None:
    graph = graph_of(lists, cap)
    subgraphs = RootedSubgraphs(graph, torch.arange(len(lists)), layers)
    occurrences = torch.bincount(subgraphs.nodes, minlength=len(lists))
    assert int(occurrences.max()) <= occurrence_bound(cap, layers)


def changed(old: Lists, new: Lists, cap: int, layers: int, node: int) -> int:
    """How many examples differ, or read the record of `node`, whose features and label differ as well."""
    before, after = graph_of(old, cap), graph_of(new, cap)
    count = 0
    for root in range(len(old)):
        a, b = content(before, root, layers), content(after, root, layers)
        count += a != b or any(sender == node for _, sender, _ in a | b)
    return count


@settings(max_examples=60, deadline=None)
@given(lists_strategy, st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_null_record_changes_at_most_n_examples_and_a_replaced_one_fewer_than_two_n(
    lists: Lists, cap: int, layers: int, data: st.DataObject
) -> None:
    node = data.draw(st.integers(0, len(lists) - 1))
    bound = occurrence_bound(cap, layers)
    gone = [own if v != node else set() for v, own in enumerate(lists)]
    assert changed(lists, gone, cap, layers, node) <= bound
    other = data.draw(st.sets(st.integers(0, len(lists) - 1)))
    replaced = [own if v != node else other for v, own in enumerate(lists)]
    assert changed(lists, replaced, cap, layers, node) <= 2 * bound - 1


def test_a_hub_that_everybody_names_changes_at_most_n_examples_and_the_bound_is_met() -> None:
    size, cap = 60, 3
    lists: Lists = [set(range(1, size))] + [
        {0, (v % (size - 1)) + 1, ((v + 7) % (size - 1)) + 1} for v in range(1, size)
    ]
    gone = [set(), *lists[1:]]
    for layers in (1, 2, 3):
        assert changed(lists, gone, cap, layers, 0) <= occurrence_bound(cap, layers)
    chain: Lists = [{1, 2}, {3, 4}, {5, 6}, set(), set(), set(), set(), {8, 9}, {10, 11}, {12, 13}, *[set()] * 4]
    assert changed(chain, [set(), *chain[1:]], 2, 2, 0) == occurrence_bound(2, 2)
    assert changed(chain, [{8, 9}, *chain[1:]], 2, 2, 0) == 2 * occurrence_bound(2, 2) - 1


def test_isolated_roots_and_the_last_node_are_there() -> None:
    subgraphs = RootedSubgraphs(graph_of([set(), {2}, set(), set()]), torch.tensor([3, 2, 0]), 2)
    assert subgraphs.num_rows.tolist() == [1, 2, 1]
    assert subgraphs.batch(torch.tensor([1, 0])).nodes.tolist() == [2, 1, 3]
    empty = subgraphs.batch(torch.tensor([], dtype=torch.int64))
    assert empty.num_roots == 0
    assert empty.nodes.numel() == 0


def test_a_graph_without_edges_and_the_whole_graph() -> None:
    graph = graph_of([set(), set()])
    assert RootedSubgraphs(graph, torch.arange(2), 1).num_rows.tolist() == [1, 1]
    batch = whole_graph(graph_of([{1}, set()]), 2)
    assert batch.num_roots == 2
    assert batch.layers[1].counts.tolist() == [0, 1]


def test_ragged_runs() -> None:
    assert ragged(torch.tensor([5, 0, 9]), torch.tensor([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]


def test_no_layers_are_refused() -> None:
    with pytest.raises(InputError):
        RootedSubgraphs(graph_of([set()]), torch.arange(1), 0)
