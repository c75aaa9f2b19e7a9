"""Histograms of oriented gradients: what a picture looks like, cell by cell, without any training.

After Dalal and Triggs, CVPR 2005: the direction of the gradient at every pixel goes into the two nearest bins of its
cell, weighed by the gradient's length; blocks of 2 x 2 cells are brought to length 1, cut at 0.2 and brought to length
1 again. The gray values of the picture at half its size are put beside them, because a histogram of gradients does not
know light from dark. Everything is computed from one picture alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.errors import InputError
from hushgraph.nn.rowwise import rowwise

_LARGEST_ENTRY = 0.2
_GRAY_WEIGHT = 0.6
_BATCH = 2_000


def image_shape(columns: int, height: int | None) -> tuple[int, int]:
    """Height and width of pictures with so many pixels; square unless the height is given."""
    tall = math.isqrt(columns) if height is None else height
    if tall < 1 or columns % tall:
        square = "" if height is not None else " Give their height (image_height) if they are not square"
        raise InputError(f"pictures: expected height times width to be {columns}; got a height of {tall}.{square}")
    return tall, columns // tall


@rowwise("The histogram of a picture is computed from its own pixels.")
class HOG(nn.Module):
    """Rows of pixels to rows of histograms; `width_out` columns."""

    def __init__(self, columns: int, height: int | None = None, cell: int = 4, bins: int = 9) -> None:
        super().__init__()
        self.shape, self.cell, self.bins = image_shape(columns, height), cell, bins
        down, across = (size // cell for size in self.shape)
        if down < 2 or across < 2:
            raise InputError(f"pictures: expected at least {2 * cell} pixels each way; got {self.shape}")
        grays = (self.shape[0] // 2) * (self.shape[1] // 2)
        self.width_out = (down - 1) * (across - 1) * 4 * bins + grays

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """In batches, so that the gradients of many pictures do not fill the memory."""
        if not len(x):
            return x.new_zeros((0, self.width_out))
        return torch.cat([torch.cat([self._histograms(part), self._grays(part)], dim=1) for part in x.split(_BATCH)])

    def _grays(self, x: Tensor) -> Tensor:
        return _GRAY_WEIGHT * functional.avg_pool2d(x.view(-1, 1, *self.shape), 2).flatten(1)

    def _histograms(self, x: Tensor) -> Tensor:
        pictures = functional.pad(x.view(-1, 1, *self.shape), (1, 1, 1, 1), mode="replicate")
        across = pictures[:, 0, 1:-1, 2:] - pictures[:, 0, 1:-1, :-2]
        down = pictures[:, 0, 2:, 1:-1] - pictures[:, 0, :-2, 1:-1]
        length = torch.hypot(across, down)
        place = torch.remainder(torch.atan2(down, across), math.pi) * (self.bins / math.pi)
        lower = place.floor()
        share = place - lower
        first = lower.long() % self.bins
        spread = length.new_zeros((len(x), self.bins, *self.shape))
        spread.scatter_add_(1, first.unsqueeze(1), (length * (1.0 - share)).unsqueeze(1))
        spread.scatter_add_(1, ((first + 1) % self.bins).unsqueeze(1), (length * share).unsqueeze(1))
        return self._blocks(functional.avg_pool2d(spread, self.cell))

    @staticmethod
    def _blocks(cells: Tensor) -> Tensor:
        corners = [cells[:, :, :-1, :-1], cells[:, :, :-1, 1:], cells[:, :, 1:, :-1], cells[:, :, 1:, 1:]]
        blocks = torch.cat(corners, dim=1)
        blocks = blocks / (blocks.square().sum(dim=1, keepdim=True) + 1e-6).sqrt()
        blocks = blocks.clamp(max=_LARGEST_ENTRY)
        blocks = blocks / (blocks.square().sum(dim=1, keepdim=True) + 1e-6).sqrt()
        return blocks.flatten(1)
