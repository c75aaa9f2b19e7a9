"""A noisy count of edges, with whole-number noise sampled exactly.

Formal guarantee: every own list adds min(its length, cap) to the count. Under a unit that moves this sum by at most
`stage.sensitivity(unit)`, the released whole number is pure epsilon-DP with epsilon = sensitivity / scale. No floating
point is involved between the lists and the release. Proof: docs/proofs/count.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.noise.discrete import bernoulli_exp, discrete_laplace, uniform_below  # noqa: F401
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.count import CountStage


def noisy_count(lengths: Tensor, stage: CountStage, noise: NoiseSource) -> int:
    """The number of entries with every list cut at `stage.cap`, plus noise. It may be negative.

    `lengths` are those of all own lists; `noise` must be a stream used for this one release.
    """
    return capped_entries(lengths, stage.cap) + discrete_laplace(stage.scale, noise)


def capped_entries(lengths: Tensor, cap: int) -> int:
    """The exact sum of min(length, cap): private."""
    if lengths.is_floating_point() or (lengths.numel() and int(lengths.min()) < 0):
        raise InputError("count: expected whole list lengths of at least 0; got something else")
    return int(lengths.to(torch.int64).clamp(max=cap).sum())
