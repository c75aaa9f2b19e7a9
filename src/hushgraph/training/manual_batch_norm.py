"""Batch norm while training, alone or with its neighbors: L2-normalized rows before it, SELU after it.

Batch norm mixes rows, so it has no per-example gradients: these steps are for plain training only. Each pass over a
large matrix costs about the same whatever it computes, so the three layers that GAP puts in a row are one step here:
unit rows share their squares with the variance, and the constants of SELU go into scale and shift.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.nn.layers import L2Normalize
from hushgraph.training.manual_layers import LOG2_E, SELU_ALPHA, SELU_SCALE, Scratch, Views, ones_like_row

_MIXES_ROWS = "expected a row-wise layer; got batch norm, which mixes rows; use norm='group'"
_FLOOR = SELU_ALPHA * LOG2_E


class BatchNormStep:
    """Batch norm, with `unit_rows` on rows scaled to unit length first.

    `copies`, if set, says how many equal rows each row stands for; gradients are then those of one copy.
    """

    in_place, output_is_free = False, True

    def __init__(self, layer: nn.BatchNorm1d, views: Views, unit_rows: bool = False) -> None:
        self.layer, self.unit_rows, self.evaluating = layer, unit_rows, False
        self.copies: Tensor | None = None
        self.weight_view, self.bias_view = views.get(id(layer.weight)), views.get(id(layer.bias))
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        """Standardize each channel over the batch, scale and shift; keep the running statistics up to date."""
        if self.evaluating:
            self._use_running_statistics(x)
        else:
            self._use_batch_statistics(x)
        return self._output(self.layer.bias - self.mean * self.scale)

    def _output(self, shift: Tensor) -> Tensor:
        return torch.addcmul(shift, self.rows, self.scale, out=self.scratch("output", self.rows, *self.rows.shape))

    def _use_running_statistics(self, x: Tensor) -> None:
        mean, variance, _, _ = _statistics_of(self.layer)
        self.rows = self._unit_rows(x)[0] if self.unit_rows else x
        self.mean, self.scale = mean, (variance + self.layer.eps).rsqrt_().mul_(self.layer.weight)

    def _use_batch_statistics(self, x: Tensor) -> None:
        """Keep rows, their mean, and rstd; rows of any length are centered first, so that nothing cancels."""
        self.weights = x.new_ones(len(x)) if self.copies is None else self.copies
        n = self.count = len(x) if self.copies is None else int(self.copies.sum())
        if n < 2:
            raise InputError(f"expected at least two rows for batch norm; got {n}; use a larger batch")
        share = self.weights / n
        if self.unit_rows:
            self.rows, squares, inverse = self._unit_rows(x)
            self.mean = mean = torch.mv(self.rows.t(), share)
            # entries of unit rows are at most 1, so what the difference loses is small beside eps
            mean_square = torch.mv(squares.t(), inverse.square().mul_(share))
            variance = mean_square.addcmul_(mean, mean, value=-1.0).clamp_min_(0.0)
        else:
            mean = torch.mv(x.t(), share)
            self.rows = torch.sub(x, mean, out=x if self.in_place else self.scratch("rows", x, *x.shape))
            self.mean = torch.zeros_like(mean)
            squares = torch.square(self.rows, out=self.temporary("temporary", x, *x.shape))
            variance = torch.mv(squares.t(), share)
        self._remember(mean, variance * (n / (n - 1)))
        self.rstd = (variance + self.layer.eps).rsqrt_()
        self.scale = self.rstd * self.layer.weight

    def _unit_rows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows at unit length, their squares before, and one over their lengths."""
        squares = torch.square(x, out=self.temporary("temporary", x, *x.shape))
        self.length = torch.mv(squares, ones_like_row(x.shape[1], x.dtype)).sqrt_()
        inverse = self.length.clamp_min(L2Normalize.eps).reciprocal_()
        self.inverse = inverse.unsqueeze(1)
        out = x if self.in_place else self.scratch("rows", x, *x.shape)
        return torch.mul(x, self.inverse, out=out), squares, inverse

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        running_mean, running_var, seen, momentum = _statistics_of(self.layer)
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance, momentum)
        seen += 1

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Take off the mean and the part along the standardized channel, then rescale."""
        n, product = self.count, self.temporary("temporary", grad, *grad.shape)
        self.of_bias = torch.mv(grad.t(), self.weights)
        along = torch.mv(torch.mul(grad, self.rows, out=product).t(), self.weights)
        self.of_weight = along.addcmul_(self.mean, self.of_bias, value=-1.0).mul_(self.rstd)
        per_row = self.of_weight * self.rstd / n
        shift = (self.mean * per_row - self.of_bias / n).mul_(self.scale)
        inner = grad.addcmul_(self.rows, per_row, value=-1.0)
        inner = torch.addcmul(shift, inner, self.scale, out=grad)
        return self._off_the_row(inner) if self.unit_rows else inner

    def _off_the_row(self, grad: Tensor) -> Tensor:
        """Back through the division by the row's length: without the part along the row."""
        product = torch.mul(grad, self.rows, out=self.temporary("temporary", grad, *grad.shape))
        along = torch.mv(product, ones_like_row(grad.shape[1], grad.dtype))
        along.mul_(self.length >= L2Normalize.eps)
        return grad.addcmul_(self.rows, along.unsqueeze(1), value=-1.0).mul_(self.inverse)

    def square_norms(self, total: Tensor) -> None:
        """Refused: there is no gradient of one example."""
        raise InputError(_MIXES_ROWS)

    def write(self, factors: Tensor | None) -> None:
        """The gradients of scale and shift."""
        if factors is not self.copies:
            raise InputError(_MIXES_ROWS)
        if self.weight_view is not None:
            self.weight_view.copy_(self.of_weight)
        if self.bias_view is not None:
            self.bias_view.copy_(self.of_bias)


class BatchSeluStep(BatchNormStep):
    """Batch norm and SELU; the output is SELU times `OUTPUT_SCALE`, which the linear layer after it takes back.

    With t = z log2(e) - floor, SELU of z is max(t, -floor) + floor 2^floor 2^min(t, -floor), times a constant: a power
    of two is several times faster than an exponential, and t costs nothing more than z.
    """

    OUTPUT_SCALE = LOG2_E / SELU_SCALE
    output_is_free = False

    def _output(self, shift: Tensor) -> Tensor:
        rows = self.rows
        falling = torch.addcmul(
            shift.mul_(LOG2_E).sub_(_FLOOR),
            rows,
            self.scale * LOG2_E,
            out=self.temporary("temporary", rows, *rows.shape),
        )
        rising = torch.clamp_min(falling, -_FLOOR, out=self.scratch("output", rows, *rows.shape))
        falling.clamp_max_(-_FLOOR).exp2_()
        self.output = rising.add_(falling, alpha=_FLOOR * 2.0**_FLOOR)
        return self.output

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Back through SELU, whose derivative follows from its own output, then through the norm."""
        torch.ops.aten.elu_backward.grad_input(grad, SELU_ALPHA, LOG2_E, 1.0, True, self.output, grad_input=grad)
        return super().backward(grad, first)


def _statistics_of(layer: nn.BatchNorm1d) -> tuple[Tensor, Tensor, Tensor, float]:
    """The running mean and variance, the number of batches seen, and the momentum."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    assert layer.momentum is not None
    return layer.running_mean, layer.running_var, layer.num_batches_tracked, layer.momentum
