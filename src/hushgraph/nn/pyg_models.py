"""PyG's GCN, GraphSAGE, GIN and GAT models, computed faster: same weights, same numbers, other order.

A layer is linear up to its activation, so the weights are applied first (to sparse rows, if the features are sparse)
and the few columns that result are summed over neighbors with the library's own sum. The models stay PyG's: their
weights, their way to draw them, and their own `forward`, which the tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges, pack
from hushgraph.graph.rows import Rows, SparseRows, dense_rows, for_many_steps
from hushgraph.nn.layers import linear_input
from hushgraph.nn.propagation import Neighborhood, Propagation


class PygNeighborhood(Neighborhood):
    """A public graph with the sums of PyG's layers (made once, on demand)."""

    @cached_property
    def gcn(self) -> Propagation:
        """The GCN-normalized sum with self loops; PyG takes in-degrees on both sides."""
        scale = (self.graph.in_degree() + 1).to(torch.float32).rsqrt().unsqueeze(1)
        return Propagation(self.graph, self._transposed, scale, scale, True)

    @cached_property
    def plain(self) -> Propagation:
        """The sum over in-neighbors."""
        ones = torch.ones(self.num_nodes, 1)
        return Propagation(self.graph, self._transposed, ones, ones, False)

    @cached_property
    def attention(self) -> AttentionEdges:
        """The edges with a self loop at every node."""
        return AttentionEdges(self.graph)


class AttentionEdges:
    """Edges sorted by target, one self loop per node among them, and the same edges sorted by source."""

    def __init__(self, graph: MemoryEdges) -> None:
        nodes = np.arange(graph.num_nodes, dtype=np.int32)
        sources = np.concatenate((graph.sources.numpy(), nodes))
        targets = np.concatenate((graph.targets().numpy(), nodes))
        with_loops = MemoryEdges.from_packed(pack(targets, sources), graph.num_nodes)
        self.num_nodes = graph.num_nodes
        self.sources, self.offsets = with_loops.sources.to(torch.int64), with_loops.offsets.to(torch.int64)
        self.targets = with_loops.targets().to(torch.int64)
        ordered, self.by_source = torch.sort(self.sources, stable=True)
        self.source_offsets = torch.searchsorted(ordered, torch.arange(graph.num_nodes + 1))
        self.targets_by_source = self.targets[self.by_source]

    def softmax(self, logits: Tensor) -> Tensor:
        """One weight per edge; those of one target add up to one."""
        with torch.no_grad():
            top = logits.new_full((self.num_nodes,), -torch.inf)
            top = top.scatter_reduce(0, self.targets, logits, "amax", include_self=True)
        weights = (logits - top.index_select(0, self.targets)).exp()
        total = weights.new_zeros(self.num_nodes).index_add(0, self.targets, weights)
        return weights / total.index_select(0, self.targets)


class _WeightedSum(torch.autograd.Function):
    """For every target, the weighted sum of its sources' rows."""

    @staticmethod
    def forward(ctx, weights: Tensor, rows: Tensor, edges: AttentionEdges) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weights, rows)
        ctx.edges = edges
        return _bags(edges.sources, rows, edges.offsets, weights)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        weights, rows = ctx.saved_tensors
        edges: AttentionEdges = ctx.edges
        with torch.enable_grad():  # torch has a kernel for the gradient of the weights, not for that of the rows
            leaf = weights.detach().requires_grad_()
            (of_weights,) = torch.autograd.grad(_bags(edges.sources, rows, edges.offsets, leaf), leaf, grad)
        of_rows = _bags(edges.targets_by_source, grad, edges.source_offsets, weights[edges.by_source])
        return of_weights, of_rows, None


