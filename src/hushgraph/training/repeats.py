"""Equal rows, trained on once: people with the same few one-hot answers have the same row.

In full-batch training every copy of a row gives the same scores, so one row stands for all its copies: with the mean
of their labels as its label, and their number as its weight. The gradient is the same up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hushgraph.data.rows import SparseRows

_WORTH_IT = 0.8  # with more distinct rows than this, the weights cost what the rows save


@dataclass(frozen=True)
class DistinctRows:
    """Rows that are all different, the classes of each one's copies as shares, and how many copies it has."""

    rows: SparseRows
    labels: Tensor
    copies: Tensor


def merge_repeats(rows: SparseRows, labels: Tensor, num_classes: int) -> DistinctRows | None:
    """The distinct rows with their labels and weights; None where there are too few repeats to gain from it."""
    first, group = _groups(rows)
    if len(first) > _WORTH_IT * len(rows) or not _same(rows, rows.rows(first[group])):
        return None
    kind = torch.get_default_dtype() if rows.values is None else rows.values.dtype
    copies = torch.bincount(group, minlength=len(first)).to(kind)
    classes = torch.zeros(len(first) * num_classes, dtype=kind)
    classes.index_add_(0, group * num_classes + labels, torch.ones(len(labels), dtype=kind))
    return DistinctRows(rows.rows(first), classes.view(-1, num_classes) / copies.unsqueeze(1), copies)


def _groups(rows: SparseRows) -> tuple[Tensor, Tensor]:
    """The first row of every group of rows with the same fingerprint, and the group of every row."""
    _, first, group = np.unique(_fingerprints(rows), return_index=True, return_inverse=True)
    return torch.from_numpy(first), torch.from_numpy(group.reshape(-1))


def _fingerprints(rows: SparseRows) -> np.ndarray:
    """A number per row that does not depend on the order of its entries (sums of 64-bit numbers wrap around)."""
    numbers = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], dtype=np.uint64)
    entries = numbers[rows.indices.numpy()]
    if rows.values is not None:
        bits = rows.values.double().numpy().view(np.uint64)
        entries = entries * (bits | np.uint64(1)) + (bits ^ (entries >> np.uint64(31)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    ends = rows.indptr.numpy()
    found: np.ndarray = total[ends[1:]] - total[ends[:-1]]
    return found


def _same(rows: SparseRows, others: SparseRows) -> bool:
    """Whether both hold the same entries in the same order: a fingerprint alone is not trusted."""
    if not (torch.equal(rows.indptr, others.indptr) and torch.equal(rows.indices, others.indices)):
        return False
    return rows.values is None or (others.values is not None and torch.equal(rows.values, others.values))
