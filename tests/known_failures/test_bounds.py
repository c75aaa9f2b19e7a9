"""Known failures about how far one unit can move a sum: P1, P4, P5, P6, P8, P11, P25, P34."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.neighbors import NodeRecord, Variations
from hushgraph.data.rows import dense_rows
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import whole_graph
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.mechanisms.rooted_gradient import RootedGradient
from hushgraph.nn import MLP
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import BoundedDegreeNode, Node, NodeReplace, UndirectedEdge, Unit
from hushgraph.training.config import Training
from known_failures.common import (
    EDGE_READERS,
    ROUNDING,
    STAGE,
    UNITS,
    answer,
    keeps_its_bound,
    mixture_delta,
    small_graph,
    stage_vault,
    step_sum,
    table,
)
from small_graphs import hub_graph, random_graph

# P1: the rows that are summed are the rows that were bounded


class BoundedCopy(NeighborSum):
    """Normalizes rows into a dictionary that is thrown away."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        state = {"rows": dense_rows(rows)}
        dict(state)["rows"] = F.normalize(state["rows"], dim=1)
        return plain_sum(data.edges, state["rows"]) + noise.gaussian(tuple(rows.shape), scale)


class LoudMessages(LabelSum):
    """Sends rows as they come."""

    def release(self, data: Any, scale: float, noise: Any, *inputs: Any, **_: Any) -> Tensor:
        rows = self.rows(data, *inputs)
        return plain_sum(data.edges, rows) + noise.gaussian(tuple(rows.shape), scale)


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
        self.edges = edges


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


# P8: one clip over all parameters


