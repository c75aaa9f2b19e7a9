"""k-means on public rows (Lloyd 1982), started from rows that lie far apart."""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.errors import InputError

_ROUNDS = 25


def k_means(rows: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """`count` centers of public rows; the same for the same rows and seed, so a rule made of them can be made again."""
    if count > len(rows):
        raise InputError(f"centers: expected at most {len(rows)}, one per public row; got {count}")
    centers = _far_apart(rows, count, torch.Generator().manual_seed(seed))
    for _ in range(_ROUNDS):
        nearest = torch.cdist(rows, centers).argmin(dim=1)
        sizes = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        moved = torch.where(sizes.unsqueeze(1) > 0, sums / sizes.clamp(min=1).unsqueeze(1), centers)
        if torch.equal(moved, centers):
            break
        centers = moved
    return centers


def _far_apart(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Rows drawn one by one in proportion to the squared distance to those drawn before (k-means++)."""
    chosen = [int(torch.randint(len(rows), (1,), generator=generator))]
    distance = (rows - rows[chosen[0]]).square().sum(dim=1)
    while len(chosen) < count:
        weights = distance if bool(distance.sum() > 0) else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        distance = torch.minimum(distance, (rows - rows[chosen[-1]]).square().sum(dim=1))
    return rows[chosen].clone()
