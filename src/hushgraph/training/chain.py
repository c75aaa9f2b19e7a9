"""Forward and backward passes written out for chains of known layers, with per-example gradient norms on the way.

For a linear layer with input row a and output gradient row g, the gradient of one example is the outer product g a^T,
so its squared norm is |g|^2 |a|^2 (plus |g|^2 for the bias) and the clipped sum over a batch is (w * g)^T a: no
per-example gradient is ever formed. The same holds, layer by layer, for the others below. What automatic
differentiation would do in general is done here by hand for the common shapes, because at the size of these models
its overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from hushgraph.nn import MLP, Combine, Dropout, Encoder, HopClassifier, L2Normalise, Linear
from hushgraph.nn.sparse import Rows, linear_input, row_square_norms
from hushgraph.training.losses import cross_entropy_gradient

Views = dict[int, Tensor]
"""Where the gradient of each trainable parameter goes, by `id(parameter)`."""


class Step(Protocol):
    """One layer of a chain. `forward`, then `backward`, then `square_norms`, then `write`, always in this order."""

    def forward(self, x: Rows, square_norms: Tensor | None) -> Tensor:
        """Apply the layer; `square_norms` are those of the rows of `x` when already known."""
        ...

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Keep the gradient of the output; return that of the input (anything, if `first`)."""
        ...

    def square_norms(self, total: Tensor) -> None:
        """Add each example's squared gradient norm over this layer's parameters to `total`."""
        ...

    def write(self, factors: Tensor) -> None:
        """Write the sum of the examples' gradients, example i scaled by `factors[i]`, into the views."""
        ...


class _LinearStep:
    """A linear layer on dense or sparse rows."""

    def __init__(self, layer: nn.Linear, views: Views) -> None:
        self.weight, self.bias = layer.weight, layer.bias
        self.weight_view = views.get(id(layer.weight))
        self.bias_view = views.get(id(layer.bias))

    def forward(self, x: Rows, square_norms: Tensor | None) -> Tensor:
        self.x, self.known = x, square_norms
        return linear_input(x, self.weight, self.bias)

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        self.grad = grad
        return grad if first else grad.mm(self.weight)

    def square_norms(self, total: Tensor) -> None:
        of_grad = row_square_norms(self.grad)
        if self.weight_view is not None:
            of_input = row_square_norms(self.x) if self.known is None else self.known
            total.addcmul_(of_grad, of_input)
        if self.bias_view is not None:
            total.add_(of_grad)

    def write(self, factors: Tensor) -> None:
        weighted = self.grad * factors.unsqueeze(1)
        if self.weight_view is not None:
            if isinstance(self.x, Tensor):
                torch.mm(weighted.t(), self.x, out=self.weight_view)
            else:
                self.weight_view.copy_(self.x.transpose_matmul(weighted).t())
        if self.bias_view is not None:
            torch.sum(weighted, 0, out=self.bias_view)


class _Parameterless:
    """A layer without parameters: nothing to add, nothing to write."""

    def square_norms(self, total: Tensor) -> None:
        pass

    def write(self, factors: Tensor) -> None:
        pass


