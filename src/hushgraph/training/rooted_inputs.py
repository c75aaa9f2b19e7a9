"""Sparse features as the first layer of a rooted network meets them: multiplied once per batch, not once per row.

Rooted subgraphs overlap, so a node's features occur in many of them. The product of the features with the first weight
is the same in each. It is computed once for every node of a batch and handed out row by row; in the other direction
clipped output gradients are added up per node, and one product with the transposed features ends the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.data.rows import SparseRows, linear_input
from hushgraph.errors import InputError
from hushgraph.nn.layers import Linear

# With this share of a graph's nodes in a batch, taking all of them is cheaper than picking rows (measured).
_TAKE_ALL = 0.4


class SharedInputs:
    """The sparse `features` of a graph, one batch after the other: `begin`, then `rows` per chunk, then `finish`."""

    def __init__(self, features: SparseRows) -> None:
        if features.values is not None and not bool(torch.isfinite(features.values).all()):
            raise InputError("expected finite features; got others; clean them first")
        self.features = features
        self.square_norms = features.row_square_norms()
        self._place = torch.zeros(len(features), dtype=torch.int64)
        self._taken: SparseRows = features
        self._product: Tensor | None = None
        self._gradient: Tensor | None = None

    def begin(self, nodes: Tensor) -> None:
        """Prepare for a batch that meets these nodes (repeats allowed)."""
        used = torch.zeros(len(self.features), dtype=torch.bool).index_fill_(0, nodes, True)
        chosen = used.nonzero().squeeze(1)
        if chosen.numel() >= _TAKE_ALL * len(self.features):
            self._place, self._taken = torch.arange(len(self.features)), self.features.keep_transposed()
        else:
            self._place[chosen] = torch.arange(chosen.numel())
            self._taken = self.features.rows(chosen)
        self._product = self._gradient = None

    def rows(self, nodes: Tensor) -> InputRows:
        """The rows of these nodes, not written out."""
        return InputRows(self, nodes)

    def product(self, layer: Linear, nodes: Tensor) -> Tensor:
        """`layer` on the rows of these nodes. The weights must not change during a batch."""
        if self._product is None:
            bias = None if layer.bias is None else layer.bias.detach()
            with torch.no_grad():
                self._product = linear_input(self._taken, layer.weight.detach(), bias)
        return self._product.index_select(0, self._place[nodes])

    def add(self, nodes: Tensor, gradient: Tensor) -> None:
        """Add output gradients of these nodes' rows."""
        if self._gradient is None:
            self._gradient = gradient.new_zeros(len(self._taken), gradient.shape[1])
        self._gradient.index_add_(0, self._place[nodes], gradient)

    def finish(self, weight: Tensor) -> None:
        """Add the gradient of the first weight, `[out, in]`, over all that was added since `begin`."""
        if self._gradient is not None:
            weight += self._taken.transpose_matmul(self._gradient).t()
        self._product = self._gradient = None


class InputRows:
    """Some rows of `SharedInputs`."""

    def __init__(self, shared: SharedInputs, nodes: Tensor) -> None:
        self.shared, self.nodes = shared, nodes

    def row_square_norms(self) -> Tensor:
        """The squared L2 norm of every row."""
        return self.shared.square_norms.index_select(0, self.nodes)

    def picked(self, index: Tensor | None) -> SparseRows:
        """The rows at these positions (None: all), written out."""
        return self.shared.features.rows(self.nodes if index is None else self.nodes[index])
