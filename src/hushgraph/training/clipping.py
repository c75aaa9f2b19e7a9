"""The clipped gradient sum of a batch: the one quantity of the private data that a training step may use.

Formal guarantee: let one row of a batch become null (or the batch, in random order, go without it). Then
`ClippedGradient.sum`, each entry rounded to a multiple of `grid`, changes by at most `max_grad_norm` in L2 over all
parameters together: in exact arithmetic on the numbers that are returned, whatever the row holds. Proof:
docs/proofs/gradient.md. Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient norm below the clip norm | the gradient counts as it is |
| gradient norm above the clip norm | scaled down to it; it is the bound less what rounding may add (`rounding`) |
| gradient not finite (NaN, infinity, or a norm beyond the floating-point range) | the example counts as zero |
| layer that mixes rows, or is unknown | refused when the engine is built |
| more than 2^24 rows, or 2^13 pieces, in a batch | refused |
| a machine on which the place of a row matters to the last bit | examples are taken one at a time |
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.rows import Rows, narrow_rows, take_rows
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.training.alike import one_thread, treats_rows_alike
from hushgraph.training.ghost_clipping import GhostGradient, NoGhostNorms, PerSampleGradient, has_ghost_norms
from hushgraph.training.losses import RowLoss, row_loss
from hushgraph.training.manual_backward import ManualGradient, build_steps
from hushgraph.training.optimizers import trainable, views_of
from hushgraph.training.rounding import (
    LARGE_BLOCK,
    MOST_PIECES,
    MOST_ROWS,
    PIECE_ROWS,
    SMALL_BLOCK,
    VECTOR_ROWS,
    block_slack,
    check_size,
    checked_sum,
    clip_factors,
    clip_norm,
    double_slack,
    norm_slack,
    rows_together,
)

Method = Literal["manual", "ghost", "per-sample"]
METHODS = ("manual", "ghost", "per-sample")

# Gradients shorter than this share of the bound are not lengthened all the way: they are mostly rounding.
_SHORTEST = 0.01
_MANY_ROWS = 1000
# Per-sample gradients are formed for at most this many numbers at a time (64 MiB in single precision).
_PER_SAMPLE_NUMBERS = 2**24


class _Strategy(Protocol):
    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor: ...

    def per_row(self) -> Iterable[Tensor]: ...

    def write_sum(self, factors: Tensor) -> None: ...


class ClippedGradient:
    """Sums of per-example gradients of `module`, each clipped over all parameters together.

    `max_grad_norm` bounds what one example can change, after rounding to multiples of `grid` (0: no rounding follows).
    The fastest method that applies is chosen: "manual" (backward pass written out by hand), "ghost" (autograd plus
    norms in closed form), "per-sample" (gradients formed outright); all give the same sum up to rounding. `microbatch`
    bounds the rows processed at a time (a multiple of 32, or one) and changes nothing else. `loss` is "cross_entropy"
    or a function from scores and labels to one loss per row. With `normalize`, short gradients are lengthened almost to
    the bound too (by bound / (norm + bound / 100)), so that every example has about the same weight. `expected_rows` is
    the usual size of a batch (a public number): batches are filled up to pieces of one shape, made for this size.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        max_grad_norm: float,
        grid: float = 0.0,
        loss: str | RowLoss = "cross_entropy",
        microbatch: int | None = None,
        method: Method | None = None,
        normalize: bool = False,
        expected_rows: float = 256.0,
    ) -> None:
        InputError.collect(_problems(max_grad_norm, microbatch, method))
        require_rowwise(module)
        self.module, self.loss, self.normalize = module, row_loss(loss), normalize
        self.many_rows = expected_rows >= _MANY_ROWS
        parameters = trainable(module)
        if not parameters:
            raise InputError("expected a module with trainable parameters; got none; there is nothing to clip")
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters))}
        self.block = LARGE_BLOCK if self.many_rows else SMALL_BLOCK
        self.most_rows = min(microbatch or PIECE_ROWS, rows_together(expected_rows, self.block))
        self._piece_rows: int | None = None
        slack = norm_slack(widest_layer(module)) + block_slack(self.block, self.block) + double_slack()
        self.max_grad_norm = float(max_grad_norm)
        self.clip_norm = clip_norm(max_grad_norm, slack, grid, self.num_parameters)
        self._use(method or self._best_method(plain_loss=loss == "cross_entropy"))

    @property
    def num_parameters(self) -> int:
        """The length of the sum."""
        return self.buffer.numel()

    def _best_method(self, plain_loss: bool) -> Method:
        if not has_ghost_norms(self.module):
            return "per-sample"
        if plain_loss and build_steps(self.module, self.views) is not None:
            return "manual"
        return "ghost"

    def _use(self, method: Method) -> None:
        self.method: Method = method
        self.strategy: _Strategy
        if method == "manual":
            steps = build_steps(self.module, self.views, many_rows=self.many_rows)
            if steps is None:
                raise InputError("expected layers with a manual backward; got others; use method=None to choose freely")
            self.strategy = ManualGradient(steps)
        elif method == "ghost":
            self.strategy = GhostGradient(self.module, self.loss, self.views, self.block)
        else:
            self.strategy = PerSampleGradient(self.module, self.loss, self.views)

    def sum(
        self, rows: Rows, labels: Tensor, *, size: int | None = None, input_square_norms: Tensor | None = None
    ) -> Tensor:
        """The clipped sum over the first `size` rows (None: all), in the order of the module's trainable parameters.

        Rows beyond `size` only fill up pieces of `piece_rows`; where they are missing they are added.
        `input_square_norms` are the squared norms of the rows over their last dimension, or of each of their parts, for
        a caller that knows them.
        """
        size = len(rows) if size is None else size
        if size == 0:
            return torch.zeros_like(self.buffer)
        with one_thread(), torch.no_grad():
            total = self._sum(rows, labels, size, input_square_norms)
        return checked_sum(total, size, self.max_grad_norm)

    def _sum(self, rows: Rows, labels: Tensor, size: int, known: Tensor | None) -> Tensor:
        length, count = self.piece_rows(rows, labels), len(rows)
        check_size(size, min(MOST_ROWS, length * MOST_PIECES))
        if missing := -count % length:
            places = torch.arange(count + missing).clamp_(max=count - 1)
            rows, labels = take_rows(rows, places), labels[places]
            known = None if known is None else known[places]
        if count + missing == length:
            return self._clipped(rows, labels, known, size).clone()
        total = torch.zeros_like(self.buffer)
        for start in range(0, size, length):
            part = slice(start, start + length)
            piece, norms = narrow_rows(rows, start, length), None if known is None else known[part]
            total += self._clipped(piece, labels[part], norms, min(size - start, length))
        return total

    def piece_rows(self, rows: Rows, labels: Tensor) -> int:
        """How many rows are processed together, always: chosen before any is, by rows like these and their labels."""
        if self._piece_rows is None:
            with one_thread(), torch.no_grad():
                self._piece_rows = self._choose_piece(rows, labels)
        return self._piece_rows

    def _choose_piece(self, rows: Rows, labels: Tensor) -> int:
        count, tried = self._largest_piece(), None
        while count not in (1, tried):  # a method that turns out not to apply is changed, and so is the number
            tried = count
            alike = treats_rows_alike(self.module, rows, labels, count, self._per_row)
            count = self._largest_piece() if alike else 1
        if count < self._largest_piece():
            warnings.warn("the place of a row matters on this machine: examples are taken one at a time", stacklevel=2)
        return count

    def _largest_piece(self) -> int:
        most = self.most_rows
        if self.method == "per-sample":
            most = min(most, _PER_SAMPLE_NUMBERS // self.num_parameters)
        return max(1, most // VECTOR_ROWS * VECTOR_ROWS)

    def _per_row(self, rows: Rows, labels: Tensor) -> list[Tensor]:
        """All that is computed per row."""
        squares = self._square_norms(rows, labels, None)
        return [squares, *self.strategy.per_row()]

    def _clipped(self, rows: Rows, labels: Tensor, known: Tensor | None, size: int) -> Tensor:
        """The clipped sum of rows that are processed together; the result is overwritten by the next call."""
        squares = self._square_norms(rows, labels, known)
        factors: Tensor | None
        if math.isfinite(float(squares.max())):
            factors = self._factors(squares.sqrt_())
        else:
            factors = self._factors_of_finite(rows, labels, known, torch.isfinite(squares))
        if factors is None:
            return self.buffer.zero_()
        if size < len(rows):
            factors[size:] = 0.0
        self.strategy.write_sum(factors)
        return self.buffer

    def _square_norms(self, rows: Rows, labels: Tensor, known: Tensor | None) -> Tensor:
        try:
            return self.strategy.square_norms(rows, labels, known)
        except NoGhostNorms:
            self._use("per-sample")
            return self.strategy.square_norms(rows, labels, known)

    def _factors_of_finite(self, rows: Rows, labels: Tensor, known: Tensor | None, finite: Tensor) -> Tensor | None:
        """Run again with another row in the place of each example without a finite gradient, which counts as zero.

        Zero times NaN would still be NaN. All others keep their places. None: no example has a finite gradient.
        """
        while bool(finite.any()):
            places = torch.where(finite, torch.arange(len(finite)), int(finite.nonzero()[0]))
            squares = self._square_norms(
                take_rows(rows, places), labels[places], None if known is None else known[places]
            )
            if math.isfinite(float(squares.max())):
                return self._factors(squares.sqrt_()).mul_(finite)
            finite = finite & torch.isfinite(squares)
        return None

    def _factors(self, norms: Tensor) -> Tensor:
        """What to scale each example by."""
        if self.normalize:
            return norms.add(_SHORTEST * self.clip_norm).reciprocal_().mul_(self.clip_norm)
        return clip_factors(norms, self.clip_norm)


def widest_layer(module: nn.Module) -> int:
    """How many squares are added up for one example's norm, at most: inputs and outputs of a layer, and all layers."""
    shapes = [p.shape for p in module.parameters()]
    return max(sum(shape) for shape in shapes) + len(shapes)


def _problems(max_grad_norm: float, microbatch: int | None, method: str | None) -> list[str]:
    problems = []
    if not (math.isfinite(max_grad_norm) and max_grad_norm > 0):
        problems.append(f"expected a finite max_grad_norm > 0; got {max_grad_norm}; 1.0 is usual")
    if microbatch is not None and microbatch < 1:
        problems.append(f"expected microbatch >= 1 or None; got {microbatch}; None takes the batch in one piece")
    if method is not None and method not in METHODS:
        problems.append(f"expected a method; got '{method}'; {did_you_mean(method, METHODS)}")
    return problems
