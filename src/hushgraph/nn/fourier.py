"""Random Fourier features (Rahimi and Recht 2007): inner products of rows are about those of a Gaussian kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.nn.rowwise import rowwise

CONSTANT = 0.1
"""The last column of every row, for the frequencies of the classes; small, because it takes its share of the norm."""

_PAIRS = 2_000_000


@rowwise("A fixed map of each row; what it was fitted to are public rows.")
class RandomFourier(nn.Module):
    """Rows to `2 * frequencies + 1` columns of norm 1: cosines and sines of random directions, and a constant.

    Inner products are about those of a Gaussian kernel of width `bandwidth`, after the mean of public rows was taken
    off. Directions are drawn from `generator` and are public.
    """

    directions: Tensor
    center: Tensor
    width: Tensor

    def __init__(self, columns: int, frequencies: int, bandwidth: float, generator: torch.Generator) -> None:
        super().__init__()
        self.bandwidth = bandwidth
        self.register_buffer("directions", torch.randn(columns, frequencies, generator=generator))
        self.register_buffer("center", torch.zeros(2 * frequencies))
        self.register_buffer("width", torch.tensor(bandwidth))

    @property
    def width_out(self) -> int:
        """The number of columns of the result."""
        return len(self.center) + 1

    def fit(self, public: Tensor) -> None:
        """Measure the bandwidth in median distances of public rows, and take off their mean from now on."""
        half = len(public) // 2
        pairs = min(half, _PAIRS // max(1, public.shape[1]))
        distances = torch.linalg.vector_norm(public[:pairs] - public[half : half + pairs], dim=1)
        self.width.fill_(self.bandwidth * max(float(distances.median()), 1e-6))
        self.center.copy_(self._waves(public).mean(dim=0))

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, columns]` to `[n, width_out]`."""
        found = F.normalize(self._waves(rows) - self.center, dim=1)
        constant = found.new_full((len(found), 1), CONSTANT)
        return torch.cat([found * (1.0 - CONSTANT**2) ** 0.5, constant], dim=1)

    def _waves(self, rows: Tensor) -> Tensor:
        angles = (rows / self.width) @ self.directions
        return torch.cat([angles.cos(), angles.sin()], dim=1) / angles.shape[1] ** 0.5
