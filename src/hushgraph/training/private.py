"""Private training: clipped, noised gradient steps (DP-SGD, DP-Adam) on one flat parameter vector.

Nothing here charges a ledger: the vault that owns the rows charges for `steps` noisy sums drawn by this sampler before
it calls `train_privately`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows, narrow_rows, row_square_norms, take_rows
from hushgraph.errors import HushgraphError, InputError
from hushgraph.noise.sampler import Noise, PoissonSampler
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.flat import FlatParameters
from hushgraph.training.losses import RowLoss, check_labels
from hushgraph.training.optimizers import OptimizerName, make_optimizer

# Steps are prepared together up to about this many numbers, where a row counts as at least so many (measured).
_NUMBERS_AT_ONCE, _ROW_COST = 2**19, 64


def train_privately(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    *,
    sampler: PoissonSampler,
    steps: int,
    max_grad_norm: float,
    noise_std: float,
    noise: Noise,
    lr: float,
    optimizer: OptimizerName = "adam",
    weight_decay: float = 0.0,
    loss: str | RowLoss = "cross_entropy",
    microbatch: int | None = None,
    allow_no_noise: bool = False,
    normalize: bool = False,
    average_last: float = 0.0,
    on_step: Callable[[int, int], None] | None = None,
) -> None:
    """Train `module` in place with `steps` noisy clipped gradient sums; the final weights are the release.

    Each step draws a Poisson batch, clips every example's gradient to `max_grad_norm`, adds Gaussian noise of
    standard deviation `noise_std` (absolute: noise multiplier times the bound) to the sum, divides by the *expected*
    batch size and updates. `noise` must be a stream that nobody else draws from. `on_step(step, steps)` is for
    progress bars and learns nothing. Zero noise is refused unless `allow_no_noise=True` says that no privacy is
    claimed.

    `normalize` lengthens short gradients to the bound as well (the bound, hence the cost, is the same); `average_last`
    is the share of the steps whose weights are averaged at the end.
    """
    _check(rows, labels, sampler, steps, noise_std, allow_no_noise)
    engine = ClippedGradient(module, loss=loss, max_grad_norm=max_grad_norm, microbatch=microbatch, normalize=normalize)
    batches = _Batches(rows, labels, sampler, noise, steps)
    was_training = module.training
    module.train()
    with FlatParameters(module) as flat, _without_autograd(engine):
        noise_variance = (noise_std / sampler.expected_batch_size) ** 2
        update = make_optimizer(optimizer, flat.vector, lr, weight_decay, noise_variance=noise_variance)
        tail = _Tail(flat.vector, steps, average_last)
        for step, (x, y, square_norms) in enumerate(batches):
            total = engine.sum(x, y, input_square_norms=square_norms)
            if noise_std > 0:
                total += noise.gaussian((engine.num_parameters,), noise_std)
            update.step(total.div_(sampler.expected_batch_size))
            tail.add(step)
            if on_step is not None:
                on_step(step + 1, steps)
        tail.use()
        if not bool(torch.isfinite(flat.vector).all()):
            raise HushgraphError("expected finite weights after training; got others; lower the learning rate")
    module.train(was_training)


def _without_autograd(engine: ClippedGradient) -> AbstractContextManager[Any]:
    """Inference mode, which makes small operations cheaper still, where no gradient comes from autograd."""
    return torch.inference_mode() if engine.method == "chain" else torch.no_grad()


class _Tail:
    """The mean of the weights after the last steps. Every one of them is released already: this is free."""

    def __init__(self, vector: Tensor, steps: int, share: float) -> None:
        self.vector, self.count = vector, 0
        self.first = steps - round(share * steps)
        self.mean = torch.zeros_like(vector)

    def add(self, step: int) -> None:
        if step >= self.first:
            self.count += 1
            self.mean.lerp_(self.vector, 1.0 / self.count)

    def use(self) -> None:
        if self.count:
            self.vector.copy_(self.mean)


class _Batches:
    """Poisson batches with their labels and input norms, gathered for several steps at once when they are small."""

    def __init__(self, rows: Rows, labels: Tensor, sampler: PoissonSampler, noise: Noise, steps: int) -> None:
        self.rows, self.labels, self.sampler, self.noise, self.steps = rows, labels, sampler, noise, steps
        self.square_norms = row_square_norms(rows)
        width = rows[0].numel() if isinstance(rows, Tensor) and len(rows) else 1
        self.at_once = max(1, int(_NUMBERS_AT_ONCE / (sampler.expected_batch_size * max(width, _ROW_COST))))

    def __iter__(self) -> Iterator[tuple[Rows, Tensor, Tensor]]:
        for done in range(0, self.steps, self.at_once):
            batches = self.sampler.draw_several(self.noise, min(self.at_once, self.steps - done))
            index = torch.cat(batches)
            rows, labels = take_rows(self.rows, index), self.labels.index_select(0, index)
            square_norms, start = self.square_norms.index_select(0, index), 0
            for length in map(len, batches):
                end = start + length
                yield narrow_rows(rows, start, length), labels[start:end], square_norms[start:end]
                start = end


def _check(
    rows: Rows, labels: Tensor, sampler: PoissonSampler, steps: int, noise_std: float, allow_no_noise: bool
) -> None:
    problems = []
    if len(rows) != sampler.num_examples:
        problems.append(
            f"expected {sampler.num_examples} rows, as the sampler says; got {len(rows)}; pass the same set"
        )
    if steps < 0:
        problems.append(f"expected steps >= 0; got {steps}; 0 trains nothing")
    if not (math.isfinite(noise_std) and noise_std >= 0) or (noise_std == 0 and not allow_no_noise):
        problems.append(
            f"expected a finite noise_std > 0; got {noise_std}; for a run without privacy pass allow_no_noise=True"
        )
    InputError.collect(problems)
    check_labels(labels, len(rows))
