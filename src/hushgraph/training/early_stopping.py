"""Full-batch training that stops when a watched value no longer falls, and keeps the best weights.

Only for values that are public or already randomized: watching private labels costs privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass
class Patience:
    """Stop after `checks` checks without a new least value, but not before epoch `least`."""

    checks: int
    least: int = 0
    every: int = 1
    best: float = math.inf
    best_epoch: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)
    _waited: int = 0

    def is_over(self, epoch: int, value: float, network: nn.Module) -> bool:
        """Look at `value`; keep the weights where it is the least so far."""
        if value < self.best or not self.state:
            self.best, self.best_epoch, self._waited = value, epoch, 0
            self.state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        else:
            self._waited += 1
        return self._waited >= self.checks and epoch >= self.least


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
    """Train from fresh weights; `loss` in training mode, `watched` in evaluation mode without gradients.

    Weights, dropout and other draws of `loss` come from `seed`; torch's global state is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network.reset_parameters()  # type: ignore[operator]
        for epoch in range(1, epochs + 1):
            network.train()
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            report(epoch)
            if epoch % patience.every == 0:
                network.eval()
                with torch.no_grad():
                    value = watched()
                if patience.is_over(epoch, value, network):
                    break
    if patience.state:
        network.load_state_dict(patience.state)
    network.eval()
