"""Losses with one value per row, and the gradient of cross entropy written out."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError

NULL_LABEL = -1
"""The class of a null record: an example that counts as zero."""

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Scores `[n, classes]` and labels `[n, ...]` to one loss per row, `[n]`."""


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each row; labels are class numbers, or class probabilities `[n, classes]`."""
    return F.cross_entropy(scores, labels, reduction="none")


def binary_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy of all 0/1 decisions of each row; labels are 0 and 1, `[n, classes]`."""
    return F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none").mean(dim=-1)


def loss_for(labels: Tensor) -> str | RowLoss:
    """The loss that fits labels: one class a row, or a matrix of 0 and 1."""
    several = labels.dim() == 2 and not labels.is_floating_point()
    return binary_cross_entropy if several else "cross_entropy"


def row_loss(loss: str | RowLoss) -> RowLoss:
    """A loss by name, or the given function of (scores, labels)."""
    if callable(loss):
        return loss
    if loss != "cross_entropy":
        raise InputError(f"expected 'cross_entropy' or a function of rows; got '{loss}'; pass one of these")
    return cross_entropy


def cross_entropy_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """The derivative of each row's cross entropy with respect to its scores: softmax minus the label."""
    # One row per class while the softmax is taken: over a few contiguous rows it is several times faster.
    by_class = scores.t().contiguous().softmax(0)
    if labels.is_floating_point():
        return by_class.mul_(labels.sum(1)).sub_(labels.t()).t()
    return by_class.scatter_add_(0, labels.unsqueeze(0), by_class.new_full((1, labels.shape[0]), -1.0)).t()


def weighted_labels(labels: Tensor, class_weights: tuple[float, ...]) -> Tensor:
    """Labels whose cross entropy is that of the class times its weight: one entry a row, none for a null record."""
    weights = torch.tensor(class_weights, dtype=torch.get_default_dtype(), device=labels.device)
    present = labels.clamp(min=0)
    values = torch.where(labels == NULL_LABEL, 0.0, weights[present])
    return torch.zeros(len(labels), len(weights), device=labels.device).scatter_(1, present[:, None], values[:, None])


def check_labels(labels: Tensor, num_rows: int, *, with_null: bool = False) -> None:
    """Refuse labels that do not fit: wrong number, negative classes, values that are not finite.

    `with_null` admits the label of a null record, `NULL_LABEL`.
    """
    if labels.shape[:1] != (num_rows,):
        raise InputError(f"expected one label per row ({num_rows}); got {tuple(labels.shape)}; check the selection")
    if labels.is_floating_point():
        if not bool(torch.isfinite(labels).all()):
            raise InputError("expected finite label probabilities; got NaN or infinity; clean the labels")
    elif labels.dtype != torch.int64 or (num_rows and int(labels.min()) < (NULL_LABEL if with_null else 0)):
        raise InputError("expected int64 class numbers >= 0; got others; leave out rows without a class")


def are_present(labels: Tensor) -> Tensor:
    """Which examples have a record: a class other than `NULL_LABEL`, a row of them without it, or class probabilities
    that are not all zero.
    """
    if labels.is_floating_point():
        return (labels != 0).any(1)
    return labels != NULL_LABEL if labels.dim() == 1 else (labels != NULL_LABEL).all(dim=1)


def mean_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy of (weighted) classes, or of every 0/1 decision where labels are a matrix of these."""
    if labels.dim() == 1 or labels.is_floating_point():
        return F.cross_entropy(scores, labels)
    return F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))


def share_right(scores: Tensor, labels: Tensor) -> float:
    """What an epoch is judged by: the share of right classes, or F1 over all 0/1 decisions together."""
    return share_correct(scores, labels) if labels.dim() == 1 else micro_f1(scores > 0, labels)


def micro_f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 over all 0/1 decisions `[n, classes]` together."""
    hits = int((predicted.bool() & labels.bool()).sum())
    return 2.0 * hits / max(1, int(predicted.sum()) + int(labels.sum()))


def share_correct(scores: Tensor, labels: Tensor) -> float:
    """The share of rows whose own class scores higher than every other (several times faster than `argmax`)."""
    by_class = scores.t()
    own = by_class.gather(0, labels.unsqueeze(0))
    return float(torch.count_nonzero(by_class >= own, 0).eq_(1).float().mean())