class _ActivationStep(_Parameterless):
    """SELU, ReLU or tanh, whose derivative follows from their own output."""

    def __init__(self, apply: Callable[[Tensor], Tensor], derive: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.apply, self.derive = apply, derive

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        self.output = self.apply(x)
        return self.output

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        return self.derive(grad, self.output)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.elu_backward(grad, _SELU_ALPHA, _SELU_SCALE, 1.0, True, output)


def _relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(grad, output, 0.0)


def _tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward(grad, output)


_ACTIVATIONS = {
    nn.SELU: (torch.selu, _selu_backward),
    nn.ReLU: (torch.relu, _relu_backward),
    nn.Tanh: (torch.tanh, _tanh_backward),
}


class _NormaliseStep(_Parameterless):
    """Rows scaled to unit length; the gradient loses its part along the row."""

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        self.length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        self.divisor = self.length.clamp_min(L2Normalise.eps)
        self.output = x / self.divisor
        return self.output

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        along = (grad * self.output).sum(-1, keepdim=True)
        along.mul_(self.length >= L2Normalise.eps)
        return torch.addcmul(grad, self.output, along, value=-1.0).div_(self.divisor)


class _NormStep:
    """LayerNorm over channels, or GroupNorm with one group, on `[n, channels]`."""

    def __init__(self, layer: nn.LayerNorm | nn.GroupNorm, views: Views) -> None:
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.weight_view = views.get(id(layer.weight))
        self.bias_view = views.get(id(layer.bias))

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        self.x = x
        self.standard, self.mean, self.rstd = torch.native_layer_norm(x, x.shape[1:], None, None, self.eps)
        if self.weight is None:
            return self.standard
        if self.bias is None:
            return self.standard * self.weight
        return torch.addcmul(self.bias, self.standard, self.weight)

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        self.grad = grad
        if first:
            return grad
        inner = grad if self.weight is None else grad * self.weight
        return torch.ops.aten.native_layer_norm_backward(
            inner, self.x, self.x.shape[1:], self.mean, self.rstd, None, None, [True, False, False]
        )[0]

    def square_norms(self, total: Tensor) -> None:
        if self.weight_view is not None:
            self.of_weight = self.grad * self.standard
            total.add_(row_square_norms(self.of_weight))
        if self.bias_view is not None:
            total.add_(row_square_norms(self.grad))

    def write(self, factors: Tensor) -> None:
        if self.weight_view is not None:
            torch.mv(self.of_weight.t(), factors, out=self.weight_view)
        if self.bias_view is not None:
            torch.mv(self.grad.t(), factors, out=self.bias_view)


class _HopsStep:
    """One chain per hop on `[n, hops, width]`, and their outputs concatenated or added."""

    def __init__(self, branches: list[list[Step]], mode: str) -> None:
        self.branches, self.mode = branches, mode

    def forward(self, x: Tensor, square_norms: Tensor | None) -> Tensor:
        outputs = []
        for k, branch in enumerate(self.branches):
            known = None if square_norms is None else square_norms[:, k]
            outputs.append(run_forward(branch, x[:, k], known))
        self.widths = [output.shape[1] for output in outputs]
        return torch.cat(outputs, 1) if self.mode == "cat" else torch.stack(outputs).sum(0)

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        pieces = grad.split(self.widths, 1) if self.mode == "cat" else [grad] * len(self.branches)
        for branch, piece in zip(self.branches, pieces):
            run_backward(branch, piece)
        return grad

    def square_norms(self, total: Tensor) -> None:
        for branch in self.branches:
            for step in branch:
                step.square_norms(total)

    def write(self, factors: Tensor) -> None:
        for branch in self.branches:
            for step in branch:
                step.write(factors)


def run_forward(steps: list[Step], x: Rows, square_norms: Tensor | None) -> Tensor:
    """Push rows through the chain."""
    for step in steps:
        x = step.forward(x, square_norms)
        square_norms = None
    assert isinstance(x, Tensor)
    return x


def run_backward(steps: list[Step], grad: Tensor) -> None:
    """Push the gradient of the scores back through the chain."""
    for i in range(len(steps) - 1, -1, -1):
        grad = steps[i].backward(grad, i == 0)


def build_chain(module: nn.Module, views: Views) -> list[Step] | None:
    """The module as a chain of written-out steps, or None when it holds something that has none."""
    kind = type(module)
    if kind is nn.Identity or (kind in (Dropout, nn.Dropout) and getattr(module, "p", 1.0) == 0.0):
        return []
    if kind in (nn.Linear, Linear):
        return [_LinearStep(module, views)]  # type: ignore[arg-type]
    if kind in _ACTIVATIONS:
        return [_ActivationStep(*_ACTIVATIONS[kind])]  # type: ignore[list-item]
    if kind is L2Normalise:
        return [_NormaliseStep()]  # type: ignore[list-item]
    if kind is nn.LayerNorm or (kind is nn.GroupNorm and module.num_groups == 1):
        return [_NormStep(module, views)]  # type: ignore[arg-type, list-item]
    if kind is nn.Sequential:
        return _join(list(module.children()), views)
    if kind is MLP:
        return build_chain(module.layers, views)  # type: ignore[arg-type]
    if kind is Encoder:
        return _join([module.body, module.middle, module.head], views)  # type: ignore[list-item]
    if kind is HopClassifier:
        return _hops_chain(module, views)  # type: ignore[arg-type]
    return None


def _join(parts: list[nn.Module], views: Views) -> list[Step] | None:
    steps: list[Step] = []
    for part in parts:
        found = build_chain(part, views)
        if found is None:
            return None
        steps += found
    return steps


def _hops_chain(module: HopClassifier, views: Views) -> list[Step] | None:
    combine = module.combine
    if type(combine) is not Combine or combine.mode not in ("cat", "sum"):
        return None
    branches = [build_chain(base, views) for base in module.bases]
    rest = _join([module.middle, module.head], views)
    if rest is None or any(branch is None for branch in branches):
        return None
    return [_HopsStep(branches, combine.mode), *rest]  # type: ignore[arg-type, list-item]


class ChainGradient:
    """Per-example norms and weighted sums of gradients through a written-out chain, for cross entropy."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    @torch.no_grad()
    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor:
        """Each example's squared gradient norm; keeps what `write_sum` needs."""
        scores = run_forward(self.steps, rows, input_square_norms)
        run_backward(self.steps, cross_entropy_gradient(scores, labels))
        total = scores.new_zeros(len(scores))
        for step in self.steps:
            step.square_norms(total)
        return total

    @torch.no_grad()
    def write_sum(self, factors: Tensor) -> None:
        """Write the sum of the gradients, example i scaled by `factors[i]`, into the views."""
        for step in self.steps:
            step.write(factors)