def _bags(indices: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    return F.embedding_bag(
        indices, rows.contiguous(), offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def first_sums(model: BasicGNN, rows: Rows, graph: PygNeighborhood) -> Tensor:
    """The first layer up to its sum over neighbors.

    It is the same in training and in evaluation mode, so that a training step and an evaluation of the same weights can
    share it (only attention with dropout differs: `shares_first_sums`).
    """
    return _summed(model.convs[0], rows, graph)


def remaining_layers(model: BasicGNN, x: Tensor, graph: PygNeighborhood) -> Tensor:
    """Class scores from what `first_sums` gave."""
    layers = list(model.convs)
    x = _finished(layers[0], x)
    for norm, layer in zip(model.norms, layers[1:]):
        x = model.dropout(model.act(norm(x)))
        x = _finished(layer, _summed(layer, x, graph))
    return x


def convolve(layer: nn.Module, rows: Rows, graph: PygNeighborhood) -> Tensor:
    """One layer on the whole graph; a convolution that has no faster form here runs as PyG wrote it."""
    if type(layer) not in _LAYERS:
        found: Tensor = layer(dense_rows(rows), graph.edge_index)
        return found
    return _finished(layer, _summed(layer, rows, graph))


def scores_of(model: BasicGNN, rows: Rows, graph: PygNeighborhood) -> Tensor:
    """What `model(dense rows, edge index)` gives."""
    return remaining_layers(model, first_sums(model, rows, graph), graph)


def shares_first_sums(model: BasicGNN) -> bool:
    """Whether `first_sums` is the same in training and evaluation mode."""
    layer = model.convs[0]
    return not (type(layer) is GATConv and layer.dropout > 0)


def _summed(layer: nn.Module, rows: Rows, graph: PygNeighborhood) -> Tensor:
    run = _LAYERS.get(type(layer))
    if run is None:
        raise InputError(f"expected one of PyG's GCN, SAGE, GIN and GAT layers; got {type(layer).__name__}")
    return run(layer, rows, graph)


def _finished(layer: nn.Module, x: Tensor) -> Tensor:
    """The rest of a layer: a GIN layer is an MLP of two maps, and only the first can move before the sum."""
    if type(layer) is not GINConv:
        return x
    mlp: Any = layer.nn
    finished: Tensor = mlp.lins[1](mlp.act(mlp.norms[0](x)))
    return finished


def _gcn(layer: Any, rows: Rows, graph: PygNeighborhood) -> Tensor:
    return graph.gcn(linear_input(rows, layer.lin.weight)) + layer.bias


def _sage(layer: Any, rows: Rows, graph: PygNeighborhood) -> Tensor:
    both = linear_input(rows, torch.cat((layer.lin_l.weight, layer.lin_r.weight)))
    received, own = both.chunk(2, dim=1)
    collect = graph.plain if layer.aggr == "sum" else graph.mean
    return collect(received) + own + layer.lin_l.bias


def _gin(layer: Any, rows: Rows, graph: PygNeighborhood) -> Tensor:
    first = layer.nn.lins[0]
    mapped = linear_input(rows, first.weight)
    return graph.plain(mapped) + (1.0 + layer.eps) * mapped + first.bias


def _gat(layer: Any, rows: Rows, graph: PygNeighborhood) -> Tensor:
    if layer.heads != 1:
        raise InputError(f"expected attention with one head; got {layer.heads}")
    edges, values = graph.attention, linear_input(rows, layer.lin.weight)
    sent, received = values @ layer.att_src.view(-1), values @ layer.att_dst.view(-1)
    logits = sent.index_select(0, edges.sources) + received.index_select(0, edges.targets)
    weights = edges.softmax(F.leaky_relu(logits, layer.negative_slope))
    weights = F.dropout(weights, layer.dropout, layer.training)
    summed: Tensor = _WeightedSum.apply(weights, values, edges)
    return summed + layer.bias


_LAYERS: dict[type[nn.Module], Callable[[Any, Rows, PygNeighborhood], Tensor]] = {
    GCNConv: _gcn,
    SAGEConv: _sage,
    GINConv: _gin,
    GATConv: _gat,
}


def kept_features(rows: Rows) -> Rows:
    """The features, prepared for many full-batch steps."""
    return for_many_steps(rows) if isinstance(rows, SparseRows) else rows.contiguous()
