"""Likely links from how alike two nodes are after 0, 1, 2, 4, ... propagations, without a deep network.

Every propagation averages more noise out of the rows and blurs more detail. How far to go depends on the graph and on
the noise, so all hops are kept: the score of a pair is a weighted sum of the cosines of its two rows, one per hop, and
of the logarithms of both degrees. The few weights come from logistic regression, which has one optimum: nothing
depends on a lucky start, and there is nothing to learn by heart.

Rows are wide (one column per feature). They are propagated a block of columns at a time and never kept; what is kept
is a narrow matrix whose inner products are close to the weighted cosines.

The variational graph auto-encoder (Kipf and Welling 2016): node rows whose inner products predict links.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor, nn

from hushgraph.graph.rows import Rows
from hushgraph.nn.backbones import GcnLayer, Multiplied
from hushgraph.nn.propagation import Neighborhood

HOPS = (0, 1, 2, 4, 8, 16)
_BLOCK = 512
_RIDGE = 1e-3


class HopWeights(nn.Module):
    """One weight per hop, at least 0, and one for the logarithms of the degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.hops = nn.Parameter(torch.zeros(len(HOPS)), requires_grad=False)
        self.degree = nn.Parameter(torch.zeros(()), requires_grad=False)


class HopRows:
    """The rows, less their mean, after every number of propagations in `hops`; not written out."""

    def __init__(self, rows: Rows, graph: Neighborhood, hops: tuple[int, ...] = HOPS) -> None:
        self.rows, self.graph, self.hops = rows, graph, hops

    def blocks(self) -> Iterator[list[Tensor]]:
        """For each block of columns, one matrix per hop."""
        columns = self.rows.shape[1]
        for start in range(0, columns, _BLOCK):
            yield self._propagated(_columns(self.rows, start, min(columns, start + _BLOCK)))

    def _propagated(self, block: Tensor) -> list[Tensor]:
        block, found = block - block.mean(dim=0), []
        for hop in range(max(self.hops) + 1):
            block = self.graph.gcn(block) if hop else block
            if hop in self.hops:
                found.append(block)
        return found

    def lengths(self) -> Tensor:
        """The length of every row after every hop, `[nodes, hops]`."""
        squared = torch.zeros(self.graph.num_nodes, len(self.hops))
        for block in self.blocks():
            squared += torch.stack([rows.square().sum(dim=1) for rows in block], dim=1)
        return squared.sqrt()

    def cosines(self, pairs: Tensor) -> Tensor:
        """The cosine of both rows of every pair (`[2, P]`) after every hop, `[P, hops]` (0 where a row is 0)."""
        products = torch.zeros(pairs.shape[1], len(self.hops))
        squared = torch.zeros(self.graph.num_nodes, len(self.hops))
        for block in self.blocks():
            squared += torch.stack([rows.square().sum(dim=1) for rows in block], dim=1)
            products += torch.stack([(rows[pairs[0]] * rows[pairs[1]]).sum(dim=1) for rows in block], dim=1)
        scale = _inverse(squared.sqrt())
        return products * scale[pairs[0]] * scale[pairs[1]]

    def narrow(self, weights: Tensor, rank: int, generator: torch.Generator) -> Tensor:
        """Rows `[nodes, rank]` whose inner products are close to the cosines, weighted and added.

        The weighted cosines of all pairs are a matrix K with no negative eigenvalue. Its range is found by applying it
        to random vectors; the result R has R R^T = Q Q^T K Q Q^T with Q an orthonormal basis of that range.
        """
        scale = _inverse(self.lengths()) * weights.sqrt()
        rank = min(rank, self.graph.num_nodes)
        probes = torch.randn(self.graph.num_nodes, rank, generator=generator)
        image = torch.zeros_like(probes)
        for rows in self._scaled(scale):
            image += rows @ (rows.T @ probes)
        basis = torch.linalg.qr(image).Q
        inner = torch.zeros(rank, rank)
        for rows in self._scaled(scale):
            part = basis.T @ rows
            inner += part @ part.T
        values, vectors = torch.linalg.eigh(inner.to(torch.float64))
        return (basis.to(torch.float64) @ vectors * values.clamp(min=0.0).sqrt()).to(torch.float32)

    def _scaled(self, scale: Tensor) -> Iterator[Tensor]:
        for block in self.blocks():
            for hop, rows in enumerate(block):
                yield rows * scale[:, hop, None]


