"""Forward and backward passes of single layers written out, with per-example gradient norms on the way.

For a linear layer with input row a and output gradient row g, the gradient of one example is the outer product g a^T,
so its squared norm is |g|^2 |a|^2 (plus |g|^2 for the bias) and the clipped sum over a batch is (w * g)^T a: no
per-example gradient is ever formed. The same holds, layer by layer, for the others below. All of it runs without
automatic differentiation, and large results go to reused memory.

Who may overwrite what: a step with parameters keeps the gradient it is given and returns a new one; a step without
parameters keeps nothing of it and works in place. In the forward direction a step may overwrite its input when
`in_place` is set, which the builder of the chain does where the step before has `output_is_free`.

The views that sums are written to are in double precision for private training: see `rounding`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import NARROW, Rows
from hushgraph.nn.layers import Dropout, L2Normalize
from hushgraph.training.rounding import LARGE_BLOCK, SMALL_BLOCK, UNDERFLOW, write_products, write_row_sum

# Memory for more numbers than this is reused.
_LARGE = 32_768

Views = dict[int, Tensor]
"""Where the gradient of each trainable parameter goes, by `id(parameter)`."""


class Scratch:
    """Named pieces of memory that grow when needed and are overwritten by the next use of the same name.

    Fresh memory for a large tensor comes from the operating system page by page, which costs more than most of the
    arithmetic done on it. Small tensors are cheap to allocate and are left alone.

    `many_rows` says what a chain of steps expects. Some of them have two ways, one faster for few rows and one for
    many; they may not choose by the rows at hand, on which the result for one row must not depend.
    """

    def __init__(self, many_rows: bool = True) -> None:
        self.many_rows, self.block = many_rows, LARGE_BLOCK if many_rows else SMALL_BLOCK
        self._pieces: dict[str, Tensor] = {}
        self._views: dict[tuple[str, torch.dtype, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor | None:
        """Memory of the given shape and the type of `like`, for `out=`; None (allocate as usual) when small."""
        if math.prod(shape) < _LARGE:
            return None
        view = self._views.get((name, like.dtype, shape))
        return view if view is not None else self._make(name, like.dtype, shape)

    def alike(self, x: Tensor) -> Tensor | None:
        """Temporary memory in the shape and the order of `x`: with another order sums are rounded differently."""
        if x.numel() < _LARGE:
            return None
        if x.is_contiguous() or not x.t().is_contiguous():
            return self("temporary", x, *x.shape)
        turned = self("temporary", x, *x.t().shape)
        return None if turned is None else turned.t()

    def _make(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or piece.numel() < size or piece.dtype != dtype:
            piece = self._pieces[name] = torch.empty(size + size // 8, dtype=dtype)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        view = self._views[name, dtype, shape] = piece[:size].view(shape)
        return view


class Step(Protocol):
    """One layer of a chain. `forward`, then `backward`, then `square_norms`, then `write`, always in this order."""

    in_place: bool
    output_is_free: bool
    temporary: Scratch
    """Memory that holds nothing between two calls; the steps of a chain share it."""

    def forward(self, x: Rows, square_norms: Tensor | None) -> Tensor:
        """Apply the layer; `square_norms` are those of the rows of `x` when already known."""
        ...

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Keep the gradient of the output; return that of the input (anything, if `first`)."""
        ...

    def square_norms(self, total: Tensor) -> None:
        """Add each example's squared gradient norm over this layer's parameters to `total`."""
        ...

    def write(self, factors: Tensor | None) -> None:
        """Write the sum of the examples' gradients, example i scaled by `factors[i]` (None: one), to the views."""
        ...


