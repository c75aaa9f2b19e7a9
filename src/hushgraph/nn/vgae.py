"""The variational graph auto-encoder (Kipf and Welling 2016): node rows whose inner products predict links."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.nn.backbones import GcnLayer, Multiplied
from hushgraph.nn.propagation import Neighborhood

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
