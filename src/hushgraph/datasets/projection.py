"""Features reduced by a public projection: the same random directions for everybody, drawn without the data.

Row by row, so it can run on a device: the row is scaled to length 1, projected, and moved to [0, 1] by a fixed scale.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import InputError

_DEVIATIONS = 3.0
"""One projected number of a row of length 1 has deviation 1 / sqrt(width); this many on each side fit in the range."""


def project(data: Data, width: int, seed: int = 0) -> Data:
    """A copy of `data` with `width` features in [0, 1] in place of its own; 1/2 stands for nothing."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise InputError(f"project: expected the number of features to keep; got {width!r}")
    result = copy.copy(data)
    result.x = projected(data.x, width, seed)
    return result


def projected(x: Tensor, width: int, seed: int = 0) -> Tensor:
    """The rows, dense or sparse, in the public coordinates."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(x.shape[1], width, generator=generator)
    dense = x if x.layout is torch.strided else x.to_dense()
    lengths = dense.norm(dim=1, keepdim=True)
    # directions have deviation 1, so what stands for 1 / sqrt(width) of a scaled row is 1 here.
    found = (dense @ directions) / torch.where(lengths > 0, lengths, torch.ones_like(lengths))
    return (0.5 + found / (2.0 * _DEVIATIONS)).clamp(0.0, 1.0)
