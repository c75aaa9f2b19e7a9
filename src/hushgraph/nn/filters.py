"""Filters learned from public pictures without labels (after Coates, Ng and Lee 2011): a description of a picture.

Small patches of public pictures are decorrelated and clustered; the centers are the filters of a convolution, whose
responses are averaged over a grid of places, and brought to few uncorrelated columns. Gradients pass through it, so
attacks that descend on pixels can.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.nn.partition import k_means
from hushgraph.nn.rowwise import rowwise

CONSTANT = 0.3
LEAST_SIDE = 10
_PATCHES, _FLAT, _STEEP = 40_000, 0.05, 0.01
_THRESHOLD = 0.5
_FLATTEST = 0.03


@rowwise("A fixed map of each picture; what it was fitted to are public pictures.")
class PublicFilters(nn.Module):
    """Rows of pixels to `columns` uncorrelated columns of norm about 1, and a constant."""

    filters: Tensor
    offsets: Tensor
    center: Tensor
    basis: Tensor

    def __init__(
        self, shape: tuple[int, int], columns: int = 100, *, filters: int = 64, side: int = 5, places: int = 4
    ) -> None:
        super().__init__()
        if min(shape) < 2 * side or columns > filters * places**2:
            raise InputError(
                f"filters: expected pictures of at least {2 * side} pixels each way, and at most {filters * places**2} "
                f"columns; got {shape} and {columns}"
            )
        self.shape, self.side, self.places = shape, side, places
        self.register_buffer("filters", torch.zeros(filters, 1, side, side))
        self.register_buffer("offsets", torch.zeros(filters))
        self.register_buffer("center", torch.zeros(filters * places**2))
        self.register_buffer("basis", torch.zeros(filters * places**2, columns))

    @property
    def width_out(self) -> int:
        """The number of columns of the result."""
        return self.basis.shape[1] + 1

    @torch.no_grad()
    def fit(self, public: Tensor) -> None:
        """Filters, mean and directions from public pictures."""
        self._fit_filters(public)
        pooled = torch.cat([self._pooled(part) for part in public.split(1_000)])
        self.center.copy_(pooled.mean(dim=0))
        values, vectors = torch.linalg.eigh(_covariance(pooled))
        kept = values.argsort(descending=True)[: self.basis.shape[1]]
        basis = vectors[:, kept] * (values[kept] + _FLATTEST * values.max()).rsqrt()
        lengths = torch.linalg.vector_norm((pooled - self.center) @ basis, dim=1)
        self.basis.copy_(basis / lengths.mean().clamp(min=1e-9))

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, height * width]` to `[n, width_out]`."""
        found = (self._pooled(rows) - self.center) @ self.basis
        return torch.cat([found, found.new_full((len(found), 1), CONSTANT)], dim=1)

    def _pooled(self, rows: Tensor) -> Tensor:
        seen = F.conv2d(rows.reshape(-1, 1, *self.shape), self.filters, self.offsets)
        return F.adaptive_avg_pool2d(F.relu(seen - _THRESHOLD), self.places).flatten(1)

    def _fit_filters(self, public: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        patches = _patches(public.reshape(-1, *self.shape), self.side, generator)
        if len(patches) < len(self.filters):
            raise InputError("filters: expected public pictures with some contrast; got too few of them")
        mean = patches.mean(dim=0)
        values, vectors = torch.linalg.eigh(_covariance(patches))
        decorrelate = vectors * (values + _STEEP).rsqrt() @ vectors.T
        centers = F.normalize(k_means(F.normalize((patches - mean) @ decorrelate, dim=1), len(self.filters)), dim=1)
        self.filters.copy_((centers @ decorrelate).view_as(self.filters))
        self.offsets.copy_(-(centers @ decorrelate @ mean))


def _patches(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Patches at random places of random pictures, those without contrast left out."""
    down, across = images.shape[1] - side + 1, images.shape[2] - side + 1
    which = torch.randint(len(images), (_PATCHES,), generator=generator)
    top, left = (torch.randint(most, (_PATCHES,), generator=generator) for most in (down, across))
    reach = torch.arange(side)
    found = images[which[:, None, None], (top[:, None] + reach)[:, :, None], (left[:, None] + reach)[:, None, :]]
    found = found.flatten(1)
    return found[found.std(dim=1) > _FLAT]


def _covariance(rows: Tensor) -> Tensor:
    centered = rows - rows.mean(dim=0)
    return centered.T @ centered / len(rows)
