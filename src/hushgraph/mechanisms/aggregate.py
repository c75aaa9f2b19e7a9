"""Normalize, aggregate, perturb: the noisy sum over in-neighbors.

Formal guarantee: let every row have norm at most `row_norm`. Under a unit that moves the sum by at most
`unit.aggregation_sensitivity(row_norm)` in L2, the output is one Gaussian release with that sensitivity and standard
deviation `std`. Proof: docs/proofs/aggregation.md. The bound is enforced on the very rows that are summed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.noise.source import NoiseSource, round_to_grid

# float32 rounding can leave a "unit" row a few parts in ten million too long; this much shorter is always enough.
_ROUNDING = 1e-6


def noisy_sum(edges: InNeighbors, rows: Tensor, row_norm: float, std: float, noise: NoiseSource) -> Tensor:
    """`A^T X + N(0, std^2)` with every row of X scaled to norm `row_norm` (zero rows stay zero).

    `noise` must be a stream used for this one release. Refuses rows that are not finite, and zero noise.
    """
    if not bool(torch.isfinite(rows).all()):
        raise InputError("aggregation: expected finite rows; got NaN or infinite entries")
    bounded = bounded_rows(rows, row_norm)
    exact = sum_in_neighbors(edges, bounded)
    noisy = exact.to(torch.float64) + noise.gaussian(tuple(exact.shape), std)
    return round_to_grid(noisy, std).to(torch.float32)


def bounded_rows(rows: Tensor, row_norm: float) -> Tensor:
    """Rows scaled to norm `row_norm`, checked in double precision never to exceed it."""
    if rows.dim() != 2:
        raise InputError(f"aggregation: expected rows [nodes, columns]; got shape {list(rows.shape)}")
    bounded = F.normalize(rows.to(torch.float32), dim=1) * (row_norm * (1.0 - _ROUNDING))
    longest = float(bounded.to(torch.float64).norm(dim=1).max()) if bounded.numel() else 0.0
    if not longest <= row_norm:
        raise InputError(f"aggregation: expected rows of norm at most {row_norm:g}; got {longest!r}")
    return bounded
