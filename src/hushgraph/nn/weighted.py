"""Networks on released rows of PageRank: scores of single nodes, averaged with the weights of a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows, take_rows
from hushgraph.graph.edges import Edges
from hushgraph.nn.layers import MLP


@dataclass(frozen=True)
class WeightedRows:
    """Examples that read several nodes each: `columns` and `weights` are `[examples, K]`, `features` those of all."""

    features: Rows
    columns: Tensor
    weights: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Examples, and nodes of each."""
        return tuple(self.columns.shape)

    def __len__(self) -> int:
        return len(self.columns)

    def rows(self, index: Tensor) -> WeightedRows:
        """The examples named by `index`."""
        return WeightedRows(self.features, self.columns[index], self.weights[index])


class WeightedMean(nn.Module):
    """An MLP on every node's features; an example's score is the weighted mean of those of its nodes."""

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: WeightedRows) -> Tensor:
        """Scores of the examples; every node is looked at once."""
        nodes, place = torch.unique(x.columns, return_inverse=True)
        scores = self.mlp(take_rows(x.features, nodes))[place]
        return (scores * x.weights.unsqueeze(2)).sum(dim=1)


def power_iteration(scores: Tensor, edges: Edges, alpha: float, steps: int) -> Tensor:
    """Q = (1 - alpha) D^-1 A Q + alpha H, `steps` times from Q = H: the inference of PPRGo and DP-APPR."""
    held, found = edges.load(), scores
    degree = held.in_degree().clamp(min=1).unsqueeze(1)
    senders, receivers = held.edge_index()
    for _ in range(steps):
        sums = torch.zeros_like(found).index_add_(0, receivers, found[senders])
        found = (1.0 - alpha) * sums / degree + alpha * scores
    return found
