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
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows, narrow_rows, take_rows
from hushgraph.errors import InputError, did_you_mean
from hushgraph.nn.rowwise import require_rowwise
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
    block_slack,
    check_size,
    checked_sum,
    clip_factors,
    clip_norm,
    double_slack,
    norm_slack,
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

    def write_sum(self, factors: Tensor) -> None: ...


class ClippedGradient:
    """Sums of per-example gradients of `module`, each clipped over all parameters together.

    `max_grad_norm` bounds what one example can change, after rounding to multiples of `grid` (0: no rounding follows).
    The fastest method that applies is chosen: "manual" (backward pass written out by hand), "ghost" (autograd plus
    norms in closed form), "per-sample" (gradients formed outright); all give the same sum up to rounding. `microbatch`
    bounds the rows processed at a time and changes nothing else. `loss` is "cross_entropy" or a function from scores
    and labels to one loss per row. With `normalize`, short gradients are lengthened almost to the bound too (by
    bound / (norm + bound / 100)), so that every example has about the same weight. `expected_rows` is the usual size of
    a batch (a public number): small batches are added up in other ways than large ones.
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
        expected_rows: float = math.inf,
    ) -> None:
        InputError.collect(_problems(max_grad_norm, microbatch, method))
        require_rowwise(module)
        self.module, self.loss, self.normalize = module, row_loss(loss), normalize
        self.many_rows = expected_rows >= _MANY_ROWS
        self.microbatch = min(microbatch or PIECE_ROWS, PIECE_ROWS)
        parameters = trainable(module)
        if not parameters:
            raise InputError("expected a module with trainable parameters; got none; there is nothing to clip")
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters))}
        self.block = LARGE_BLOCK if self.many_rows else SMALL_BLOCK
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

        Rows beyond `size` only fill up the shape. `input_square_norms` are the squared norms of the rows over their
        last dimension, or of each of their parts, for a caller that knows them.
        """
        size = len(rows) if size is None else size
        length = self._rows_at_a_time()
        check_size(len(rows), min(MOST_ROWS, length * MOST_PIECES))
        if len(rows) <= length:
            total = self._clipped(rows, labels, input_square_norms, size).clone()
            return checked_sum(total, size, self.max_grad_norm)
        total = torch.zeros_like(self.buffer)
        for start in range(0, len(rows), length):
            stop = min(start + length, len(rows))
            known = None if input_square_norms is None else input_square_norms[start:stop]
            piece = narrow_rows(rows, start, stop - start)
            total += self._clipped(piece, labels[start:stop], known, max(0, min(size, stop) - start))
        return checked_sum(total, size, self.max_grad_norm)

    def _rows_at_a_time(self) -> int:
        if self.method != "per-sample":
            return self.microbatch
        return min(self.microbatch, max(1, _PER_SAMPLE_NUMBERS // self.num_parameters))

    def _clipped(self, rows: Rows, labels: Tensor, known: Tensor | None, size: int) -> Tensor:
        """The clipped sum of rows that are processed together; the result is overwritten by the next call."""
        if size == 0:
            return self.buffer.zero_()
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
