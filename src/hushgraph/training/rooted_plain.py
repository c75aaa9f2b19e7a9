"""Plain training of rooted networks by its former name; `hushgraph.training.whole_graph.train_rooted` does it."""

from __future__ import annotations

from torch import Tensor

from hushgraph.data.rows import Rows
from hushgraph.graph.rooted import RootedBatch
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.training.config import Training
from hushgraph.training.loop import Progress
from hushgraph.training.whole_graph import train_rooted


def train_whole_graph(
    network: RootedNetwork,
    graph: RootedBatch,
    features: Rows,
    labels: Tensor,
    *,
    train: Tensor,
    val: Tensor,
    epochs: int,
    lr: float,
    weight_decay: float = 0.0,
    on_epoch: Progress | None = None,
) -> None:
    """`train_rooted` with its settings one by one."""
    training = Training(epochs, lr, weight_decay=weight_decay)
    train_rooted(network, graph, features, labels, training, train=train, val=val, on_epoch=on_epoch)
