"""Kernel ridge regression with a Gaussian kernel, and the ridge chosen by leaving one row out.

Leaving out is in closed form: with A = (K + ridge I)^-1 and targets Y, the residual of row i predicted from the others
is (A Y)_i / A_ii. Targets with independent noise of mean 0 rank ridges as clean ones do, because the noise of a row is
independent of the prediction made without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from hushgraph.nn.pictures import KernelStudent, gaussian_kernel

_SPREAD_ROWS = 500
RIDGES = tuple(10.0 ** (step / 2.0) for step in range(-6, 7))


def kernel_width(rows: Tensor) -> float:
    """The gamma of a Gaussian kernel, from the median distance between public rows."""
    some = rows[:_SPREAD_ROWS]
    if len(some) < 2:
        return 1.0
    squared = functional.pdist(some).square()
    return 1.4 / max(float(squared.median()), 1e-12)


def solve(kernel: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """The weights of the centers, `[centers, columns]`; not numbers where rows are too large, but never an error.

    An error would tell everybody that a private record is odd.
    """
    shifted = kernel + ridge * torch.eye(len(kernel), dtype=kernel.dtype)
    weights: Tensor = torch.linalg.solve_ex(shifted, targets)[0]
    return weights


def best_weights(kernel: Tensor, targets: Tensor, ridges: Sequence[float] = RIDGES) -> tuple[Tensor, float]:
    """The weights with the ridge whose predictions of left-out rows are nearest to their targets, and that ridge."""
    values, vectors = torch.linalg.eigh(kernel.double())
    turned = vectors.T @ targets.double()
    errors = []
    for ridge in ridges:
        inverse = 1.0 / (values.clamp(min=0.0) + ridge)
        left_out = vectors @ (inverse.unsqueeze(1) * turned)
        diagonal = (vectors.square() * inverse).sum(dim=1, keepdim=True)
        errors.append(float((left_out / diagonal).square().mean()))
    ridge = ridges[min(range(len(ridges)), key=errors.__getitem__)]
    inverse = 1.0 / (values.clamp(min=0.0) + ridge)
    return (vectors @ (inverse.unsqueeze(1) * turned)).to(targets.dtype), ridge


def fit_kernels(student: KernelStudent, x: Tensor, targets: Tensor) -> float:
    """Put the centers of `student` on the rows `x` and set their weights; the ridge that was chosen.

    A student has many more rows than a teacher, so its kernels are wider. Centers that are left over weigh nothing.
    """
    rows = student.look(x)
    gamma = kernel_width(rows) / 2.0
    weights, ridge = best_weights(gaussian_kernel(rows, rows, gamma), targets)
    student.centers[: len(rows)], student.weights[: len(rows)] = rows, weights
    student.gamma.fill_(gamma)
    return ridge
