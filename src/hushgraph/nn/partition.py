"""Parts of public or private rows: k-means on public ones (Lloyd 1982), and rules that look at one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.nn.rowwise import rowwise

_ROUNDS = 25
_AT_ONCE = 2_000


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


@rowwise("The center nearest to one row, out of public ones.")
class NearestCenter(nn.Module):
    """Rows to the number of the nearest center, `[rows, 1]`: a rule that looks at one row at a time."""

    centers: Tensor

    def __init__(self, centers: Tensor) -> None:
        super().__init__()
        self.register_buffer("centers", centers)

    def forward(self, rows: Rows) -> Tensor:
        """Whole numbers, as floats."""
        found = [torch.cdist(part, self.centers).argmin(dim=1) for part in dense_rows(rows).split(_AT_ONCE)]
        return torch.cat(found).unsqueeze(1).to(self.centers.dtype)


@rowwise("Follows from the entries of one row.")
class Spread(nn.Module):
    """Rows to one of `parts` numbers, `[rows, 1]`, that looks drawn at random but follows from the row."""

    direction: Tensor

    def __init__(self, columns: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.register_buffer("direction", torch.randn(columns, generator=torch.Generator().manual_seed(0)))

    def forward(self, rows: Rows) -> Tensor:
        """Whole numbers, as floats: far digits of the length along a fixed direction."""
        along = (dense_rows(rows).double() * self.direction).sum(dim=1)
        return (along * 1e4).floor().remainder(self.parts).unsqueeze(1).float()
