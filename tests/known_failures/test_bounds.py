"""Known failures about how far one unit can move a sum: P1, P5, P6, P34."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import BudgetError, InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import dense_rows
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.noise import perturb
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import BoundedDegreeNode, Node, NodeReplace, UndirectedEdge, Unit
from hushgraph.testing import Variations
from known_failures.common import (
    EDGE_READERS,
    ROUNDING,
    STAGE,
    UNITS,
    answer,
    keeps_its_bound,
    small_graph,
    stage_vault,
)
from small_graphs import hub_graph, random_graph

# P1: the rows that are summed are the rows that were bounded


class BoundedCopy(NeighborSum):
    """Normalizes rows into a dictionary that is thrown away."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        state = {"rows": dense_rows(rows)}
        dict(state)["rows"] = F.normalize(state["rows"], dim=1)
        return perturb(plain_sum(data.edges, state["rows"]), scale, noise)


class LoudMessages(LabelSum):
    """Sends rows as they come."""

    def release(self, data: Any, scale: float, noise: Any, *inputs: Any, **_: Any) -> Tensor:
        rows = self.rows(data, *inputs)
        return perturb(plain_sum(data.edges, rows), scale, noise)


def plain_sum(edges: Any, rows: Tensor) -> Tensor:
    """The sum over in-neighbors, as it is defined."""
    source, target = edges.edge_index()
    return torch.zeros(len(rows), rows.shape[1], dtype=torch.float64).index_add_(0, target, rows[source].double())


def loud(mechanism: Mechanism) -> bool:
    """Whether the bound holds when all that is handed in is 50 times too long."""
    graph = small_graph(UndirectedEdge())
    rows = 50.0 * (dense_rows(graph.features).abs()[:, :3] + 1.0)
    edge = next(iter(Variations(graph).pairs(directed=False)))
    without = Variations(graph).without_pair(edge, both=True)
    before, after = (answer(mechanism, UndirectedEdge(), one, rows) for one in (graph, without))
    return float((before - after).norm()) <= mechanism.sensitivity(UndirectedEdge()) * (1.0 + ROUNDING)


def test_p01_the_bound_is_enforced_on_the_rows_that_are_released() -> None:
    assert loud(NeighborSum())
    assert loud(NeighborSum(row_norm=0.1))
    assert loud(LabelSum())
    assert not loud(BoundedCopy())
    assert not loud(LoudMessages())


# P5, P6: degree caps that are not stable


class WholeNode(Node):
    """Claims the bound of an owned list for a node that leaves with every entry that names it."""

    def neighbors(self, data: Any, rng: Any) -> Any:
        return BoundedDegreeNode(self.max_degree).neighbors(data, rng)


class SharedDraws(NeighborSum):
    """Cuts lists one after the other with one generator, so each list's choice depends on the lists before it."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        generator, kept = torch.Generator().manual_seed(0), []
        edges = data.whole_lists.edge_index()
        for sender in edges[0].unique():
            own = edges[:, edges[0] == sender]
            kept.append(own[:, torch.randperm(own.shape[1], generator=generator)[:3]])
        view = MemoryEdges.from_edge_index(torch.cat(kept, dim=1), data.metadata.num_nodes)
        return super().release(_With(view), scale, noise, rows)


class DroppedReceivers(NeighborSum):
    """Cuts lists as it should, and then drops whoever receives from more than six: one node can make them seven."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        edges = data.edges
        few = (edges.in_degree() <= 6)[edges.edge_index()[1]]
        view = MemoryEdges.from_edge_index(edges.edge_index()[:, few], edges.num_nodes)
        return super().release(_With(view), scale, noise, rows)


class _With:
    """A view that shows other edges."""

    def __init__(self, edges: MemoryEdges) -> None:
        self.edges, self.edge_weights = edges, None


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_p05_no_cap_refills_places_under_any_unit(unit: Unit) -> None:
    for mechanism in EDGE_READERS:
        if math.isfinite(mechanism.sensitivity(unit)):
            assert keeps_its_bound(mechanism, unit), mechanism
    if isinstance(unit, Node) and unit.cap:
        dense, hub = check_graph(random_graph(1, num_nodes=24, num_edges=200)), check_graph(hub_graph(30))
        assert keeps_its_bound(NeighborSum(), unit, dense)
        assert keeps_its_bound(NeighborSum(), unit, hub)
        assert not keeps_its_bound(NeighborSum(), WholeNode(2), hub)  # the same cap, sold as removal of the whole node
        assert not keeps_its_bound(SharedDraws(), unit, dense)


