"""Two-layer graph networks whose first layer meets the features through one matrix product.

GCN, GraphSAGE (mean) and GAT as published, with the weights applied before the neighbors are added (the same by
linearity, and cheap when the features are wide). `hidden` is everything before dropout, so that a training step and the
evaluation of the same weights share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.edges import Edges
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.nn.propagation import Neighborhood

_HEADS = 4
ACTIVATIONS = {"selu": F.selu, "relu": F.relu}


class Multiplied(Protocol):
    """Rows that can be multiplied with a weight matrix."""

    def matmul(self, weight_t: Tensor) -> Tensor:
        """These rows times `weight_t`."""
        ...


class Backbone(nn.Module, ABC):
    """Two layers: `hidden` (first layer and activation) and `scores` (dropout and second layer)."""

    name: ClassVar[str]

    def __init__(self, columns: int, width: int, classes: int, dropout: float, activation: str = "selu") -> None:
        super().__init__()
        self.first = self.layer(columns, width, last=False)
        self.second = self.layer(self.first.columns_out, classes, last=True)
        self.dropout, self.activation = dropout, ACTIVATIONS[activation]

    @abstractmethod
    def layer(self, columns: int, width: int, *, last: bool) -> Layer:
        """One layer of this kind."""

    def hidden(self, rows: Multiplied, graph: Neighborhood) -> Tensor:
        """The first layer's activations."""
        return self.activation(self.first(rows, graph))

    def scores(self, hidden: Tensor, graph: Neighborhood) -> Tensor:
        """Class scores; dropout acts in training mode only."""
        return self.second(F.dropout(hidden, self.dropout, self.training), graph)

    def forward(self, rows: Multiplied, graph: Neighborhood) -> Tensor:
        """Class scores from the rows."""
        return self.scores(self.hidden(rows, graph), graph)

    def reset_parameters(self) -> None:
        """Draw all weights anew, from torch's global generator (fork it around this call)."""
        for part in (self.first, self.second):
            part.reset_parameters()


class MeanRidge(nn.Module):
    """A linear map of a node's features and of the means over its neighbors and their neighbors."""

    def __init__(self, columns: int, classes: int, hops: int = 2) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros((hops + 1) * columns, classes))
        self.register_buffer("center", torch.zeros((hops + 1) * columns))
        self.hops = hops

    def rows(self, x: Tensor, graph: Neighborhood) -> Tensor:
        """What is mapped: means weigh twice, because they spread less than single features."""
        found = [x]
        for _ in range(self.hops):
            found.append(graph.mean(found[-1]))
        return torch.cat([found[0], *(2.0 * mean for mean in found[1:])], dim=1)

    def forward(self, x: Tensor, graph: Neighborhood) -> Tensor:
        """Class scores."""
        return (self.rows(x, graph) - self.get_buffer("center")) @ self.get_buffer("weights")


class RawGraph(nn.Module):
    """A backbone on features and edges as a vault holds them; what it computes reads raw neighborhoods."""

    def __init__(self, backbone: Backbone | MeanRidge) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, rows: Rows, edges: Edges) -> Tensor:
        """Class scores of all nodes."""
        scores: Tensor = self.backbone(dense_rows(rows), Neighborhood(edges.load()))
        return scores


class Layer(nn.Module):
    """A graph layer that takes anything with `matmul`. Weights are `[in, out]`."""

    def __init__(self, columns: int, width: int, blocks: int = 1) -> None:
        super().__init__()
        self.columns_out = width
        self.weight = nn.Parameter(torch.empty(columns, width * blocks))
        self.bias = nn.Parameter(torch.zeros(width))

    def reset_parameters(self) -> None:
        """Uniform weights with the usual bound 1/sqrt(in); zero bias."""
        bound = self.weight.shape[0] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.bias)


class SageLayer(Layer):
    """Mean of the neighbors and the node itself, each with its own weights."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__(columns, width, blocks=2)

    def forward(self, rows: Multiplied, graph: Neighborhood) -> Tensor:
        """One layer."""
        neighbors, own = rows.matmul(self.weight).chunk(2, dim=1)
        return graph.mean(neighbors) + own + self.bias


class GcnLayer(Layer):
    """The GCN-normalized sum with self loops."""

    def forward(self, rows: Multiplied, graph: Neighborhood) -> Tensor:
        """One layer."""
        return graph.gcn(rows.matmul(self.weight)) + self.bias


class GatLayer(Layer):
    """Attention over the neighbors and the node itself; heads side by side, or averaged in the last layer."""

    def __init__(self, columns: int, width: int, heads: int) -> None:
        super().__init__(columns, width, blocks=heads)
        self.heads = heads
        self.columns_out = width * heads
        self.bias = nn.Parameter(torch.zeros(width * heads))
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))

    def reset_parameters(self) -> None:
        """As usual, and the attention vectors."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.source)
        nn.init.xavier_uniform_(self.target)

    def forward(self, rows: Multiplied, graph: Neighborhood) -> Tensor:
        """One layer."""
        values = rows.matmul(self.weight).unflatten(1, (self.heads, -1))
        loops = torch.arange(graph.num_nodes)
        source = torch.cat([graph.edge_index[0], loops])
        target = torch.cat([graph.edge_index[1], loops])
        sent, received = (values * self.source).sum(-1), (values * self.target).sum(-1)
        logits = F.leaky_relu(sent[source] + received[target], 0.2)
        from torch_geometric.utils import softmax  # takes a second, and plans need no graph

        weights = softmax(logits, target, num_nodes=graph.num_nodes)
        summed = torch.zeros_like(values).index_add(0, target, weights.unsqueeze(-1) * values[source])
        return summed.flatten(1) + self.bias


class Sage(Backbone):
    """GraphSAGE with the mean of the neighbors."""

    name = "sage"

    def layer(self, columns: int, width: int, *, last: bool) -> Layer:
        """A mean layer."""
        return SageLayer(columns, width)


class Gcn(Backbone):
    """GCN."""

    name = "gcn"

    def layer(self, columns: int, width: int, *, last: bool) -> Layer:
        """A GCN layer."""
        return GcnLayer(columns, width)


class Gat(Backbone):
    """GAT: four heads side by side, then one."""

    name = "gat"

    def layer(self, columns: int, width: int, *, last: bool) -> Layer:
        """An attention layer."""
        return GatLayer(columns, width, 1 if last else _HEADS)


BACKBONES: dict[str, type[Backbone]] = {"sage": Sage, "gcn": Gcn, "gat": Gat}


def backbone(name: str, columns: int, width: int, classes: int, dropout: float, activation: str = "selu") -> Backbone:
    """The untrained network called `name`."""
    if name not in BACKBONES:
        raise InputError(f"backbone: got '{name}'; {did_you_mean(name, BACKBONES)}")
    return BACKBONES[name](columns, width, classes, dropout, activation)
