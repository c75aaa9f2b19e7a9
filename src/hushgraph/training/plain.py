"""Plain training by its former name; `hushgraph.training.plain_rows.train` does it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows
from hushgraph.training.config import BEST_BY as BEST_BY
from hushgraph.training.config import BestBy as BestBy
from hushgraph.training.config import Training
from hushgraph.training.loop import Progress
from hushgraph.training.losses import RowLoss
from hushgraph.training.optimizers import OptimizerName
from hushgraph.training.plain_rows import train as train_rows


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
    on_epoch: Progress | None = None,
) -> None:
    """`train` with its settings one by one."""
    training = Training(epochs, lr, optimizer, weight_decay, batch_size, select_best, best_by)
    train_rows(module, rows, labels, train, training, val=val, loss=loss, generator=generator, on_epoch=on_epoch)