def test_p05_a_promised_degree_is_checked_and_never_made_true_by_dropping_edges() -> None:
    hub = check_graph(hub_graph(30))
    with pytest.raises(InputError, match="no node with more than 3"):
        BoundedDegreeNode(3).check(hub)
    BoundedDegreeNode(30).check(hub)
    kept = answer(NeighborSum(), BoundedDegreeNode(30), hub, torch.eye(31))
    assert int(kept.round().sum()) == hub.edges.num_edges


@pytest.mark.parametrize("unit", [Node(3), NodeReplace(3)], ids=str)
def test_p06_what_a_node_keeps_does_not_depend_on_other_nodes(unit: Unit) -> None:
    hub = check_graph(hub_graph(30))
    assert keeps_its_bound(NeighborSum(), unit, hub)
    assert not keeps_its_bound(DroppedReceivers(), unit, crowded())


def crowded() -> CheckedGraph:
    """Node 0 sends to three nodes, and six others to each of them: with it they are one too many."""
    edges = [(0, r) for r in (1, 2, 3)] + [(6 * r - 2 + k, r) for r in (1, 2, 3) for k in range(6)]
    graph = random_graph(1, num_nodes=22)
    graph.x = torch.ones(22, 5)
    graph.edge_index = torch.tensor(edges).t()
    return check_graph(graph)


# P34: the last node, isolated nodes, directed graphs


class LastNodeForgotten(NeighborSum):
    """Goes through all nodes but the last."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        edges, last = data.edges.edge_index(), data.metadata.num_nodes - 1
        view = MemoryEdges.from_edge_index(edges[:, edges[0] != last], last + 1)
        return super().release(_With(view), scale, noise, rows)


class CappedReceivers(NeighborSum):
    """Cuts what a node receives, not what it sends: the same on symmetric graphs only."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        edges, kept = data.whole_lists.edge_index(), []
        for receiver in edges[1].unique():
            kept.append(edges[:, edges[1] == receiver][:, :2])
        view = MemoryEdges.from_edge_index(torch.cat(kept, dim=1), len(rows))
        return super().release(_With(view), scale, noise, rows)


class IsolatedDropped(NeighborSum):
    """Leaves nodes without an edge out of the answer."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        connected = data.edges.in_degree() + data.edges.out_degree() > 0
        return super().release(data, scale, noise, rows)[connected]


def lists_are_cut_right(mechanism: NeighborSum, edges: list[tuple[int, int]], nodes: int, cap: int) -> bool:
    """Whether every node's own list, and no other, is cut to `cap` entries, and every node keeps its place."""
    x = torch.ones(nodes, 1)
    index = torch.tensor(edges).t()
    graph = check_graph(Data(x=x, y=torch.zeros(nodes, dtype=torch.int64), edge_index=index, train_mask=x[:, 0] > 0))
    arrived = answer(mechanism, Node(cap), graph, torch.eye(nodes)).round()
    if arrived.shape != (nodes, nodes):
        return False
    sent = torch.zeros(nodes, nodes, dtype=torch.float64)
    sent[index[1], index[0]] = 1.0
    return bool((arrived <= sent).all()) and bool((arrived.sum(0) == sent.sum(0).clamp(max=cap)).all())


def test_p34_the_last_the_isolated_and_the_one_way_nodes_are_treated_like_all_others() -> None:
    out_star = [(5, r) for r in range(5)]  # the last connected node sends to all and hears nobody
    in_star = [(s, 0) for s in range(1, 6)]
    for edges in (out_star, in_star, [*out_star, *in_star[:-1]]):
        for nodes in (6, 8):  # without and with isolated nodes at the end
            assert lists_are_cut_right(NeighborSum(), edges, nodes, cap=2)
    assert not lists_are_cut_right(LastNodeForgotten(), out_star, 6, cap=2)
    assert not lists_are_cut_right(CappedReceivers(), in_star, 6, cap=2)
    assert not lists_are_cut_right(IsolatedDropped(), out_star, 8, cap=2)


def test_p34_repeated_edges_count_once() -> None:
    graph = random_graph(1, num_nodes=12)
    twice = graph.clone()
    twice.edge_index = torch.cat([graph.edge_index, graph.edge_index], dim=1)
    one, other = (answer(NeighborSum(), UndirectedEdge(), check_graph(data)) for data in (graph, twice))
    assert torch.equal(one, other)
    uncoalesced = replace(check_graph(graph), edges=MemoryEdges.from_edge_index(twice.edge_index, 12))
    assert not torch.equal(one, answer(NeighborSum(), UndirectedEdge(), uncoalesced))


def test_a_release_goes_through_the_gate_of_the_vault() -> None:
    """The checks above read real releases: one more than planned is refused."""
    graph = small_graph(UndirectedEdge())
    vault = stage_vault(graph, NeighborSum(), UndirectedEdge())
    vault.release(STAGE, graph.features)
    with pytest.raises(BudgetError):
        vault.release(STAGE, graph.features)
