"""Which public records to ask about: the ones nearest to the centers of k-means, which stand for many others."""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDS = 15


def central_rows(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The numbers of `count` distinct rows, each near a center of its own."""
    centers = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
    for _ in range(_ROUNDS):
        nearest = _distances(rows, centers).argmin(dim=1)
        sizes = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        filled = sizes > 0
        centers[filled] = sums[filled] / sizes[filled].unsqueeze(1)
    return _distinct(_distances(rows, centers))


def _distances(rows: Tensor, centers: Tensor) -> Tensor:
    """Squared distances, `[rows, centers]`."""
    return rows.square().sum(dim=1, keepdim=True) - 2.0 * rows @ centers.T + centers.square().sum(dim=1)


def _distinct(distance: Tensor) -> Tensor:
    """The nearest row of every center; where two centers have the same one, the next free rows in order."""
    chosen = distance.argmin(dim=0).unique()
    free = torch.ones(len(distance), dtype=torch.bool)
    free[chosen] = False
    missing = distance.shape[1] - chosen.numel()
    order = distance.min(dim=1).values.masked_fill(~free, float("inf")).argsort()
    return torch.cat([chosen, order[:missing]])
