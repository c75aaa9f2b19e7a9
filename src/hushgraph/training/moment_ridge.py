"""Ridge regression from noisy sums and public rows: post-processing of what was released.

With rows x of the private data, targets t = e_y - 1/C and b = mean(x t^T), the least squares classifier is
(E[x x^T] + ridge)^-1 b. The second moment is taken from public rows, which cost nothing, and b with noise. The ridge is
chosen by an estimate of the squared error that needs no data either: W^T E[x x^T] W - 2 <W, b>, where the inner product
with the noisy b is corrected by what its known noise adds on average (after Stein 1981). One standard deviation of
the estimate is added: where little is known, more ridge is safer. W is judged by the
second moment of public rows that it was not made with, so that a W that fits the others by chance is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

RIDGES = tuple(1e-5 * 2.0 ** (step / 2.0) for step in range(41))
_APART = 10  # every tenth public row judges


class PublicMoment:
    """The second moment of public rows `[n, columns]`, in the form that several releases can be solved with."""

    def __init__(self, public: Tensor) -> None:
        apart = torch.arange(len(public)) % _APART == 0
        self.whole = _second_moment(public)
        values, vectors = torch.linalg.eigh(_second_moment(public[~apart]))
        self.values, self.vectors = values.clamp(min=0.0).double(), vectors.double()
        self.judged = (public[apart] @ vectors).double()

    def solve(self, sums: Tensor, examples: int, noise_std: float, share: float = 1.0) -> tuple[Tensor, float]:
        """The weights `[columns, classes]` and the ridge: `share` of the one that is best by estimate."""
        mean = sums.double() / examples
        ridge = share * self.choose_ridge(mean, examples, noise_std / examples)
        shifted = self.whole.to(torch.float64, copy=True)
        shifted.diagonal().add_(ridge)
        weights = torch.cholesky_solve(mean, torch.linalg.cholesky(shifted))
        return weights.to(torch.float32), ridge

    def choose_ridge(self, mean: Tensor, examples: int, noise_std: float, ridges: Sequence[float] = RIDGES) -> float:
        """The ridge of the least estimated error; `noise_std` is that of the entries of `mean`."""
        values, turned, seen = self.values, self.vectors.T @ mean, self.judged
        spread = seen.square().mean(dim=0)
        classes = mean.shape[1]
        # The variance of an entry of the mean, summed over the classes: the noise that was added, and that of sampling.
        variance = classes * noise_std**2 + (1.0 - 1.0 / classes) * spread / examples
        squares = turned.square().sum(dim=1)
        errors = []
        for ridge in ridges:
            inverse = 1.0 / (values + ridge)
            weights = inverse.unsqueeze(1) * turned
            fit = float((weights * turned).sum() - (inverse * variance).sum())
            error = float((seen @ weights).square().sum() / len(seen)) - 2.0 * fit
            errors.append(error + _deviation((values + 2.0 * ridge) * inverse.square(), squares, variance, classes))
        return ridges[min(range(len(ridges)), key=errors.__getitem__)]


def _deviation(factors: Tensor, squares: Tensor, variance: Tensor, classes: int) -> float:
    """About the standard deviation of the estimate, which is minus the sum of `factors` times squares with noise."""
    spread = 2.0 * variance.square() / classes + 4.0 * variance / classes * squares
    return float((factors.square() * spread).sum().sqrt())


def _second_moment(rows: Tensor) -> Tensor:
    return rows.T @ rows / len(rows)