class PerTensor(Gradient):
    """Clips every tensor of an example's gradient to the bound, as if each were all of it."""

    def release(
        self, data: Any, scale: float, noise: Any, module: nn.Module, rows: Any, training: Training, **_: Any
    ) -> None:
        parameters = list(module.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for node in data.train:
            loss = F.cross_entropy(module(rows[node : node + 1]), data.labels[node : node + 1])
            for part, gradient in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                part += gradient * min(1.0, self.max_grad_norm / float(gradient.norm()))
        with torch.no_grad():
            for parameter, part in zip(parameters, total, strict=True):
                parameter -= training.lr / len(data.train) * part


def one_record_moves(mechanism: Gradient, module: Callable[[], nn.Module]) -> float:
    """How far replacing one record moves the sum of one step, in clip norms."""
    graph = check_graph(random_graph(2, num_nodes=16))
    unit, rng = NodeReplace(3), np.random.default_rng(0)
    neighbors = list(unit.neighbors(Variations(graph), rng))[:8]
    before = step_sum(mechanism, unit, graph, module(), dense_rows(graph.features))
    found = [step_sum(mechanism, unit, one, module(), dense_rows(one.features)) for one in neighbors]
    return max(float((before - after).norm()) for after in found) / mechanism.max_grad_norm


def perceptron() -> nn.Module:
    return MLP(5, 8, 3, 3, generator=torch.Generator().manual_seed(0))


def test_p08_one_clip_covers_all_tensors_together() -> None:
    bound = 2.0 * (1.0 + 1e-3)  # the old gradient goes and a new one comes; single-precision weights round the rest
    assert 0.5 < one_record_moves(Gradient(max_grad_norm=0.01), perceptron) <= bound
    assert one_record_moves(PerTensor(max_grad_norm=0.01), perceptron) > 1.2 * bound


# P4, P11, P25: gradients of examples that share nodes


def linear_network(layers: int = 1, width: float = 1.0) -> RootedNetwork:
    """One hidden number, so small that the network is linear in the features; the last layer weighs `width`."""
    network = RootedNetwork(1, 1, 2, num_layers=layers, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        for layer in network.convolutions:
            for name, parameter in layer.named_parameters():
                if name.endswith("weight"):
                    parameter.fill_(1.0)
        network.decoder[0].weight.copy_(torch.tensor([[width], [-width]]))
    return network


def star(receivers: int, quiet: int) -> CheckedGraph:
    """Node 0 sends to all receivers, each of which hears `quiet` others as well; only node 0 is loud."""
    edges, nodes = [(0, r) for r in range(1, receivers + 1)], receivers + 1
    for receiver in range(1, receivers + 1):
        edges += [(nodes + k, receiver) for k in range(quiet)]
        nodes += quiet
    x = torch.full((nodes, 1), 1.0)
    x[0] = 1e6
    return table(x, torch.zeros(nodes, dtype=torch.int64), torch.tensor(edges).t())


def turned(graph: CheckedGraph) -> CheckedGraph:
    """The neighbor in which node 0's feature has the other sign."""
    receivers = tuple(graph.edges.edge_index()[1][graph.edges.edge_index()[0] == 0].tolist())
    return Variations(graph).with_record(0, NodeRecord(-graph.features[0], 0, receivers))


def rooted_move(mechanism: RootedGradient, graph: CheckedGraph, network: Callable[[], RootedNetwork]) -> float:
    unit = NodeReplace(mechanism.max_degree)
    before, after = (step_sum(mechanism, unit, one, network()) for one in (graph, turned(graph)))
    return float((before - after).norm())


class ColumnWeights(RootedGradient):
    """Takes the total weight of a node over all rows, at most 1, for the number of clipped gradients it can turn."""

    def sensitivity(self, unit: Unit) -> float:
        return 2.0 * self.max_grad_norm


class OrthogonalRows(RootedGradient):
    """Adds up the changed examples as if they were orthogonal, and samples as if one record moved."""

    def sensitivity(self, unit: Unit) -> float:
        return 2.0 * math.sqrt(self.max_degree + 1) * self.max_grad_norm

    def event(self, unit: Unit, scale: float) -> Any:
        return events.sampled_gaussian(self.sample_rate, scale / self.sensitivity(unit), self.steps)


def test_p04_clipped_gradients_are_counted_and_not_weighed() -> None:
    graph = star(receivers=8, quiet=8)
    weights = 1.0 / (graph.edges.in_degree()[1:9].double() + 1.0)
    assert float(weights.sum()) <= 1.0  # the weights of node 0 in all rows together
    unit = NodeReplace(8)
    for mechanism, holds in ((RootedGradient(max_degree=8), True), (ColumnWeights(max_degree=8), False)):
        move = rooted_move(mechanism, graph, linear_network)
        assert move > 15.0  # far beyond one clip norm although the weights are small
        assert (move <= mechanism.sensitivity(unit)) is holds


def test_p25_changed_examples_add_up_and_do_not_pass_for_orthogonal() -> None:
    graph, unit = star(receivers=8, quiet=0), NodeReplace(8)
    for mechanism, holds in ((RootedGradient(max_degree=8), True), (OrthogonalRows(max_degree=8), False)):
        assert (rooted_move(mechanism, graph, linear_network) <= mechanism.sensitivity(unit)) is holds


@pytest.mark.parametrize("unit", [Node(3), NodeReplace(3)], ids=str)
def test_p25_the_price_knows_that_several_records_of_a_batch_move(unit: Unit) -> None:
    sound, delta, scale = RootedGradient(sample_rate=0.2, max_degree=3), 1e-5, 12.0
    touched = sound.touched(unit)
    for mechanism, holds in ((sound, True), (OrthogonalRows(sample_rate=0.2, max_degree=3), False)):
        claimed = PrivacyLoss(mechanism.event(unit, scale), unit.relation).epsilon(delta)
        assert (mixture_delta(scale, 0.2, *touched, claimed) <= delta) is holds


class PerRow(RootedGradient):
    """Clips the gradient of each row of each layer, as wrappers for ordinary networks do behind message passing."""

    def release(  # type: ignore[override]
        self, data: Any, scale: float, noise: Any, network: RootedNetwork, training: Training
    ) -> None:
        tape = _Tape()
        scores = network(dense_rows(data.features), whole_graph(data.capped(self.max_degree), self.num_layers), tape)
        F.cross_entropy(scores, data.labels, reduction="sum").backward()
        parts = []
        for layer, inputs, outputs in tape.used:
            weight = outputs.grad.unsqueeze(2) * inputs.detach().unsqueeze(1)
            parts.append((layer, weight, outputs.grad))
        norms = torch.stack([w.flatten(1).norm(dim=1) ** 2 + b.norm(dim=1) ** 2 for _, w, b in parts]).sum(0).sqrt()
        factors = (self.max_grad_norm / norms.clamp(min=1e-30)).clamp(max=1.0)
        with torch.no_grad():
            for layer, weight, bias in parts:
                layer.weight -= (weight * factors[:, None, None]).sum(0) * training.lr / len(data.train)
                layer.bias -= (bias * factors[:, None]).sum(0) * training.lr / len(data.train)


class _Tape:
    """Keeps what enters and leaves every linear layer."""

    def __init__(self) -> None:
        self.used: list[tuple[Any, Tensor, Tensor]] = []

    def linear(self, layer: Any, x: Any, level: int) -> Tensor:
        outputs = F.linear(x, layer.weight, layer.bias)
        outputs.retain_grad()
        self.used.append((layer, x, outputs))
        return outputs


def crowd(senders: int = 40) -> CheckedGraph:
    """Everybody sends to one receiver, the last node; node 0 alone decides what that one predicts."""
    edges = torch.stack([torch.arange(senders), torch.full((senders,), senders)])
    x = torch.full((senders + 1, 1), 1e-3)
    x[0] = 1e3
    return table(x, torch.zeros(senders + 1, dtype=torch.int64), edges)


def confident_network() -> RootedNetwork:
    network = linear_network(width=2e3)
    with torch.no_grad():
        network.encoder[0].weight.fill_(1.0)
    return network


def test_p11_gradients_are_clipped_per_root_and_not_per_row_of_a_layer() -> None:
    unit = NodeReplace(1)
    for mechanism, holds in ((RootedGradient(max_degree=1), True), (PerRow(max_degree=1), False)):
        move = rooted_move(mechanism, crowd(), confident_network)
        assert (move <= mechanism.sensitivity(unit) * (1.0 + 1e-3)) is holds


def test_p11_message_passing_inside_a_clipped_network_is_refused() -> None:
    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = SAGEConv(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, torch.tensor([[0], [1]]))

    graph = check_graph(random_graph(2, num_nodes=16))
    with pytest.raises(UnprovenError, match="message passing"):
        step_sum(Gradient(), NodeReplace(3), graph, Sage(), dense_rows(graph.features))


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
