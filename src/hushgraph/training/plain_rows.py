"""Plain training of a module on rows: full batches or minibatches, by hand where that is possible.

In full-batch training every copy of a row gives the same scores, so one row stands for all its copies: with the mean of
their labels as its label, and their number as its weight. People with the same few one-hot answers have the same row.
The gradient is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import JoinedRows, Rows, SparseRows, dense_rows, for_many_steps, take_rows
from hushgraph.nn.layers import fresh_generator
from hushgraph.training.config import BestBy, Training
from hushgraph.training.loop import BestEpoch, Progress, train_epochs
from hushgraph.training.losses import RowLoss, check_labels, loss_for, mean_loss, row_loss, share_right, weighted_labels
from hushgraph.training.manual_backward import ManualGradient, build_steps, set_copies
from hushgraph.training.manual_layers import LinearStep, Step
from hushgraph.training.minibatches import Minibatches
from hushgraph.training.optimizers import FlatAdam, FlatParameters, views_of

_WORTH_IT = 0.8  # with more distinct rows than this, the weights cost what the rows save


def train(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    index: Tensor | None,
    training: Training,
    *,
    val: Tensor | None = None,
    loss: str | RowLoss | None = None,
    generator: torch.Generator | None = None,
    on_epoch: Progress | None = None,
) -> BestEpoch[float] | None:
    """Train `module` in place on the rows named by `index` (mask or positions; None: all rows), plainly.

    Minibatches are shuffled with `generator`. With `training.select_best` the best state on the rows `val` is kept, and
    the keeper is returned: this looks at the validation labels after every epoch, so it is only legal where they are
    public. Without `loss`, the one that fits the labels. The module is left in evaluation mode.
    """
    loss = loss_for(labels) if loss is None else loss
    if _is_elsewhere(training.device):
        rows, labels, loss = rows_on(rows, training.device), labels.to(training.device), row_loss(loss)
        index, val = (None if one is None else one.to(training.device) for one in (index, val))
    module.to(training.device)
    data = _Split(rows, labels, index, training.batch_size, fresh_generator(generator), training.class_weights)
    best = _best_epoch(module, rows, labels, val, training) if training.select_best else None
    with FlatParameters(module) as flat:
        gradient = _gradient_of(module, flat, loss, data)
        update = training.update(flat.vector, training.epochs * data.batches_per_epoch)

        def epoch() -> None:
            for x, y in data.batches():
                gradient(x, y)
                update.step(flat.gradient)

        module.train()
        train_epochs(epoch, training.epochs, best=best, on_epoch=on_epoch)
    module.cpu().eval()
    return best


def train_in_minibatches(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    index: Tensor,
    val: Tensor,
    training: Training,
    minibatches: Minibatches,
    *,
    generator: torch.Generator | None = None,
    on_look: Progress | None = None,
) -> BestEpoch[float]:
    """The same by Adam on some of the rows at a time: training ends by the rule of `minibatches`."""
    random = fresh_generator(generator)
    best = _best_epoch(module, rows, labels, minibatches.looked_at(val, random), training)
    check_labels(labels.index_select(0, index), len(index))
    with FlatParameters(module) as flat:
        gradient = _gradient_of(module, flat, loss_for(labels), None)
        update = FlatAdam(flat.vector, training.lr, training.weight_decay)

        def step(batch: Tensor) -> None:
            gradient(*_select(rows, labels, batch))
            update.step(flat.gradient)

        module.train()
        minibatches.train(step, minibatches.batches(index, training.epochs, random), update, best, on_look)
    module.eval()
    return best


def _is_elsewhere(device: str) -> bool:
    return torch.device(device).type != "cpu"


def rows_on(rows: Rows, device: str) -> Rows:
    """Rows where a device can read them: dense, and part by part where they are joined."""
    if isinstance(rows, JoinedRows):
        return cast(Rows, JoinedRows([rows_on(part, device) for part in rows.parts]))
    return dense_rows(rows).to(device)


def _gradient_of(
    module: nn.Module, flat: FlatParameters, loss: str | RowLoss, data: _Split | None
) -> Callable[[Rows, Tensor], None]:
    """A function that writes the gradient of the mean loss to `flat.gradient`: by hand if it can, else by autograd."""
    views = dict(zip(map(id, flat.parameters), views_of(flat.gradient, flat.parameters)))
    steps = build_steps(module, views, batch_norm=True) if loss == "cross_entropy" else None
    if steps is not None:
        copies = None if data is None else data.merge_repeats(steps)
        return partial(ManualGradient(steps).write_mean, copies=copies)
    flat.collect_gradients()
    losses = row_loss(loss)

    def write(x: Rows, y: Tensor) -> None:
        flat.gradient.zero_()
        losses(module(x), y).mean().backward()

    return write


def _best_epoch(
    module: nn.Module, rows: Rows, labels: Tensor, val: Tensor | None, training: Training
) -> BestEpoch[float]:
    if val is None:
        raise InputError("expected validation rows for select_best; got none; pass val=")
    held_out, classes = _select(rows, labels, val)
    check_labels(classes, len(held_out))
    scores = scores_on(module, held_out)
    return BestEpoch(module, lambda: merit_of(scores(), classes, training.best_by), patience=training.patience)


def merit_of(scores: Tensor, labels: Tensor, best_by: BestBy = "accuracy") -> float:
    """What the best epoch has most of: accuracy, or minus the mean cross entropy."""
    return share_right(scores, labels) if best_by == "accuracy" else -float(mean_loss(scores, labels))


def scores_on(module: nn.Module, rows: Rows) -> Callable[[], Tensor]:
    """A function that gives the module's scores on `rows` as at inference; the module stays in training mode."""
    steps = build_steps(module, {}, batch_norm=True)
    if steps is not None:
        manual = ManualGradient(steps)
        return lambda: manual.scores(rows)

    @torch.no_grad()
    def by_forward() -> Tensor:
        module.eval()
        scores: Tensor = module(rows)
        module.train()
        return scores

    return by_forward