class LinearStep:
    """A linear layer on dense or sparse rows; `input_scale` is for a step before it that leaves out a factor."""

    in_place, output_is_free = False, True

    def __init__(self, layer: nn.Linear, views: Views) -> None:
        self.weight = self.parameter = layer.weight
        self.bias = layer.bias
        self.weight_view = views.get(id(layer.weight))
        self.bias_view = views.get(id(layer.bias))
        self.input_scale = 1.0
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Rows, square_norms: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Rows times the transposed weight, plus the bias."""
        self.x, self.known = x, square_norms
        self.weight = self.parameter if self.input_scale == 1.0 else self.parameter * self.input_scale
        if not isinstance(x, Tensor):
            product = x.matmul(self.weight.t())
            return product if self.bias is None else product.add_(self.bias)
        if self.weight.shape[0] < NARROW:
            return self._narrow_forward(x)
        if out is None:
            out = self.scratch("output", x, x.shape[0], self.weight.shape[0])
        if self.bias is None:
            return torch.mm(x, self.weight.t(), out=out)
        return torch.addmm(self.bias, x, self.weight.t(), out=out)

    def _narrow_forward(self, x: Tensor) -> Tensor:
        """The same, stored one output column after the other: several times faster for a handful of columns."""
        out = self.scratch("output", x, self.weight.shape[0], x.shape[0])
        if self.bias is None:
            return torch.mm(self.weight, x.t(), out=out).t()
        return torch.addmm(self.bias.unsqueeze(1), self.weight, x.t(), out=out).t()

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """The gradient times the weight."""
        self.grad = grad
        if first:
            return grad
        rows, columns = grad.shape[0], self.weight.shape[1]
        if columns < NARROW:
            return torch.mm(self.weight.t(), grad.t(), out=self.scratch("input", grad, columns, rows)).t()
        return torch.mm(grad, self.weight, out=self.scratch("input", grad, rows, columns))

    def square_norms(self, total: Tensor) -> None:
        """|g|^2 |a|^2 for the weight, |g|^2 for the bias."""
        if self.weight_view is not None:
            total.addcmul_(norms_from_above(self.grad, self.temporary), self._input_norms())
        elif self.bias_view is not None:
            total.add_(norms_from_above(self.grad, self.temporary))

    def _input_norms(self) -> Tensor:
        """|a|^2, with one more for the bias, or what squares may lack that are too small for single precision."""
        more = UNDERFLOW if self.bias_view is None else 1.0
        if self.known is None and isinstance(self.x, Tensor):
            return norms_from_above(self.x, self.temporary, more)
        return (self.x.row_square_norms() if self.known is None else self.known) + more  # type: ignore[union-attr]

    def write(self, factors: Tensor | None) -> None:
        """(w * g)^T a for the weight, the sum of w * g for the bias."""
        grad = self.grad
        if factors is not None:
            grad = torch.mul(grad, factors.unsqueeze(1), out=self.temporary.alike(grad))
        if self.weight_view is not None:
            if isinstance(self.x, Tensor):
                write_products(grad, self.x, self.weight_view, self.temporary.block, self.temporary)
            else:
                self.weight_view.copy_(self.x.transpose_matmul(grad.to(self.weight_view.dtype)).t())
            if self.input_scale != 1.0:
                self.weight_view.mul_(self.input_scale)
        if self.bias_view is not None:
            write_row_sum(grad, self.bias_view)


def short_row_norms(x: Tensor, temporary: Scratch) -> Tensor:
    """Squared norms of narrow rows: a product with ones adds them up faster than a sum over a short dimension."""
    squares = torch.square(x, out=temporary.alike(x))
    return torch.mv(squares, ones_like_row(x.shape[1], x.dtype))


def norms_from_above(x: Tensor, temporary: Scratch, more: float = UNDERFLOW) -> Tensor:
    """As `short_row_norms`, and not smaller than the true ones where squares are too small for single precision."""
    squares = torch.square(x, out=temporary.alike(x))
    return torch.addmv(_constant(more, x.dtype), squares, ones_like_row(x.shape[1], x.dtype))


@lru_cache(maxsize=8)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    return torch.full((1,), value, dtype=dtype)


@lru_cache(maxsize=64)
def ones_like_row(width: int, dtype: torch.dtype) -> Tensor:
    """A row of ones, made once (treat it as read-only)."""
    return torch.ones(width, dtype=dtype)


class Parameterless:
    """A layer without parameters: nothing to add, nothing to write."""

    in_place, output_is_free = False, False

    def square_norms(self, total: Tensor) -> None:
        """Nothing to add."""

    def write(self, factors: Tensor | None) -> None:
        """Nothing to write."""


class ActivationStep(Parameterless):
    """SELU, ReLU or tanh, whose derivative follows from their own output."""

    def __init__(
        self,
        apply: Callable[[Tensor, Tensor, Scratch], Tensor],
        derive: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        self.apply, self.derive = apply, derive
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        """Apply the function to each entry."""
        out = x if self.in_place else self.scratch("output", x, *x.shape)
        self.output = self.apply(x, torch.empty_like(x) if out is None else out, self.temporary)
        return self.output

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """The gradient times the derivative."""
        return self.derive(grad, self.output)


LOG2_E = 1.4426950408889634
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu(x: Tensor, out: Tensor, temporary: Scratch) -> Tensor:
    if not temporary.many_rows:
        return torch.ops.aten.elu.out(x, SELU_ALPHA, SELU_SCALE, 1.0, out=out)
    # In large, a power of two is much faster than the expm1 of torch.selu, and as exact as single precision needs here.
    falling = torch.mul(x, LOG2_E, out=temporary("temporary", x, *x.shape)).clamp_max_(0.0).exp2_()
    rising = torch.clamp_min(x, 0.0, out=out).add_(falling, alpha=SELU_ALPHA)
    return torch.add(_selu_floor(x.dtype), rising, alpha=SELU_SCALE, out=out)


@lru_cache(maxsize=4)
def _selu_floor(dtype: torch.dtype) -> Tensor:
    return torch.tensor(-SELU_ALPHA * SELU_SCALE, dtype=dtype)


def _relu(x: Tensor, out: Tensor, temporary: Scratch) -> Tensor:
    return torch.clamp_min(x, 0.0, out=out)


def _tanh(x: Tensor, out: Tensor, temporary: Scratch) -> Tensor:
    return torch.tanh(x, out=out)


def _selu_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.elu_backward.grad_input(grad, SELU_ALPHA, SELU_SCALE, 1.0, True, output, grad_input=grad)


def _relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward.grad_input(grad, output, 0.0, grad_input=grad)


def _tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward.grad_input(grad, output, grad_input=grad)


ACTIVATIONS = {
    nn.SELU: (_selu, _selu_backward),
    nn.ReLU: (_relu, _relu_backward),
    nn.Tanh: (_tanh, _tanh_backward),
}


class NormalizeStep(Parameterless):
    """Rows scaled to unit length; the gradient loses its part along the row."""

    def __init__(self) -> None:
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        """Divide each row by its length."""
        self.length = short_row_norms(x, self.temporary).sqrt_().unsqueeze(1)
        self.divisor = self.length.clamp_min(L2Normalize.eps)
        out = x if self.in_place else self.scratch("output", x, *x.shape)
        self.output = torch.div(x, self.divisor, out=out)
        return self.output

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Project off the row and divide by its length."""
        product = torch.mul(grad, self.output, out=self.temporary("temporary", grad, *grad.shape))
        along = torch.mv(product, ones_like_row(grad.shape[1], grad.dtype)).unsqueeze(1)
        along.mul_(self.length >= L2Normalize.eps)
        return grad.addcmul_(self.output, along, value=-1.0).div_(self.divisor)


