"""Plain training, for data that is public under the unit in force (or for baselines that claim nothing)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.data.rows import Rows, SparseRows, take_rows
from hushgraph.errors import InputError
from hushgraph.nn.layers import fresh_generator
from hushgraph.training.flat import FlatParameters, views_of
from hushgraph.training.losses import RowLoss, check_labels, row_loss
from hushgraph.training.manual_backward import ChainGradient, build_chain, set_copies
from hushgraph.training.manual_layers import LinearStep, Step
from hushgraph.training.optimizers import OptimizerName, make_optimizer
from hushgraph.training.repeats import merge_repeats

BestBy = Literal["accuracy", "loss"]
BEST_BY: tuple[BestBy, ...] = get_args(BestBy)


def train_plainly(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    train: Tensor | None = None,
    *,
    epochs: int,
    lr: float,
    optimizer: OptimizerName = "adam",
    weight_decay: float = 0.0,
    loss: str | RowLoss = "cross_entropy",
    val: Tensor | None = None,
    select_best: bool = False,
    best_by: BestBy = "accuracy",
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    on_epoch: Callable[[int, int], None] | None = None,
) -> float | None:
    """Train `module` in place on the rows named by `train` (mask or positions; None: all rows).

    `batch_size=None` is one step per epoch on all training rows; otherwise shuffled minibatches from `generator`. With
    `select_best`, the weights of the epoch with the highest accuracy on `val` (or the lowest mean cross entropy there,
    `best_by="loss"`) are restored and its accuracy is returned: this looks at the validation labels after every epoch,
    so it is only legal where they are public. The module is left in evaluation mode.
    """
    data = _Split(rows, labels, train, batch_size, fresh_generator(generator))
    validation = _Validation(module, rows, labels, val, best_by) if select_best else None
    with FlatParameters(module) as flat:
        gradient = _gradient_of(module, flat, loss, data)
        update = make_optimizer(optimizer, flat.vector, lr, weight_decay)
        module.train()
        for epoch in range(epochs):
            for x, y in data.batches():
                gradient(x, y)
                update.step(flat.gradient)
            if validation is not None:
                validation.look(flat)
            if on_epoch is not None:
                on_epoch(epoch + 1, epochs)
        if validation is not None:
            validation.restore(flat)
    module.eval()
    return validation.accuracy if validation is not None else None


def _gradient_of(
    module: nn.Module, flat: FlatParameters, loss: str | RowLoss, data: _Split
) -> Callable[[Rows, Tensor], None]:
    """A function that writes the gradient of the mean loss to `flat.gradient`: by hand if it can, else by autograd."""
    views = dict(zip(map(id, flat.parameters), views_of(flat.gradient, flat.parameters)))
    steps = build_chain(module, views, batch_norm=True) if loss == "cross_entropy" else None
    if steps is not None:
        copies = data.merge_repeats(steps)
        return partial(ChainGradient(steps).write_mean, copies=copies)
    flat.collect_gradients()
    losses = row_loss(loss)

    def write(x: Rows, y: Tensor) -> None:
        flat.gradient.zero_()
        losses(module(x), y).mean().backward()

    return write


class _Split:
    """The training rows, taken out once, handed out whole or in shuffled minibatches."""

    def __init__(
        self, rows: Rows, labels: Tensor, index: Tensor | None, batch_size: int | None, generator: torch.Generator
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise InputError(f"expected batch_size >= 1 or None; got {batch_size}; None trains on all rows at once")
        self.rows, self.labels = _select(rows, labels, index)
        check_labels(self.labels, len(self.rows))
        if len(self.rows) == 0:
            raise InputError("expected at least one training row; got none; check the training mask")
        self.batch_size, self.generator = batch_size, generator

    def merge_repeats(self, steps: list[Step]) -> Tensor | None:
        """Keep one of equal rows where that saves time; returns how many each stands for."""
        last = steps[-1] if steps else None
        if self.batch_size is not None or not isinstance(self.rows, SparseRows) or not isinstance(last, LinearStep):
            return None
        if self.labels.is_floating_point():
            return None
        merged = merge_repeats(self.rows, self.labels, last.weight.shape[0])
        if merged is None:
            return None
        self.rows, self.labels = merged.rows, merged.labels
        set_copies(steps, merged.copies)
        return merged.copies

    def batches(self) -> Iterator[tuple[Rows, Tensor]]:
        if self.batch_size is None:
            for part in getattr(self.rows, "parts", [self.rows]):
                if isinstance(part, SparseRows):
                    part.keep_transposed()
            yield self.rows, self.labels
            return
        for index in torch.randperm(len(self.rows), generator=self.generator).split(self.batch_size):
            yield take_rows(self.rows, index), self.labels.index_select(0, index)


def _select(rows: Rows, labels: Tensor, index: Tensor | None) -> tuple[Rows, Tensor]:
    if index is None:
        return rows, labels
    if index.dtype is torch.bool:
        index = index.nonzero().squeeze(1)
    return take_rows(rows, index), labels.index_select(0, index)


class _Validation:
    """Accuracy or loss on the validation rows, and the state of the best epoch so far (the first one, among equals)."""

    def __init__(self, module: nn.Module, rows: Rows, labels: Tensor, index: Tensor | None, best_by: BestBy) -> None:
        if index is None:
            raise InputError("expected validation rows for select_best; got none; pass val=")
        if best_by not in BEST_BY:
            raise InputError(f"expected best_by 'accuracy' or 'loss'; got '{best_by}'; choose one")
        self.module, self.by_loss = module, best_by == "loss"
        self.rows, self.labels = _select(rows, labels, index)
        check_labels(self.labels, len(self.rows))
        self.best, self.accuracy = -math.inf, -1.0
        steps = build_chain(module, {}, batch_norm=True)
        self.chain = None if steps is None else ChainGradient(steps)
        self.buffers = list(module.buffers())

    @torch.no_grad()
    def look(self, flat: FlatParameters) -> None:
        """Measure, and keep the state if it is the best so far."""
        scores = self._scores()
        accuracy = share_correct(scores, self.labels)
        merit = -float(F.cross_entropy(scores, self.labels)) if self.by_loss else accuracy
        if merit > self.best:
            self.best, self.accuracy = merit, accuracy
            self.vector = flat.vector.clone()
            self.kept = [buffer.clone() for buffer in self.buffers]

    def _scores(self) -> Tensor:
        if self.chain is not None:
            return self.chain.scores(self.rows)
        self.module.eval()
        scores: Tensor = self.module(self.rows)
        self.module.train()
        return scores

    @torch.no_grad()
    def restore(self, flat: FlatParameters) -> None:
        """Go back to the best epoch."""
        if self.best > -math.inf:
            flat.vector.copy_(self.vector)
            for buffer, kept in zip(self.buffers, self.kept):
                buffer.copy_(kept)


def share_correct(scores: Tensor, labels: Tensor) -> float:
    """The share of rows whose own class scores higher than every other (several times faster than `argmax`)."""
    by_class = scores.t()
    own = by_class.gather(0, labels.unsqueeze(0))
    return float(torch.count_nonzero(by_class >= own, 0).eq_(1).float().mean())
