"""A student from noisy counts of votes: what they say about all public records, and kernels fitted to that.

A count with much noise says little about its record and much about all that look like it. First, the shares of the
votes are taken as softmax(rows @ weights): between 0 and 1 and adding up to 1, as shares are and noisy counts are not.
Rows are coordinates in the space of a Gaussian kernel on the leading directions of *all* public records, with votes or
without. The weights have a prior that is the same whatever the noise is, and the likeliest ones are taken by the known
law of the noise. The prior is Gaussian, says that classes are about equally frequent among public records, and that
most of these are of one class clearly (after Gomes, Krause and Perona, NeurIPS 2010): it decides where noise leaves
things open, and gives way where counts say otherwise. No ridge is chosen by the counts: where noise dominates, what
they say about one is mostly noise too. Then kernels learn the likeliest class of every public record, which is the same
for neighbors.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from hushgraph.nn.pictures import KernelStudent, gaussian_kernel
from hushgraph.training.kernel_ridge import kernel_width

CENTERS = 600
"""Kernels beyond these change little and cost their square."""
_DIRECTIONS = 60
_NARROWER, _WIDER = 1.5, 0.5
_PRECISIONS = (2.0, 1.0, 0.5)
"""Of the prior; the last one counts. Solutions for stronger ones lead to it, since the squares have several minima."""
_BALANCE = 1000.0
"""Nats for the entropy of the shares of classes among all public records."""
_CLEAR = 100.0
"""Nats against the mean entropy of the shares of one record."""
_MOST_OPEN = 3000
"""Public records that stand for all in these two."""
_CONSTANT = 0.3
_MISFIT = 0.01
"""The variance of shares about the model where there is no noise."""
_STEPS = 15
_RIDGE = 0.1
_LEAST = 1e-5


def fit_shares(student: KernelStudent, public: Tensor, labeled: Tensor, shares: Tensor, noise: float) -> None:
    """Teach `student` from noisy `shares` of votes on the `labeled` public records; `noise` is that of one share.

    Its centers are on records with votes, then on others. Those that are left over weigh nothing.
    """
    rows = student.look(public)
    classes = likely_classes(rows, labeled, shares, noise)
    gamma = _WIDER * kernel_width(rows)
    others = torch.ones(len(rows), dtype=torch.bool).index_fill_(0, labeled, False).nonzero().squeeze(1)
    centers = rows[torch.cat([labeled, others])[:CENTERS]]
    seen, turn = coordinates(rows, centers, gamma)
    targets = functional.one_hot(classes, shares.shape[1]).to(rows.dtype) - 1.0 / shares.shape[1]
    shifted = (seen.T @ seen).double() + _RIDGE * torch.eye(seen.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(shifted, (seen.T @ targets).double()).to(rows.dtype)
    student.centers[: len(centers)], student.weights[: len(centers)] = centers, turn @ weights
    student.gamma.fill_(gamma)


def likely_classes(rows: Tensor, labeled: Tensor, shares: Tensor, noise: float) -> Tensor:
    """The class with the largest share in the likeliest model, for every row."""
    leading = _leading(rows)
    centers = leading[_spread(len(rows), CENTERS)]
    seen, _ = coordinates(leading, centers, _NARROWER * kernel_width(leading))
    seen = seen - seen.mean(dim=0)
    seen = seen * seen.square().sum(dim=1).mean().clamp(min=_LEAST).rsqrt()
    seen = torch.cat([seen, seen.new_full((len(seen), 1), _CONSTANT)], dim=1)
    return (seen @ likeliest(seen, labeled, shares, noise**2 + _MISFIT)).argmax(dim=1)


def coordinates(rows: Tensor, centers: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Rows whose inner products are those of the kernel's space (Nystroem), and what turns kernels into them."""
    values, vectors = torch.linalg.eigh(gaussian_kernel(centers, centers, gamma).double())
    turn = (vectors / values.clamp(min=_LEAST * float(values[-1])).sqrt()).to(rows.dtype)
    return gaussian_kernel(rows, centers, gamma) @ turn, turn


def likeliest(rows: Tensor, labeled: Tensor, shares: Tensor, variance: float) -> Tensor:
    """The weights `[columns, classes]` that are likeliest given noisy shares of this variance, and the prior.

    `rows` are all public records; `shares` are of those numbered `labeled`.
    """
    some = rows[_spread(len(rows), _MOST_OPEN)]
    weights = rows.new_zeros((rows.shape[1], shares.shape[1]))
    for precision in _PRECISIONS:
        weights = _descended(rows[labeled], shares, variance, some, precision, weights)
    return weights


def _descended(rows: Tensor, shares: Tensor, variance: float, some: Tensor, precision: float, start: Tensor) -> Tensor:
    weights = start.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([weights], max_iter=_STEPS, history_size=10, line_search_fn="strong_wolfe")

    def evaluated() -> float:
        optimizer.zero_grad()
        missed = (shares - (rows @ weights).softmax(dim=1)).square().sum()
        loss = 0.5 * missed / variance + 0.5 * precision * weights.square().sum() + surprise(some @ weights)
        loss.backward()
        return loss.item()

    with torch.enable_grad():
        optimizer.step(evaluated)
    return weights.detach()


def surprise(scores: Tensor) -> Tensor:
    """How far the prior is from classes that are equally frequent and records that are each of one class."""
    logs = scores.log_softmax(dim=1)
    shares = logs.exp()
    overall = shares.mean(dim=0)
    unclear = -(shares * logs).sum(dim=1).mean()
    uneven = (overall * overall.clamp(min=_LEAST).log()).sum()
    return _CLEAR * unclear + _BALANCE * uneven


def _spread(count: int, most: int) -> Tensor:
    """`most` of so many numbers at even distances, or all: also where records are sorted."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).long()


def _leading(rows: Tensor) -> Tensor:
    """Rows in the directions in which they vary most; far more directions say little but that no two rows are equal."""
    centered = rows - rows.mean(dim=0)
    vectors = torch.linalg.eigh((centered.T @ centered).double())[1]
    return centered @ vectors[:, -_DIRECTIONS:].to(rows.dtype)