class DropoutStep(Parameterless):
    """Entries dropped by coins of their own; the gradient is dropped by the same coins."""

    def __init__(self, layer: Dropout) -> None:
        self.layer = layer
        self.kept: Tensor | None = None
        self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        """Drop and rescale while training; the rows as they are otherwise."""
        if not self.layer.training:
            self.kept = None
            return x
        coins = torch.rand(x.shape, generator=self.layer.generator, dtype=x.dtype)
        self.kept = coins.ge_(self.layer.p).div_(1.0 - self.layer.p)
        return x * self.kept

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """The gradient of the entries that were kept."""
        return grad if self.kept is None else grad.mul_(self.kept)


class RowNormStep:
    """LayerNorm over channels, or GroupNorm with one group, on `[n, channels]`."""

    in_place, output_is_free = False, False

    def __init__(self, layer: nn.LayerNorm | nn.GroupNorm, views: Views) -> None:
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.weight_view = views.get(id(layer.weight))
        self.bias_view = views.get(id(layer.bias))
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        """Standardize each row, then scale and shift the channels."""
        self.x = x
        self.standard, self.mean, self.rstd = torch.native_layer_norm(x, x.shape[1:], None, None, self.eps)
        if self.weight is None:
            return self.standard
        if self.bias is None:
            return self.standard * self.weight
        return torch.addcmul(self.bias, self.standard, self.weight)

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Back through scale and standardization."""
        self.grad = grad
        if first:
            return grad
        inner = grad if self.weight is None else grad * self.weight
        return torch.ops.aten.native_layer_norm_backward(
            inner, self.x, self.x.shape[1:], self.mean, self.rstd, None, None, [True, False, False]
        )[0]

    def square_norms(self, total: Tensor) -> None:
        """Scale and shift have one gradient entry per channel and example: formed outright."""
        if self.weight_view is not None:
            total.add_(norms_from_above(self.grad * self.standard, self.temporary))
        if self.bias_view is not None:
            total.add_(norms_from_above(self.grad, self.temporary))

    def write(self, factors: Tensor | None) -> None:
        """Weighted sums of those entries."""
        grad = self.grad if factors is None else self.grad * factors.unsqueeze(1)
        if self.weight_view is not None:
            write_row_sum(grad * self.standard, self.weight_view)
        if self.bias_view is not None:
            write_row_sum(grad, self.bias_view)
