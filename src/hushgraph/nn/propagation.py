"""Normalized sums over neighbors of a public graph, with gradients.

`Propagation` is the linear map x -> L (A + s I) R x: A sums over in-neighbors, L and R are diagonal and made of public
degrees, s is 0 or 1. It is what GCN, GraphSAGE's mean and KProp have in common. Training repeats it thousands of times,
so L and R are multiplied into one weight per edge once, and a step is a single weighted sum in either direction.

KProp: K steps of the GCN-normalized sum without self loops, the denoising layer of LPGNN.

Averaging over many neighbors averages the noise of their reports away. A node's own report is left out of its own sum,
since with self loops the same noise would be added again at every step.

KProp is linear and so is the first layer of a network, so the order does not matter: `PropagatedRows` multiplies the
(sparse) reports with the narrow weight matrix first and propagates the few columns that result. The wide, dense matrix
of propagated features is never made.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.packed import INT32_LIMIT
from hushgraph.graph.rows import Rows, dense_rows, for_many_steps
from hushgraph.graph.sums import aligned_rows, check_rows, target_runs


class Propagation:
    """x -> L (A + s I) R x. `left` and `right` are the diagonals of L and R, `[nodes, 1]`."""

    def __init__(
        self, graph: MemoryEdges, backward: MemoryEdges, left: Tensor, right: Tensor, self_loops: bool
    ) -> None:
        self._forward, self._backward = graph, backward
        self._left, self._right = left.squeeze(1), right.squeeze(1)
        self._own = left * right if self_loops else None

    def __call__(self, rows: Tensor) -> Tensor:
        """One step; differentiable with respect to `rows`."""
        result: Tensor = _Propagate.apply(rows, self)
        return result

    def forward_step(self, rows: Tensor) -> Tensor:
        """L (A + s I) R x."""
        return self._step(self._forward, self._forward_weights, rows)

    def backward_step(self, grad: Tensor) -> Tensor:
        """The transposed map."""
        return self._step(self._backward, self._backward_weights, grad)

    @cached_property
    def _forward_weights(self) -> Tensor:
        return _edge_weights(self._forward, self._left, self._right)

    @cached_property
    def _backward_weights(self) -> Tensor:
        return _edge_weights(self._backward, self._right, self._left)

    def _step(self, graph: MemoryEdges, weights: Tensor, rows: Tensor) -> Tensor:
        total = weighted_sum(graph, weights, rows)
        return total if self._own is None else total.addcmul_(self._own.to(rows.dtype), rows)


def _edge_weights(graph: MemoryEdges, of_target: Tensor, of_source: Tensor) -> Tensor:
    """One weight per edge, in stored order."""
    weights = torch.repeat_interleave(of_target, graph.in_degree())
    return weights.mul_(of_source.index_select(0, graph.sources))


@torch.no_grad()
def weighted_sum(graph: MemoryEdges, weights: Tensor, rows: Tensor) -> Tensor:
    """For every node, the sum of the `rows` of the nodes that send to it, each times the edge's weight."""
    check_rows(rows, graph.num_nodes)
    table, weights = aligned_rows(rows), weights.to(rows.dtype)
    if graph.num_edges == 0 or table.shape[1] == 0:
        return torch.zeros_like(table)
    if graph.num_edges < INT32_LIMIT:
        return _weighted_bags(graph.sources, graph.offsets, weights, table)
    parts = []
    for first, last in target_runs(graph.offsets, INT32_LIMIT - 1):
        begin, end = int(graph.offsets[first]), int(graph.offsets[last])
        offsets = (graph.offsets[first : last + 1] - begin).to(torch.int32)
        parts.append(_weighted_bags(graph.sources[begin:end], offsets, weights[begin:end], table))
    return torch.cat(parts)


def _weighted_bags(sources: Tensor, offsets: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    return embedding_bag(sources, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, propagation: Propagation) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.propagation = propagation
        return propagation.forward_step(rows)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.propagation.backward_step(grad), None


class Neighborhood:
    """A public graph, with the propagations that networks ask for (made once, on demand)."""

    def __init__(self, graph: MemoryEdges) -> None:
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
        """The GCN-normalized sum without self loops."""
        return self._normalized(0)

    @cached_property
    def gcn(self) -> Propagation:
        """The GCN-normalized sum with a self loop at every node."""
        return self._normalized(1)

    @cached_property
    def mean(self) -> Propagation:
        """The mean over in-neighbors (zero where there are none)."""
        left = self.graph.in_degree().clamp(min=1).to(torch.float32).reciprocal().unsqueeze(1)
        return Propagation(self.graph, self._transposed, left, torch.ones_like(left), False)

    @cached_property
    def _transposed(self) -> MemoryEdges:
        return self.graph.transpose()

    def _normalized(self, loops: int) -> Propagation:
        arriving = (self.graph.in_degree() + loops).clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1)
        leaving = (self.graph.out_degree() + loops).clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1)
        return Propagation(self.graph, self._transposed, arriving, leaving, bool(loops))


_PROBES = 64


def kprop(propagation: Propagation, rows: Tensor, steps: int) -> Tensor:
    """`steps` propagations of the rows."""
    for _ in range(steps):
        rows = propagation(rows)
    return rows


class PropagatedRows:
    """The rows D P^K (step * R + center), not written out.

    R holds the reports (dense or sparse), P is the propagation, K = `steps`, D scales every row (None: not at all).
    """

    def __init__(
        self,
        reports: Rows,
        propagation: Propagation,
        steps: int,
        step: float = 1.0,
        center: float = 0.0,
        row_scale: Tensor | None = None,
    ) -> None:
        if steps < 0:
            raise InputError(f"steps: expected 0 or more; got {steps}")
        self.reports = for_many_steps(reports)
        self.propagation, self.steps = propagation, steps
        self.step, self.center, self.row_scale = step, center, row_scale
        self.shape = (int(reports.shape[0]), int(reports.shape[1]))
        # What K propagations make of a constant column.
        self._constant = kprop(propagation, torch.ones(self.shape[0], 1), steps) if center else None

    def matmul(self, weight_t: Tensor) -> Tensor:
        """These rows times `weight_t` ([columns, out]); differentiable with respect to `weight_t`."""
        reports = self.reports
        product = reports @ weight_t if isinstance(reports, Tensor) else reports.matmul(weight_t)
        product = kprop(self.propagation, product, self.steps) * self.step
        if self._constant is not None:
            product = product + self.center * self._constant * weight_t.sum(dim=0)
        return product if self.row_scale is None else self.row_scale * product

    def to_dense(self) -> Tensor:
        """The matrix written out, for networks that need it."""
        return self.matmul(torch.eye(self.shape[1]))

    def normalized(self, generator: torch.Generator) -> PropagatedRows:
        """The same reports, not centered, every propagated row scaled to length 1 (rows of zeros stay).

        The scale and the center of the estimates are public constants that a network would have to undo, and hubs have
        longer rows; neither says anything about a person. Lengths are measured with random probes: |h|^2 is the mean
        of (h . g)^2 over Gaussian g.
        """
        if self.steps == 0:
            squared = dense_rows(self.reports).square().sum(dim=1, keepdim=True)
        else:
            plain = PropagatedRows(self.reports, self.propagation, self.steps)
            probes = torch.randn(self.shape[1], _PROBES, generator=generator)
            squared = plain.matmul(probes).square().mean(dim=1, keepdim=True)
        scale = torch.where(squared > 0, squared.clamp(min=1e-20).rsqrt(), torch.zeros_like(squared))
        return PropagatedRows(self.reports, self.propagation, self.steps, row_scale=scale)
