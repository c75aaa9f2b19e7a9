"""Histograms of oriented gradients (Dalal and Triggs 2005): a fixed, public description of a gray picture.

Nothing is learned and nothing is looked up: a picture's row follows from the picture alone, so private rows may pass
through it (`vault.apply`), and public ones as well.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.nn.rowwise import rowwise

_AT_ONCE = 1000
_CLIPPED = 0.2  # as in the publication: no direction counts for more, then the block is normalized again
_TINY = 1e-6


@rowwise("Each picture is described by itself.")
class HOG(nn.Module):
    """Rows of `height * width` gray values in [0, 1] to rows of `width_out` histogram entries.

    The picture is cut into cells of `cell` x `cell` pixels (what is left over at the right and below is not used). Each
    pixel votes in its cell for the two nearest of `bins` directions of its gradient, by its length. Cells are grouped
    in overlapping blocks of `block` x `block`, each normalized, clipped at 0.2 and normalized again.
    """

    def __init__(self, shape: tuple[int, int], *, cell: int = 4, bins: int = 8, block: int = 2) -> None:
        super().__init__()
        self.shape, self.cell, self.bins, self.block = (int(shape[0]), int(shape[1])), cell, bins, block
        self.cells = (self.shape[0] // cell, self.shape[1] // cell)
        if min(self.cells) < block or bins < 2:
            raise InputError(
                f"hog: expected pictures of at least {block} x {block} cells of {cell} pixels, and 2 directions; got "
                f"{self.shape[0]} x {self.shape[1]} pixels and {bins}; take smaller cells"
            )

    @property
    def width_out(self) -> int:
        """The number of columns of the result."""
        down, across = (count - self.block + 1 for count in self.cells)
        return down * across * self.block**2 * self.bins

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, height * width]` to `[n, width_out]`; a thousand pictures at a time, so that memory stays small."""
        if rows.dim() != 2 or rows.shape[1] != self.shape[0] * self.shape[1]:
            raise InputError(f"hog: expected rows of {self.shape[0]} x {self.shape[1]} pixels; got {list(rows.shape)}")
        found = rows.new_empty(len(rows), self.width_out)
        for start in range(0, len(rows), _AT_ONCE):
            images = rows[start : start + _AT_ONCE].view(-1, *self.shape)
            found[start : start + _AT_ONCE] = self._blocks(self._histograms(images))
        return found

    def _histograms(self, images: Tensor) -> Tensor:
        """`[n, bins, cells down, cells across]`: the votes of every cell's pixels."""
        down, across = torch.zeros_like(images), torch.zeros_like(images)
        down[:, 1:-1] = images[:, 2:] - images[:, :-2]
        across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
        length = torch.hypot(down, across)
        place = torch.atan2(down, across).remainder(math.pi) * (self.bins / math.pi)
        lower = place.floor()
        upper_share = place - lower
        first = lower.long().remainder(self.bins)
        votes = images.new_zeros(len(images), self.bins, *self.shape)
        votes.scatter_(1, first.unsqueeze(1), (length * (1.0 - upper_share)).unsqueeze(1))
        votes.scatter_add_(1, (first + 1).remainder(self.bins).unsqueeze(1), (length * upper_share).unsqueeze(1))
        return F.avg_pool2d(votes, self.cell)

    def _blocks(self, cells: Tensor) -> Tensor:
        """`[n, width_out]`: every block of cells, normalized."""
        windows = cells.unfold(2, self.block, 1).unfold(3, self.block, 1)  # n, bins, down, across, block, block
        blocks = windows.permute(0, 2, 3, 4, 5, 1).flatten(3)
        blocks = blocks / (blocks.square().sum(-1, keepdim=True) + _TINY).sqrt()
        blocks = blocks.clamp(max=_CLIPPED)
        return (blocks / (blocks.square().sum(-1, keepdim=True) + _TINY).sqrt()).flatten(1)
