"""Networks on released rows of PageRank: scores of single nodes, averaged with the weights of a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.graph.edges import Edges
from hushgraph.graph.rows import JoinedRows, Rows, dense_rows, take_rows
from hushgraph.nn.rowwise import rowwise

_ALIGNED = 16


@dataclass(frozen=True)
class WeightedRows:
    """Examples that read several nodes each: `columns` and `weights` are `[examples, K]`, `features` those of all."""

    features: Rows
    columns: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.columns)

    def rows(self, index: Tensor) -> WeightedRows:
        """The examples named by `index`."""
        return WeightedRows(self.features, self.columns[index], self.weights[index])

    def gathered(self) -> JoinedRows:
        """What every example reads, by itself: features `[examples, K, columns]` and weights `[examples, K]`."""
        features = dense_rows(take_rows(self.features, self.columns.flatten()))
        return JoinedRows([features.view(*self.columns.shape, -1), self.weights])


@rowwise("An example's score is the weighted mean of the scores of the nodes that it brings along.")
class WeightedMean(nn.Module):
    """A row-wise `scorer` of single nodes; an example's score is the weighted mean over its nodes."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, x: JoinedRows) -> Tensor:
        """Scores of examples as `WeightedRows.gathered` gives them."""
        features, weights = x.parts
        assert isinstance(weights, Tensor)
        assert isinstance(features, Tensor)
        return _mean(self.scorer(aligned(features)), weights)

    def at_once(self, x: WeightedRows) -> Tensor:
        """The same, with every node looked at once, however many examples read it."""
        nodes, place = torch.unique(x.columns, return_inverse=True)
        return _mean(self.scorer(take_rows(x.features, nodes))[place], x.weights)


def aligned(rows: Tensor) -> Tensor:
    """The same `[examples, K, columns]`, every row at a multiple of 64 bytes: kernels may look at where it starts."""
    width = rows.shape[2]
    if width % _ALIGNED == 0:
        return rows.contiguous()
    room = rows.new_zeros(*rows.shape[:2], width + -width % _ALIGNED)
    room[:, :, :width] = rows
    return room[:, :, :width]


def _mean(scores: Tensor, weights: Tensor) -> Tensor:
    return (scores * weights.unsqueeze(2)).sum(dim=1)


def power_iteration(scores: Tensor, edges: Edges, alpha: float, steps: int) -> Tensor:
    """Q = (1 - alpha) D^-1 A Q + alpha H, `steps` times from Q = H: the inference of PPRGo and DP-APPR."""
    held, found = edges.load(), scores
    degree = held.in_degree().clamp(min=1).unsqueeze(1)
    senders, receivers = held.edge_index()
    for _ in range(steps):
        sums = torch.zeros_like(found).index_add_(0, receivers, found[senders])
        found = (1.0 - alpha) * sums / degree + alpha * scores
    return found
