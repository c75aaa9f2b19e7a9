"""Training that stops when a watched value no longer falls, by its former name; `hushgraph.training.loop` does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.training.loop import BestEpoch, train_epochs
from hushgraph.training.whole_graph import at_inference, fresh_start


@dataclass
class Patience:
    """Stop after `checks` checks without a new least value, but not before epoch `least`."""

    checks: int
    least: int = 0
    every: int = 1
    best: float = math.inf
    best_epoch: int = 0


def train_watched(
    network: nn.Module,
    loss: Callable[[], Tensor],
    watched: Callable[[], float],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    patience: Patience,
    seed: int,
    report: Callable[[int], None] = lambda done: None,
) -> None:
    """Train from fresh weights; `loss` in training mode, `watched` in evaluation mode without gradients."""

    def epoch() -> None:
        network.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    judge = at_inference(network, lambda: -watched())
    best = BestEpoch(network, judge, patience=patience.checks, least=patience.least, every=patience.every)
    with fresh_start(network, seed):
        train_epochs(epoch, epochs, best=best, on_epoch=lambda done, total: report(done))
    network.eval()
    if best.verdict is not None:
        patience.best, patience.best_epoch = -best.verdict, best.epoch
