"""The mechanism of Chorus: sum label rows over in-neighbors, add noise by kind of receiver.

Formal guarantee: one Gaussian release whose cost is that of `LabelSumStage` for the unit in force. The bounds the
proof needs (no negative entry, norms by kind of sender, what a shared row adds up to) are enforced on the very rows
that are summed. Proof: docs/proofs/chorus.md.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.noise.source import NoiseSource, round_to_grid
from hushgraph.privacy.label_sum import LabelSumStage

_ROUNDING = 1e-6  # as in `mechanisms.aggregate`


def noisy_label_sum(
    edges: InNeighbors, rows: Tensor, labeled: Tensor, stage: LabelSumStage, noise: NoiseSource
) -> Tensor:
    """The noisy sums, one row per node; `labeled` is the public mask of labeled nodes."""
    exact = sum_in_neighbors(edges, label_messages(edges, rows, labeled, stage)).to(torch.float64)
    noisy = exact + noise.gaussian(tuple(exact.shape), stage.std) * relative_noise(labeled, stage).to(torch.float64)
    return round_to_grid(noisy, stage.std).to(torch.float32)


def label_messages(edges: InNeighbors, rows: Tensor, labeled: Tensor, stage: LabelSumStage) -> Tensor:
    """What each node sends along each entry of its list; refuses rows that break the bounds."""
    if rows.dim() != 2 or not bool(torch.isfinite(rows).all()) or bool((rows < 0).any()):
        raise InputError("label sum: expected a matrix of finite entries without a negative one; got another")
    loudness = torch.where(labeled, 1.0, stage.quiet)
    shrink = (rows.norm(dim=1).clamp(min=1.0).reciprocal() * loudness * (1.0 - _ROUNDING)).unsqueeze(1)
    sent = rows.to(torch.float32) * shrink
    if stage.centered:
        sent = center_messages(sent)
    longest = sent.to(torch.float64).norm(dim=1)
    if bool((longest > loudness.to(torch.float64)).any()):
        raise InputError("label sum: expected rows within their bound; got a longer one")
    if stage.shared:
        sent = sent * edges.out_degree().clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1)
    return sent


def center_messages(rows: Tensor) -> Tensor:
    """Rows without their mean, times sqrt(C / (C - 1)): one-hot rows become the corners of a regular simplex.

    A row without negative entries gets no longer: its mean holds at least 1/C of its squared length.
    """
    columns = rows.shape[1]
    return (rows - rows.mean(dim=1, keepdim=True)) * math.sqrt(columns / max(1, columns - 1))


def relative_noise(labeled: Tensor, stage: LabelSumStage) -> Tensor:
    """The noise of every row as a multiple of `stage.std`, as a column."""
    return torch.where(labeled, stage.labeled_noise, 1.0).unsqueeze(1)


def known_labels(labels: Tensor, train: Tensor, num_classes: int) -> Tensor:
    """One-hot rows of the train nodes; zero rows for all others, whose labels are never read."""
    rows = torch.zeros(labels.numel(), num_classes)
    rows[train] = F.one_hot(labels[train], num_classes).to(torch.float32)
    return rows