class _Split:
    """The training rows, taken out once, handed out whole or in shuffled minibatches."""

    def __init__(
        self,
        rows: Rows,
        labels: Tensor,
        index: Tensor | None,
        batch_size: int | None,
        generator: torch.Generator,
        class_weights: tuple[float, ...] | None = None,
    ) -> None:
        self.rows, self.labels = _select(rows, labels, index)
        if batch_size is None:
            for_many_steps(self.rows)
        check_labels(self.labels, len(self.rows))
        if class_weights is not None:
            self.labels = weighted_labels(self.labels, class_weights)
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

    @property
    def batches_per_epoch(self) -> int:
        """How many steps an epoch has."""
        return 1 if self.batch_size is None else -(-len(self.rows) // self.batch_size)

    def batches(self) -> Iterator[tuple[Rows, Tensor]]:
        if self.batch_size is None:
            yield self.rows, self.labels
            return
        order = torch.randperm(len(self.rows), generator=self.generator).to(self.labels.device)
        for index in order.split(self.batch_size):
            yield take_rows(self.rows, index), self.labels.index_select(0, index)


def _select(rows: Rows, labels: Tensor, index: Tensor | None) -> tuple[Rows, Tensor]:
    if index is None:
        return rows, labels
    if index.dtype is torch.bool:
        index = index.nonzero().squeeze(1)
    return take_rows(rows, index), labels.index_select(0, index)


@dataclass(frozen=True)
class DistinctRows:
    """Rows that are all different, the classes of each one's copies as shares, and how many copies it has."""

    rows: SparseRows
    labels: Tensor
    copies: Tensor


def merge_repeats(rows: SparseRows, labels: Tensor, num_classes: int) -> DistinctRows | None:
    """The distinct rows with their labels and weights; None where there are too few repeats to gain from it."""
    first, group = _groups(rows)
    if len(first) > _WORTH_IT * len(rows) or not _same(rows, rows.rows(first[group])):
        return None
    kind = torch.get_default_dtype() if rows.values is None else rows.values.dtype
    copies = torch.bincount(group, minlength=len(first)).to(kind)
    classes = torch.zeros(len(first) * num_classes, dtype=kind)
    classes.index_add_(0, group * num_classes + labels, torch.ones(len(labels), dtype=kind))
    return DistinctRows(for_many_steps(rows.rows(first)), classes.view(-1, num_classes) / copies.unsqueeze(1), copies)


def _groups(rows: SparseRows) -> tuple[Tensor, Tensor]:
    """The first row of every group of rows with the same fingerprint, and the group of every row."""
    _, first, group = np.unique(_fingerprints(rows), return_index=True, return_inverse=True)
    return torch.from_numpy(first), torch.from_numpy(group.reshape(-1))


def _fingerprints(rows: SparseRows) -> np.ndarray:
    """A number per row that does not depend on the order of its entries (sums of 64-bit numbers wrap around)."""
    numbers = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], dtype=np.uint64)
    entries = numbers[rows.indices.numpy()]
    if rows.values is not None:
        bits = rows.values.double().numpy().view(np.uint64)
        entries = entries * (bits | np.uint64(1)) + (bits ^ (entries >> np.uint64(31)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    ends = rows.indptr.numpy()
    found: np.ndarray = total[ends[1:]] - total[ends[:-1]]
    return found


def _same(rows: SparseRows, others: SparseRows) -> bool:
    """Whether both hold the same entries in the same order: a fingerprint alone is not trusted."""
    if not (torch.equal(rows.indptr, others.indptr) and torch.equal(rows.indices, others.indices)):
        return False
    return rows.values is None or (others.values is not None and torch.equal(rows.values, others.values))
