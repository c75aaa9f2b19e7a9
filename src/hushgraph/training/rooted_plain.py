"""Plain full-batch training of a message-passing network on a whole graph, for runs that claim no protection."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.data.rows import Rows, SparseRows
from hushgraph.graph.rooted import RootedBatch
from hushgraph.nn.rooted import RootedNetwork


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
    on_epoch: Callable[[int, int], None] | None = None,
) -> None:
    """Adam on the mean loss of the train nodes; the weights of the best epoch on `val` are kept, if there is one."""
    if isinstance(features, SparseRows):
        features.keep_transposed()
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=weight_decay)
    best, kept = -1.0, {name: value.clone() for name, value in network.state_dict().items()}
    for epoch in range(epochs):
        optimizer.zero_grad()
        scores = network(features, graph)
        accuracy = float((scores[val].argmax(1) == labels[val]).float().mean()) if val.numel() else float(epoch)
        if accuracy > best:
            best, kept = accuracy, {name: value.clone() for name, value in network.state_dict().items()}
        F.cross_entropy(scores[train], labels[train]).backward()
        optimizer.step()
        if on_epoch is not None:
            on_epoch(epoch + 1, epochs)
    if val.numel():
        network.load_state_dict(kept)
