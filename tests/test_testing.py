"""Neighbors differ in one unit and share all that is public: the matrix is worth as much as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hushgraph.graph.checks import CheckedGraph
from hushgraph.privacy import units
from hushgraph.testing import NodeRecord, Variations
from hushgraph.testing import units as all_units
from matrix_graphs import GRAPHS, fits, own_rows


def entries(graph: CheckedGraph) -> set[tuple[int, int]]:
    return {(a, b) for a, b in graph.edges.edge_index().t().tolist()}


def pairs_of(unit: units.Unit) -> list[tuple[CheckedGraph, CheckedGraph]]:
    rng = np.random.default_rng(0)
    found = [(g, other) for g in GRAPHS if fits(g, unit) for other in unit.neighbors(Variations(g), rng)]
    assert len(found) > 15
    return found


@pytest.mark.parametrize("unit", all_units(), ids=repr)
def test_neighbors_share_what_is_public_and_differ(unit: units.Unit) -> None:
    differing = 0
    for graph, other in pairs_of(unit):
        assert other.metadata == graph.metadata
        assert all(torch.equal(other.split(name), graph.split(name)) for name in ("train", "val", "test"))
        same = {
            "edges": entries(graph) == entries(other),
            "features": torch.equal(graph.features, other.features),
            "labels": torch.equal(graph.labels, other.labels),
        }
        assert all(same[part] for part in unit.public)
        differing += not all(same.values())
    assert differing > 15


@pytest.mark.parametrize("unit", all_units(), ids=repr)
def test_a_footprint_holds_for_every_neighbor(unit: units.Unit) -> None:
    """Each field against its definition: records, entries of the own list and of others, receivers."""
    f = unit.footprint
    for graph, other in pairs_of(unit):
        changed = own_rows(graph, other)
        moved = entries(graph) ^ entries(other)
        assert changed.sum() <= f.records
        own = {(a, b) for a, b in moved if changed[a]}
        if f.records == 0:  # an edge belongs to the node that sends it; of an undirected one, either
            own = {min(moved)} if moved else set()
        assert len(own) <= f.own_list
        assert len(moved - own) <= f.other_entries
        if unit.cap is None:
            assert len({b for _, b in moved if not changed[b]}) <= f.receivers
        if f.mirrored:
            assert {(b, a) for a, b in moved} == moved


@pytest.mark.parametrize("unit", [units.UndirectedEdge(), units.DirectedEdge()], ids=str)
def test_every_edge_is_left_out_once_and_some_are_put_in(unit: units.Unit) -> None:
    for graph in (g for g in GRAPHS if fits(g, unit) and g.edges.num_edges):
        each = 2 if unit.footprint.mirrored else 1
        changes = [
            entries(other) ^ entries(graph) for other in unit.neighbors(Variations(graph), np.random.default_rng(1))
        ]
        left_out = [change for change in changes if change <= entries(graph)]
        assert set().union(*left_out) == entries(graph)
        assert len(left_out) == len(entries(graph)) // each
        assert all(len(change) == each for change in changes)


def test_an_empty_record_keeps_the_entries_of_others_and_a_removed_node_does_not() -> None:
    graph = next(g for g in GRAPHS if g.metadata.name == "hub")
    empty, removed = Variations(graph).with_record(0, None), Variations(graph).without_node(0)
    assert not empty.features[0].any()
    assert int(empty.labels[0]) == int(removed.labels[0]) == -1
    assert {a for a, b in entries(empty) if b == 0} == set(range(1, 9))
    assert not {edge for edge in entries(empty) if edge[0] == 0}
    assert not {edge for edge in entries(removed) if 0 in edge}
    assert entries(removed) == {edge for edge in entries(graph) if 0 not in edge}


def test_a_replaced_record_is_the_given_one() -> None:
    graph = GRAPHS[0]
    record = NodeRecord(torch.tensor([1.0, 2.0, 3.0]), 1, (0, 7))
    other = Variations(graph).with_record(2, record)
    assert other.features[2].tolist() == [1.0, 2.0, 3.0]
    assert int(other.labels[2]) == 1
    assert {b for a, b in entries(other) if a == 2} == {0, 7}
    opposite = Variations(graph).with_record(2, Variations(graph).opposite_record(2))
    assert torch.equal(opposite.features[2], -graph.features[2])
    assert int(opposite.labels[2]) != int(graph.labels[2])
    assert entries(opposite) == entries(graph)


def test_the_graph_itself_is_not_changed() -> None:
    graph = GRAPHS[0]
    before = (graph.features.clone(), graph.labels.clone(), entries(graph))
    for unit in all_units():
        if fits(graph, unit):
            list(unit.neighbors(Variations(graph), np.random.default_rng(0)))
    assert torch.equal(graph.features, before[0])
    assert torch.equal(graph.labels, before[1])
    assert entries(graph) == before[2]