def log_degrees(graph: Neighborhood) -> Tensor:
    """log(1 + degree) of every node."""
    return graph.graph.in_degree().to(torch.float32).log1p()


def fit_weights(cosines: Tensor, degrees: Tensor, linked: Tensor) -> HopWeights:
    """Logistic regression of `linked` (0 or 1 per pair) on its cosines and the sum of its log degrees.

    Weights of cosines are at least 0. Columns are scaled to deviation 1 and a small ridge is added, so that hops that
    hardly differ share their weight.
    """
    inputs = torch.cat([cosines, degrees.unsqueeze(1)], dim=1).to(torch.float64).numpy()
    deviation = inputs.std(axis=0) + 1e-9
    inputs, signs = inputs / deviation, 2.0 * linked.to(torch.float64).numpy() - 1.0
    hops = cosines.shape[1]
    bounds = [(0.0, None)] * hops + [(None, None)] * 2
    start = np.zeros(hops + 2)
    best = minimize(_logistic, start, (inputs, signs), jac=True, bounds=bounds, method="L-BFGS-B").x
    found = HopWeights()
    found.hops.copy_(torch.from_numpy(best[:hops] / deviation[:hops]))
    found.degree.copy_(torch.tensor(best[hops] / deviation[hops]))
    return found


def _logistic(weights: np.ndarray, inputs: np.ndarray, signs: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean loss with its ridge, and the gradient; the last weight is the intercept."""
    margin = signs * (inputs @ weights[:-1] + weights[-1])
    slope = -signs * np.exp(-np.logaddexp(0.0, margin)) / len(signs)
    loss = np.logaddexp(0.0, -margin).mean() + _RIDGE * np.square(weights[:-1]).sum()
    return float(loss), np.append(inputs.T @ slope + 2.0 * _RIDGE * weights[:-1], slope.sum())


def _columns(rows: Rows, start: int, end: int) -> Tensor:
    if isinstance(rows, Tensor):
        return rows[:, start:end]
    chosen = torch.zeros(rows.shape[1], end - start)
    chosen[start:end] = torch.eye(end - start)
    return rows.matmul(chosen)


def _inverse(lengths: Tensor) -> Tensor:
    """1 over each length, and 0 for rows of zeros."""
    return torch.where(lengths > 0, lengths.clamp(min=1e-20).reciprocal(), torch.zeros_like(lengths))


_LARGEST_LOG_STD = 10.0


class LinkEncoder(nn.Module):
    """GCN, batch norm and ReLU, then one GCN for the mean and one for the logarithm of the deviation."""

    def __init__(self, columns: int, hidden: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = GcnLayer(columns, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.mean = GcnLayer(hidden, width)
        self.log_std = GcnLayer(hidden, width)
        self.dropout = dropout

    def reset_parameters(self) -> None:
        """Draw all weights anew, from torch's global generator (fork it around this call)."""
        for part in (self.first, self.norm, self.mean, self.log_std):
            part.reset_parameters()
        for layer in (self.first, self.mean, self.log_std):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, rows: Multiplied, graph: Neighborhood) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the deviation of every node's row."""
        hidden = F.relu(self.norm(self.first(rows, graph)))
        hidden = F.dropout(hidden, self.dropout, self.training)
        return self.mean(hidden, graph), self.log_std(hidden, graph).clamp(max=_LARGEST_LOG_STD)


def link_scores(rows: Tensor, pairs: Tensor) -> Tensor:
    """Inner products of the rows of each pair (`[2, P]`); larger means likelier linked."""
    return (rows[pairs[0]] * rows[pairs[1]]).sum(dim=1)


def reconstruction_loss(rows: Tensor, linked: Tensor, apart: Tensor) -> Tensor:
    """Cross-entropy of linked and of unlinked pairs, averaged separately and added."""
    return F.softplus(-link_scores(rows, linked)).mean() + F.softplus(link_scores(rows, apart)).mean()


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL divergence from a standard normal, averaged over nodes."""
    return -0.5 * (1.0 + 2.0 * log_std - mean.square() - (2.0 * log_std).exp()).sum(dim=1).mean()
