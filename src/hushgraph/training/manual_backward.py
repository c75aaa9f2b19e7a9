"""Whole models as chains of written-out layers, for private and plain training.

What automatic differentiation would do in general is done here by hand for the common shapes, because at the size of
these models its overhead costs more than the arithmetic. Which layers a model consists of is declared beside its class
(`hushgraph.nn.rowwise.unfolds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import Rows
from hushgraph.nn.layers import Dropout, L2Normalize, Linear
from hushgraph.nn.rowwise import Branches, unfolded
from hushgraph.training.losses import cross_entropy_gradient
from hushgraph.training.manual_batch_norm import BatchNormStep, BatchSeluStep
from hushgraph.training.manual_layers import (
    ACTIVATIONS,
    ActivationStep,
    DropoutStep,
    LinearStep,
    NormalizeStep,
    RowNormStep,
    Scratch,
    Step,
    Views,
)


class BranchesStep:
    """One chain per part of a row, `[n, parts, width]` or rows with `parts`; their outputs side by side or added."""

    in_place, output_is_free = False, True

    def __init__(self, branches: list[list[Step]], mode: str, widths: list[int], like: Tensor) -> None:
        self.branches, self.mode, self.widths, self.like = branches, mode, widths, like
        self.width = sum(widths)
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Any, square_norms: Tensor | None) -> Tensor:
        """Each part through its own chain, then combined."""
        known: Sequence[Tensor | None] = [None] * len(self.branches)
        if square_norms is not None and square_norms.dim() == 2:
            known = square_norms.unbind(1)
        parts = list(zip(self.branches, x.unbind(1) if isinstance(x, Tensor) else x.parts, known))
        if self.mode == "sum":
            return torch.stack([run_forward(*part) for part in parts]).sum(0)
        like = x if isinstance(x, Tensor) else self.like
        shape = (x.shape[0], self.width)
        out = self.scratch("output", like, *shape)
        out = like.new_empty(shape) if out is None else out
        for (branch, part, norms), place in zip(parts, out.split_with_sizes(self.widths, 1)):
            _run_forward_into(place, branch, part, norms)
        return out

    def backward(self, grad: Tensor, first: bool) -> Tensor:
        """Each branch's part of the gradient through its own chain."""
        copies = [grad.clone() for _ in self.branches] if self.mode == "sum" else None
        pieces = copies or grad.split_with_sizes(self.widths, 1)
        for branch, piece in zip(self.branches, pieces):
            run_backward(branch, piece)
        return grad

    def square_norms(self, total: Tensor) -> None:
        """Those of all branches."""
        for branch in self.branches:
            for step in branch:
                step.square_norms(total)

    def write(self, factors: Tensor | None) -> None:
        """Those of all branches."""
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


def _run_forward_into(out: Tensor, steps: list[Step], x: Rows, square_norms: Tensor | None) -> None:
    """Push rows through the chain and leave the result in `out`."""
    if steps and isinstance(steps[-1], LinearStep):
        before = run_forward(steps[:-1], x, square_norms) if len(steps) > 1 else x
        result = steps[-1].forward(before, square_norms if len(steps) == 1 else None, out=out)
        if result is not out:
            out.copy_(result)
    else:
        out.copy_(run_forward(steps, x, square_norms))


def run_backward(steps: list[Step], grad: Tensor) -> None:
    """Push the gradient of the scores back through the chain."""
    for i in range(len(steps) - 1, -1, -1):
        grad = steps[i].backward(grad, i == 0)


def build_steps(
    module: nn.Module, views: Views, *, batch_norm: bool = False, many_rows: bool = True
) -> list[Step] | None:
    """The module as a chain of written-out steps, or None when it holds something that has none.

    `batch_norm=True` admits batch norm; such a chain has no per-example gradients. `many_rows` says what to expect of
    the batches: it only matters for speed.
    """
    steps = None if shares_parameters(module) else _build(module, views, batch_norm)
    if steps is None:
        return None
    steps = _fuse(steps, views)
    _connect(steps, Scratch(many_rows))
    return steps


def _fuse(steps: list[Step], views: Views) -> list[Step]:
    """The same chain with batch norm and its neighbors (unit rows, SELU) as one step where they stand in a row."""
    fused: list[Step] = []
    for i, step in enumerate(steps):
        before = fused[-1] if fused else None
        after = steps[i + 1] if i + 1 < len(steps) else None
        if isinstance(step, BranchesStep):
            step.branches = [_fuse(branch, views) for branch in step.branches]
        if isinstance(step, BatchNormStep) and isinstance(before, NormalizeStep):
            fused[-1] = BatchNormStep(step.layer, views, unit_rows=True)
        elif _is_selu(step) and isinstance(before, BatchNormStep) and isinstance(after, LinearStep):
            fused[-1] = BatchSeluStep(before.layer, views, before.unit_rows)
            after.input_scale = 1.0 / BatchSeluStep.OUTPUT_SCALE
        else:
            fused.append(step)
    return fused


def _is_selu(step: Step) -> bool:
    return isinstance(step, ActivationStep) and (step.apply, step.derive) == ACTIVATIONS[nn.SELU]


def _connect(steps: list[Step], temporary: Scratch) -> None:
    """Let the steps share memory where that is safe."""
    for before, step in pairwise(steps):
        step.in_place = before.output_is_free
    for step in steps:
        step.temporary = temporary
        if isinstance(step, BranchesStep):
            for branch in step.branches:
                _connect(branch, temporary)


