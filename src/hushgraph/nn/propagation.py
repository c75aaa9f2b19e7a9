"""Normalised sums over neighbours of a public graph, with gradients.

`Propagation` is the linear map x -> L (A + s I) R x: A sums over in-neighbours, L and R are diagonal and made of public
degrees, s is 0 or 1. It is what GCN, GraphSAGE's mean and KProp have in common. Both directions run on the fast
unweighted sum of `graph.aggregate`.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from hushgraph.graph.aggregate import sum_in_neighbours
from hushgraph.graph.csr import InNeighbours


class Propagation:
    """x -> L (A + s I) R x. `left` and `right` are the diagonals of L and R, `[nodes, 1]`."""

    def __init__(
        self, graph: InNeighbours, backward: InNeighbours, left: Tensor, right: Tensor, self_loops: bool
    ) -> None:
        self._forward, self._backward = graph, backward
        self._left, self._right = left, right
        self._self_loops = self_loops

    def __call__(self, rows: Tensor) -> Tensor:
        """One step; differentiable with respect to `rows`."""
        result: Tensor = _Propagate.apply(rows, self)
        return result

    def forward_step(self, rows: Tensor) -> Tensor:
        """L (A + s I) R x."""
        return self._left * self._sum(self._forward, self._right * rows)

    def backward_step(self, grad: Tensor) -> Tensor:
        """The transposed map."""
        return self._right * self._sum(self._backward, self._left * grad)

    def _sum(self, graph: InNeighbours, rows: Tensor) -> Tensor:
        total = sum_in_neighbours(graph, rows)
        return total.add_(rows) if self._self_loops else total


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, propagation: Propagation) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.propagation = propagation
        return propagation.forward_step(rows)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.propagation.backward_step(grad), None


class Neighbourhood:
    """A public graph, with the propagations that networks ask for (made once, on demand)."""

    def __init__(self, graph: InNeighbours) -> None:
        self.graph = graph

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.graph.num_nodes

    @property
    def mean_degree(self) -> float:
        """Edges per node."""
        return self.graph.num_edges / max(1, self.graph.num_nodes)

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges, `[2, E]`."""
        return self.graph.edge_index()

    @cached_property
    def kprop(self) -> Propagation:
        """The GCN-normalised sum without self loops."""
        return self._normalised(0)

    @cached_property
    def gcn(self) -> Propagation:
        """The GCN-normalised sum with a self loop at every node."""
        return self._normalised(1)

    @cached_property
    def mean(self) -> Propagation:
        """The mean over in-neighbours (zero where there are none)."""
        left = self.graph.in_degree().clamp(min=1).to(torch.float32).reciprocal().unsqueeze(1)
        return Propagation(self.graph, self._transposed, left, torch.ones_like(left), False)

    @cached_property
    def _transposed(self) -> InNeighbours:
        return self.graph.transpose()

    def _normalised(self, loops: int) -> Propagation:
        arriving = (self.graph.in_degree() + loops).clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1)
        leaving = (self.graph.out_degree() + loops).clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1)
        return Propagation(self.graph, self._transposed, arriving, leaving, bool(loops))
