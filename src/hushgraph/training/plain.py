"""Plain training of whatever is trained on rows: a module or an ensemble, on all rows or by minibatches."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import JoinedRows, Rows
from hushgraph.nn.chorus import Ensemble
from hushgraph.training.config import Training
from hushgraph.training.ensemble import train_ensemble, train_ensemble_in_minibatches
from hushgraph.training.loop import Progress
from hushgraph.training.minibatches import Minibatches
from hushgraph.training.plain_rows import train, train_in_minibatches


def train_plainly(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    index: Tensor,
    val: Tensor,
    training: Training,
    generator: torch.Generator,
    on_epoch: Progress,
) -> Minibatches | None:
    """Train in place on the rows named by `index`; the best state on the rows `val` is kept.

    Where rows are many and nothing was asked for, by minibatches, which are returned.
    """
    minibatches = Minibatches.by_rule(index.numel(), val.numel()) if training.leaves_batches_open else None
    if isinstance(module, Ensemble):
        _train_ensemble(module, cast(JoinedRows, rows), labels, index, val, training, minibatches, generator, on_epoch)
    elif minibatches is not None:
        train_in_minibatches(
            module, rows, labels, index, val, training, minibatches, generator=generator, on_look=on_epoch
        )
    else:
        best = replace(training, select_best=bool(val.numel()))
        held_out = val if val.numel() else None
        train(module, rows, labels, index, best, val=held_out, generator=generator, on_epoch=on_epoch)
    return minibatches


def _train_ensemble(
    network: Ensemble,
    rows: JoinedRows,
    labels: Tensor,
    index: Tensor,
    val: Tensor,
    training: Training,
    minibatches: Minibatches | None,
    generator: torch.Generator,
    on_epoch: Progress,
) -> None:
    if minibatches is not None:
        train_ensemble_in_minibatches(
            network,
            rows,
            labels,
            index,
            val,
            minibatches,
            epochs=training.epochs,
            lr=training.lr,
            generator=generator,
            on_look=on_epoch,
        )
        return
    if torch.device(training.device).type != "cpu":
        raise InputError(f"device: expected cpu, where ensembles are trained (chorus); got {training.device}")
    train_ensemble(
        network,
        rows,
        labels,
        index,
        val,
        epochs=training.epochs,
        lr=training.lr,
        patience=training.patience,
        generator=generator,
        on_epoch=on_epoch,
        optimizer=training.update,
        class_weights=training.class_weights,
    )
