"""Per-example gradient norms of modules without a manual backward pass, by automatic differentiation.

*Ghost clipping*: autograd gives the gradient with respect to the *output* of every layer that has parameters; from that
and the layer's input, norms and weighted sums follow in closed form, as in `manual_layers`, for linear and
normalization layers. *Per-sample gradients* are formed outright by `torch.func`: that works for every row-wise module,
at the price of memory and time.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from hushgraph.graph.rows import Rows, SparseRows, dense_rows, row_square_norms
from hushgraph.nn.layers import Linear
from hushgraph.nn.weighted import aligned
from hushgraph.training.alike import EvenLinear
from hushgraph.training.losses import RowLoss
from hushgraph.training.manual_backward import shares_parameters
from hushgraph.training.manual_layers import Views
from hushgraph.training.rounding import LARGE_BLOCK, SINGLE, UNDERFLOW, add_products, write_products, write_row_sum

_LINEAR = (nn.Linear, Linear)
_NORMS = (nn.LayerNorm, nn.GroupNorm)


class NoGhostNorms(Exception):
    """The module used a layer in a way that has no closed form here; fall back to per-sample gradients."""


def has_ghost_norms(module: nn.Module) -> bool:
    """Whether every trainable parameter sits in exactly one layer of a known kind, and that layer in one place."""
    for layer in module.modules():
        trainable = any(p.requires_grad for p in layer.parameters(recurse=False))
        if trainable and type(layer) not in (*_LINEAR, *_NORMS):
            return False
    return not shares_parameters(module)


class _Record:
    """Input, output and output gradient of one layer in one pass."""

    def __init__(self, layer: nn.Module, x: Rows, output: Tensor) -> None:
        self.layer, self.output = layer, output
        self.x = x if isinstance(x, SparseRows) else x.detach()
        self.grad = output

    def square_norms(self, views: Views) -> Tensor:
        if type(self.layer) in _LINEAR:
            return self._linear_norms(id(self.layer.weight) in views, id(self.layer.bias) in views)
        parts = [p.square().sum(1) for p in self._norm_parts(views).values()]
        return torch.stack(parts).sum(0)

    def _linear_norms(self, weight: bool, bias: bool) -> Tensor:
        of_grad, of_input = row_square_norms(self.grad).add_(UNDERFLOW), row_square_norms(self.x).add_(UNDERFLOW)
        of_rows = of_grad * (of_input * float(weight) + float(bias))
        if self.grad.dim() == 2:
            return of_rows
        # Several positions per example: |sum_t g_t a_t^T|^2 = sum over pairs of positions of (g.g')(a.a').
        assert isinstance(self.x, Tensor)
        pairs = _pairs(self.grad)
        inputs = _pairs(self.x) * float(weight) + float(bias)
        square = (pairs * inputs).sum((1, 2), dtype=torch.float64)
        # What cancels is lost in rounding: for T positions, never less than (sum_t |g_t| |a_t| / T)^2 is assumed.
        positions, width = of_rows.shape[1], self.x.shape[2] + self.grad.shape[2] + 8
        together = of_rows.sqrt().sum(1, dtype=torch.float64).square()
        safe = torch.maximum(square + 2.0 * width * SINGLE * together, together / positions**2)
        return safe.to(self.grad.dtype)

    def _norm_parts(self, views: Views) -> dict[int, Tensor]:
        """Per-example gradients of scale and shift: as small as the activations, so formed outright."""
        layer, x, grad = self.layer, self.x, self.grad
        assert isinstance(x, Tensor)
        if isinstance(layer, nn.LayerNorm):
            standard = F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
        else:
            assert isinstance(layer, nn.GroupNorm)
            standard = F.group_norm(x, layer.num_groups, None, None, layer.eps)
        parts = {id(layer.weight): grad * standard, id(layer.bias): grad}
        channels_last = isinstance(layer, nn.LayerNorm)
        kept = {key: part for key, part in parts.items() if key in views}
        return {key: _sum_positions(part, channels_last) for key, part in kept.items()}

    def write(self, factors: Tensor, views: Views, block: int) -> None:
        if type(self.layer) not in _LINEAR:
            for key, part in self._norm_parts(views).items():
                write_row_sum(part * factors.unsqueeze(1), views[key])
            return
        weighted = self.grad * factors.view(-1, *[1] * (self.grad.dim() - 1))
        if id(self.layer.weight) in views:
            self._write_weight(weighted, views[id(self.layer.weight)], block)
        if id(self.layer.bias) in views:
            write_row_sum(weighted.flatten(0, -2), views[id(self.layer.bias)])

    def _write_weight(self, weighted: Tensor, view: Tensor, block: int) -> None:
        if not isinstance(self.x, Tensor):
            view.copy_(self.x.transpose_matmul(weighted.to(view.dtype)).t())
        elif weighted.dim() == 2:
            write_products(weighted, self.x, view, block)
        else:
            positions = weighted.shape[1]
            rows, whole = len(weighted) * positions, block // 2 // positions * positions
            view.zero_()
            add_products(weighted.flatten(0, 1), self.x.flatten(0, 1), view, range(0, rows + whole, whole))


def _pairs(rows: Tensor) -> Tensor:
    """All products between the positions of an example; examples start alike in memory: places do not matter then."""
    held = aligned(rows)
    return held @ held.transpose(1, 2)


def _sum_positions(part: Tensor, channels_last: bool) -> Tensor:
    """One value per example and channel: add up the positions, wherever they stand."""
    if part.dim() == 2:
        return part
    return part.flatten(1, -2).sum(1) if channels_last else part.flatten(2).sum(2)


class GhostGradient:
    """Per-example norms and weighted sums of gradients, through autograd and closed forms."""

    def __init__(self, module: nn.Module, loss: RowLoss, views: Views, block: int = LARGE_BLOCK) -> None:
        self.module, self.loss, self.views, self.block = module, loss, views, block
        self.layers = [
            layer for layer in module.modules() if any(id(p) in views for p in layer.parameters(recurse=False))
        ]

    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor:
        """Each example's squared gradient norm; keeps what `write_sum` needs."""
        self.records = self._run(rows, labels)
        with torch.no_grad():
            return torch.stack([record.square_norms(self.views) for record in self.records]).sum(0)

    def _run(self, rows: Rows, labels: Tensor) -> list[_Record]:
        records: list[_Record] = []

        def keep(layer: nn.Module, inputs: tuple[Rows, ...], output: Tensor) -> None:
            records.append(_Record(layer, inputs[0], output))

        handles = [layer.register_forward_hook(keep) for layer in self.layers]
        try:
            with torch.enable_grad(), EvenLinear():
                total = self.loss(self.module(rows), labels).sum()
        finally:
            for handle in handles:
                handle.remove()
        self._check(records, len(rows))
        outputs = [record.output for record in records]
        grads = torch.autograd.grad(total, outputs, allow_unused=True)
        for record, found in zip(records, grads):
            record.grad = torch.zeros_like(record.output) if found is None else found
            record.output = record.grad
        return records

    def _check(self, records: list[_Record], examples: int) -> None:
        if sorted(id(r.layer) for r in records) != sorted(id(layer) for layer in self.layers):
            raise NoGhostNorms("a layer was used more than once, or not at all")
        if any(r.output.dim() not in (2, 3) or len(r.output) != examples for r in records):
            raise NoGhostNorms("a layer saw rows of an unexpected shape")
        if any(r.output.dim() == 3 and not 0 < r.output.shape[1] <= self.block // 2 for r in records):
            raise NoGhostNorms("a layer saw too many positions of one example")

    def per_row(self) -> Iterator[Tensor]:
        """All that `write_sum` uses of the rows, one entry per row."""
        for record in self.records:
            yield record.grad
            if isinstance(record.x, Tensor):
                yield record.x

    @torch.no_grad()
    def write_sum(self, factors: Tensor) -> None:
        """Write the sum of the gradients, example i scaled by `factors[i]`, into the views."""
        for record in self.records:
            record.write(factors, self.views, self.block)
        self.records = []


class PerSampleGradient:
    """Per-example norms and weighted sums from per-sample gradients that are formed outright."""

    def __init__(self, module: nn.Module, loss: RowLoss, views: Views) -> None:
        self.module, self.loss, self.views = module, loss, views
        self.parameters = {name: p for name, p in module.named_parameters() if id(p) in views}
        self.constants: dict[str, Tensor] = {name: p for name, p in module.named_parameters() if id(p) not in views}
        self.constants |= dict(module.named_buffers())
        self._gradients = vmap(grad(self._one_loss), in_dims=(None, 0, 0), randomness="different")

    def _one_loss(self, parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        state = {**parameters, **{name: t.detach() for name, t in self.constants.items()}}
        with EvenLinear():
            scores = functional_call(self.module, state, (row.unsqueeze(0),))
        return self.loss(scores, label.unsqueeze(0)).squeeze(0)

    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor:
        """Each example's squared gradient norm; keeps what `write_sum` needs."""
        detached = {name: p.detach() for name, p in self.parameters.items()}
        found = self._gradients(detached, dense_rows(rows), labels)
        self.gradients = {name: g.flatten(1).double() for name, g in found.items()}
        squares = torch.stack([g.square().sum(1) for g in self.gradients.values()]).sum(0)
        return squares.to(next(iter(found.values())).dtype)

    def per_row(self) -> Iterator[Tensor]:
        """All that `write_sum` uses of the rows, one entry per row."""
        return iter(self.gradients.values())

    @torch.no_grad()
    def write_sum(self, factors: Tensor) -> None:
        """Write the sum of the gradients, example i scaled by `factors[i]`, into the views."""
        for name, gradients in self.gradients.items():
            torch.mv(gradients.t(), factors.double(), out=self.views[id(self.parameters[name])].view(-1))
        self.gradients = {}