def shares_parameters(module: nn.Module) -> bool:
    """Whether some layer with parameters, or some parameter, stands in two places of the module.

    The squared norm of a sum of two gradients is not the sum of their squared norms, so sharing has no closed form.
    """
    seen: list[int] = []
    for _, layer in module.named_modules(remove_duplicate=False):
        seen += [id(p) for p in layer.parameters(recurse=False)]
    return len(seen) != len(set(seen))


def _build(module: nn.Module | Branches, views: Views, batch_norm: bool) -> list[Step] | None:
    if isinstance(module, Branches):
        return _build_branches(module, views, batch_norm)
    inside = unfolded(module)
    return _build_layer(module, views, batch_norm) if inside is None else _join(inside, views, batch_norm)


def _build_layer(layer: nn.Module, views: Views, batch_norm: bool) -> list[Step] | None:
    if type(layer) is nn.Identity or (type(layer) in (Dropout, nn.Dropout) and layer.p == 0.0):
        return []
    if type(layer) is Dropout and not batch_norm:
        return [DropoutStep(layer)]  # type: ignore[list-item]
    if type(layer) in (nn.Linear, Linear):
        return [LinearStep(layer, views)]  # type: ignore[arg-type]
    if type(layer) in ACTIVATIONS:
        return [ActivationStep(*ACTIVATIONS[type(layer)])]  # type: ignore[list-item]
    if type(layer) is L2Normalize:
        return [NormalizeStep()]  # type: ignore[list-item]
    if type(layer) is nn.LayerNorm or (type(layer) is nn.GroupNorm and layer.num_groups == 1):
        return [RowNormStep(layer, views)]  # type: ignore[list-item]
    if batch_norm and type(layer) is nn.BatchNorm1d and _is_usual(layer):
        return [BatchNormStep(layer, views)]  # type: ignore[list-item]
    return None


def _is_usual(layer: nn.BatchNorm1d) -> bool:
    return layer.affine and layer.track_running_stats and layer.momentum is not None


def _join(parts: Sequence[nn.Module | Branches], views: Views, batch_norm: bool) -> list[Step] | None:
    steps: list[Step] = []
    for part in parts:
        found = _build(part, views, batch_norm)
        if found is None:
            return None
        steps += found
    return steps


def _build_branches(module: Branches, views: Views, batch_norm: bool) -> list[Step] | None:
    if module.combine not in ("cat", "sum"):
        return None
    branches = [_build(base, views, batch_norm) for base in module.bases]
    widths = [_width(base) for base in module.bases]
    if any(branch is None for branch in branches) or None in widths:
        return None
    like = next((p.detach() for base in module.bases for p in base.parameters()), torch.empty(0))
    return [BranchesStep(branches, module.combine, widths, like)]  # type: ignore[arg-type]


def _width(base: nn.Module) -> int | None:
    """The number of columns that a module puts out, if it says so."""
    width = getattr(base, "out_features", None)
    return width if isinstance(width, int) else None


class ManualGradient:
    """Gradients of cross entropy through a written-out chain: per example (the caller turns autograd off), or plain."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor:
        """Each example's squared gradient norm; keeps what `write_sum` needs."""
        scores = run_forward(self.steps, rows, input_square_norms)
        run_backward(self.steps, cross_entropy_gradient(scores, labels))
        total = scores.new_zeros(scores.shape[0])
        for step in self.steps:
            step.square_norms(total)
        return total

    def per_row(self) -> Iterator[Tensor]:
        """All that `write_sum` uses of the rows, one entry per row; valid until the next call."""
        return _kept(self.steps)

    def write_sum(self, factors: Tensor) -> None:
        """Write the sum of the gradients, example i scaled by `factors[i]`, into the views."""
        for step in self.steps:
            step.write(factors)

    @torch.no_grad()
    def write_mean(self, rows: Rows, labels: Tensor, copies: Tensor | None = None) -> None:
        """Write the gradient of the mean loss over `rows`, as plain training uses it, into the views.

        `copies` says how many equal rows each one stands for (the same tensor as given to `set_copies`).
        """
        scores = run_forward(self.steps, rows, None)
        count = len(scores) if copies is None else float(copies.sum())
        grad = cross_entropy_gradient(scores, labels).div_(count)
        for i in range(len(self.steps) - 1, -1, -1):
            before = self.steps[i].backward(grad, i == 0)
            self.steps[i].write(copies)  # at once, while its gradient is still in the cache
            grad = before

    @torch.no_grad()
    def scores(self, rows: Rows) -> Tensor:
        """The scores at inference, for a chain that is used for nothing else: batch norm uses running statistics."""
        set_evaluating(self.steps)
        return run_forward(self.steps, rows, None)


def _kept(steps: list[Step]) -> Iterator[Tensor]:
    for step in steps:
        if isinstance(step, BranchesStep):
            for branch in step.branches:
                yield from _kept(branch)
        elif isinstance(step, LinearStep | RowNormStep):
            yield step.grad
            inputs = step.x if isinstance(step, LinearStep) else step.standard
            if isinstance(inputs, Tensor):
                yield inputs


def set_evaluating(steps: list[Step]) -> None:
    """Let batch norm use its running statistics from now on."""
    for step in _batch_norms(steps):
        step.evaluating = True


def set_copies(steps: list[Step], copies: Tensor) -> None:
    """Let batch norm count row i `copies[i]` times from now on."""
    for step in _batch_norms(steps):
        step.copies = copies


def _batch_norms(steps: list[Step]) -> Iterator[BatchNormStep]:
    for step in steps:
        if isinstance(step, BatchNormStep):
            yield step
        elif isinstance(step, BranchesStep):
            for branch in step.branches:
                yield from _batch_norms(branch)
