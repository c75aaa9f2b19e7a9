"""The clipped gradient sum of a batch: the one quantity of the private data that a training step may use.

Formal guarantee: adding or removing one row changes `ClippedGradient.sum` by at most `max_grad_norm` in L2, over all
parameters together, whatever the row holds. Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient norm below the bound | the gradient counts as it is |
| gradient norm above the bound | scaled down to the bound (less one part in a million, for rounding) |
| gradient not finite (NaN, infinity, or a norm beyond the floating-point range) | the example counts as zero |
| layer that mixes rows, or is unknown | refused when the engine is built |
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows, narrow_rows, take_rows
from hushgraph.errors import HushgraphError, InputError, did_you_mean
from hushgraph.training.flat import trainable, views_of
from hushgraph.training.ghost_clipping import ClosedFormGradient, NotClosedForm, has_closed_form
from hushgraph.training.losses import RowLoss, row_loss
from hushgraph.training.manual_backward import ChainGradient, build_chain
from hushgraph.training.per_sample_grad import PerExampleGradient
from hushgraph.training.rowwise import require_rowwise

Method = Literal["chain", "closed-form", "per-example"]
METHODS = ("chain", "closed-form", "per-example")

# Norms are computed in single precision: aim this far below the bound, and check that the result is not above it.
_ROUNDING = 1e-6
# Gradients shorter than this share of the bound are not lengthened all the way: they are mostly rounding.
_SHORTEST = 0.01
# Per-example gradients are formed for at most this many numbers at a time (256 MiB in single precision).
_PER_EXAMPLE_NUMBERS = 2**26


class _Strategy(Protocol):
    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor: ...

    def write_sum(self, factors: Tensor) -> None: ...


class ClippedGradient:
    """Sums of per-example gradients of `module`, each clipped to `max_grad_norm` over all parameters together.

    The fastest method that applies is chosen: "chain" (written out by hand), "closed-form" (autograd plus closed-form
    norms), "per-example" (gradients formed outright); all give the same sum. `microbatch` bounds the rows processed at
    a time and changes nothing else. `loss` is "cross_entropy" or a function from scores and labels to one loss per row.
    With `normalize`, short gradients are lengthened almost to the bound too (by bound / (norm + bound / 100)), so that
    every example has about the same weight.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        max_grad_norm: float,
        loss: str | RowLoss = "cross_entropy",
        microbatch: int | None = None,
        method: Method | None = None,
        normalize: bool = False,
    ) -> None:
        InputError.collect(_problems(max_grad_norm, microbatch, method))
        self.normalize = normalize
        require_rowwise(module)
        self.module, self.max_grad_norm, self.loss = module, float(max_grad_norm), row_loss(loss)
        self.microbatch = microbatch
        parameters = trainable(module)
        if not parameters:
            raise InputError("expected a module with trainable parameters; got none; there is nothing to clip")
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters))}
        self._use(method or self._best_method(plain_loss=loss == "cross_entropy"))

    @property
    def num_parameters(self) -> int:
        """The length of the sum."""
        return self.buffer.numel()

    def _best_method(self, plain_loss: bool) -> Method:
        if not has_closed_form(self.module):
            return "per-example"
        if plain_loss and build_chain(self.module, self.views) is not None:
            return "chain"
        return "closed-form"

    def _use(self, method: Method) -> None:
        self.method: Method = method
        self.strategy: _Strategy
        if method == "chain":
            steps = build_chain(self.module, self.views)
            if steps is None:
                raise InputError("expected a chain of known layers; got another; use method=None to choose freely")
            self.strategy = ChainGradient(steps)
        elif method == "closed-form":
            self.strategy = ClosedFormGradient(self.module, self.loss, self.views)
        else:
            self.strategy = PerExampleGradient(self.module, self.loss, self.views)

    def sum(self, rows: Rows, labels: Tensor, *, input_square_norms: Tensor | None = None) -> Tensor:
        """The clipped sum over `rows`, as one vector in the order of the module's trainable parameters.

        `input_square_norms` are the squared norms of the rows over their last dimension, for a caller that knows them.
        """
        examples, size = len(rows), self._rows_at_a_time(len(rows))
        if examples <= size:
            return self._clipped(rows, labels, input_square_norms).clone()
        total = torch.zeros_like(self.buffer)
        for start in range(0, examples, size):
            length = min(size, examples - start)
            known = None if input_square_norms is None else input_square_norms[start : start + length]
            total += self._clipped(narrow_rows(rows, start, length), labels[start : start + length], known)
        return total

    def _rows_at_a_time(self, examples: int) -> int:
        size = self.microbatch or max(1, examples)
        if self.method == "per-example":
            size = min(size, max(1, _PER_EXAMPLE_NUMBERS // self.num_parameters))
        return size

    def _clipped(self, rows: Rows, labels: Tensor, known: Tensor | None) -> Tensor:
        """The clipped sum of rows that are processed together; the result is overwritten by the next call."""
        if len(rows) == 0:
            return self.buffer.zero_()
        square_norms = self._square_norms(rows, labels, known)
        if not math.isfinite(float(square_norms.max())):
            return self._without(~torch.isfinite(square_norms), rows, labels, known)
        self.strategy.write_sum(self._factors(square_norms.sqrt_()))
        return self.buffer

    def _square_norms(self, rows: Rows, labels: Tensor, known: Tensor | None) -> Tensor:
        try:
            return self.strategy.square_norms(rows, labels, known)
        except NotClosedForm:
            self._use("per-example")
            return self.strategy.square_norms(rows, labels, known)

    def _without(self, bad: Tensor, rows: Rows, labels: Tensor, known: Tensor | None) -> Tensor:
        """Leave out the examples whose gradient is not finite: zero times NaN would still be NaN."""
        keep = (~bad).nonzero().squeeze(1)
        return self._clipped(take_rows(rows, keep), labels[keep], None if known is None else known[keep])

    def _factors(self, norms: Tensor) -> Tensor:
        """What to scale each example by; checked on the very numbers that are used."""
        bound = self.max_grad_norm
        if self.normalize:
            factors = norms.add(_SHORTEST * bound).reciprocal_().mul_(bound * (1.0 - _ROUNDING))
        else:
            factors = norms.reciprocal().mul_(bound * (1.0 - _ROUNDING)).clamp_(max=1.0)
        largest = float((norms * factors).max())
        if not largest <= bound * (1.0 + _ROUNDING):
            raise HushgraphError(f"expected clipped norms of at most {bound}; got {largest}; nothing was released")
        return factors


def _problems(max_grad_norm: float, microbatch: int | None, method: str | None) -> list[str]:
    problems = []
    if not (math.isfinite(max_grad_norm) and max_grad_norm > 0):
        problems.append(f"expected a finite max_grad_norm > 0; got {max_grad_norm}; 1.0 is usual")
    if microbatch is not None and microbatch < 1:
        problems.append(f"expected microbatch >= 1 or None; got {microbatch}; None takes the batch in one piece")
    if method is not None and method not in METHODS:
        problems.append(f"expected a method; got '{method}'; {did_you_mean(method, METHODS)}")
    return problems
