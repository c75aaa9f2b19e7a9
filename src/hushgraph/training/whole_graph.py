"""Plain full-batch training of a network on a whole graph, by automatic differentiation.

For data that is public or already randomized, and for runs that claim no protection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.graph.rooted import RootedBatch
from hushgraph.graph.rows import Rows, for_many_steps
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.training.config import Training
from hushgraph.training.loop import BestEpoch, Progress, train_epochs
from hushgraph.training.losses import mean_loss, share_right, weighted_labels
from hushgraph.training.optimizers import FlatParameters


def train_on_graph(
    network: nn.Module,
    loss: Callable[[], Tensor],
    training: Training,
    *,
    best: BestEpoch[Any] | None = None,
    on_epoch: Progress | None = None,
) -> None:
    """Train in place on `loss()`, which runs the network in training mode; it is left in evaluation mode."""
    with FlatParameters(network) as flat:
        flat.collect_gradients()
        update = training.update(flat.vector, training.epochs)

        def epoch() -> None:
            network.train()
            flat.gradient.zero_()
            loss().backward()
            update.step(flat.gradient)

        train_epochs(epoch, training.epochs, best=best, on_epoch=on_epoch)
    network.eval()


def at_inference(network: nn.Module, value: Callable[[], float]) -> Callable[[], float]:
    """`value`, computed in evaluation mode and without gradients."""

    @torch.no_grad()
    def judge() -> float:
        network.eval()
        return value()

    return judge


@contextmanager
def fresh_start(network: nn.Module, seed: int) -> Iterator[None]:
    """New weights for `network` from `seed`, as all that draws from torch's global generator, which is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network.reset_parameters()  # type: ignore[operator]
        yield


def train_rooted(
    network: RootedNetwork,
    graph: RootedBatch,
    features: Rows,
    labels: Tensor,
    training: Training,
    *,
    train: Tensor,
    val: Tensor,
    on_epoch: Progress | None = None,
) -> None:
    """Train on the mean loss of the train nodes; the weights of the best epoch on `val` are kept, if there are any."""
    for_many_steps(features)
    targets = labels[train]
    if training.class_weights is not None:
        targets = weighted_labels(targets, training.class_weights)
    scores: list[Tensor] = []  # those of the present weights serve judging and training: the network has no dropout

    def judge() -> float:
        scores[:] = [network(features, graph)]
        return share_right(scores[0].detach()[val], labels[val])

    def loss() -> Tensor:
        found = scores.pop() if scores else network(features, graph)
        return mean_loss(found[train], targets)

    best = BestEpoch(network, judge) if val.numel() else None
    train_on_graph(network, loss, training, best=best, on_epoch=on_epoch)
