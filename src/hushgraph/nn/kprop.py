"""KProp: K steps of the GCN-normalized sum without self loops, the denoising layer of LPGNN.

Averaging over many neighbors averages the noise of their reports away. A node's own report is left out of its own sum,
since with self loops the same noise would be added again at every step.

KProp is linear and so is the first layer of a network, so the order does not matter: `PropagatedRows` multiplies the
(sparse) reports with the narrow weight matrix first and propagates the few columns that result. The wide, dense matrix
of propagated features is never made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.data.rows import Rows, SparseRows, dense_rows
from hushgraph.errors import InputError
from hushgraph.nn.propagation import Propagation

_PROBES = 64


def kprop(propagation: Propagation, rows: Tensor, steps: int) -> Tensor:
    """`steps` propagations of the rows."""
    for _ in range(steps):
        rows = propagation(rows)
    return rows


class PropagatedRows:
    """The rows D P^K (step * R + center), not written out.

    R holds the reports (dense or sparse), P is the propagation, K = `steps`, D scales every row (None: not at all).
    """

    def __init__(
        self,
        reports: Rows,
        propagation: Propagation,
        steps: int,
        step: float = 1.0,
        center: float = 0.0,
        row_scale: Tensor | None = None,
    ) -> None:
        if steps < 0:
            raise InputError(f"steps: expected 0 or more; got {steps}")
        self.reports = reports.keep_transposed() if isinstance(reports, SparseRows) else reports
        self.propagation, self.steps = propagation, steps
        self.step, self.center, self.row_scale = step, center, row_scale
        self.shape = (int(reports.shape[0]), int(reports.shape[1]))
        # What K propagations make of a constant column.
        self._constant = kprop(propagation, torch.ones(self.shape[0], 1), steps) if center else None

    def matmul(self, weight_t: Tensor) -> Tensor:
        """These rows times `weight_t` ([columns, out]); differentiable with respect to `weight_t`."""
        reports = self.reports
        product = reports @ weight_t if isinstance(reports, Tensor) else reports.matmul(weight_t)
        product = kprop(self.propagation, product, self.steps) * self.step
        if self._constant is not None:
            product = product + self.center * self._constant * weight_t.sum(dim=0)
        return product if self.row_scale is None else self.row_scale * product

    def to_dense(self) -> Tensor:
        """The matrix written out, for networks that need it."""
        return self.matmul(torch.eye(self.shape[1]))

    def normalized(self, generator: torch.Generator) -> PropagatedRows:
        """The same reports, not centered, every propagated row scaled to length 1 (rows of zeros stay).

        The scale and the center of the estimates are public constants that a network would have to undo, and hubs have
        longer rows; neither says anything about a person. Lengths are measured with random probes: |h|^2 is the mean
        of (h . g)^2 over Gaussian g.
        """
        if self.steps == 0:
            squared = dense_rows(self.reports).square().sum(dim=1, keepdim=True)
        else:
            plain = PropagatedRows(self.reports, self.propagation, self.steps)
            probes = torch.randn(self.shape[1], _PROBES, generator=generator)
            squared = plain.matmul(probes).square().mean(dim=1, keepdim=True)
        scale = torch.where(squared > 0, squared.clamp(min=1e-20).rsqrt(), torch.zeros_like(squared))
        return PropagatedRows(self.reports, self.propagation, self.steps, row_scale=scale)
