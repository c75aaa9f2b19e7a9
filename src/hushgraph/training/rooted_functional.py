"""Per-root clipped gradients of networks with layers that the closed form does not know, by `torch.func`.

The gradient of every root is formed outright by a function that is given this root's rows, edges and label and nothing
else, so what it is made of needs no proof layer by layer: roots cannot mix. Two things could carry data from one root
to another or into the model unnoticed, and are refused: state that a forward pass writes (batch norm) and hooks. Beyond
that, a layer's `forward` must compute from its arguments and weights alone.

Roots of the same shape (rows and edges per layer) are taken together, always sixteen: the last are repeated where there
are fewer. Equal roots must come out equal wherever they stand, or roots of this shape are taken one at a time. With one
layer there are few shapes; with more layers there are many, and the cost comes close to that of one backward pass per
root.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.rooted import RootedBatch, RootedSubgraphs
from hushgraph.graph.rows import Rows, dense_rows, take_rows
from hushgraph.nn.messages import AnyMessages, LocalMessages
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.nn.rowwise import has_hooks
from hushgraph.training.alike import EvenLinear, one_thread, treats_rows_alike
from hushgraph.training.losses import check_labels, loss_for, row_loss
from hushgraph.training.optimizers import trainable
from hushgraph.training.rounding import checked_sum, clip_factors, clip_norm, double_slack, norm_slack

# Roots whose gradients are formed together, always.
_TOGETHER = 16

Edges = tuple[tuple[Tensor, Tensor, Tensor], ...]


def check_rooted(network: RootedNetwork, subgraphs: RootedSubgraphs, labels: Tensor, max_grad_norm: float) -> None:
    """Refuse a bound that is none, and subgraphs or labels that do not fit the network."""
    if not (math.isfinite(max_grad_norm) and max_grad_norm > 0):
        raise InputError(f"expected a finite max_grad_norm > 0; got {max_grad_norm}; 1.0 is usual")
    if network.num_layers != subgraphs.num_layers:
        raise InputError(f"expected subgraphs of {network.num_layers} layers; got {subgraphs.num_layers}")
    check_labels(labels, subgraphs.num_roots, with_null=True)


class FormedRootedGradient:
    """As `RootedClippedGradient`, for a `RootedNetwork` with any layers inside; slower."""

    def __init__(
        self,
        network: RootedNetwork,
        subgraphs: RootedSubgraphs,
        features: Rows,
        labels: Tensor,
        *,
        max_grad_norm: float,
        grid: float = 0.0,
    ) -> None:
        require_stateless(network)
        check_rooted(network, subgraphs, labels, max_grad_norm)
        self.network, self.subgraphs, self.features, self.labels = network, subgraphs, features, labels
        self.loss = row_loss(loss_for(labels))
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.num_parameters = sum(p.numel() for p in trainable(network))
        self.max_grad_norm = float(max_grad_norm)
        slack = norm_slack(0) + double_slack(subgraphs.num_roots, subgraphs.num_roots)
        self.clip_norm = clip_norm(max_grad_norm, slack, grid, self.num_parameters)
        self._alike: dict[Any, bool] = {}
        self._gradients = vmap(grad(self._one_loss), in_dims=(None, 0, 0, 0), randomness="different")

    def sum(self, positions: Tensor) -> Tensor:
        """The clipped sum over the roots at these positions, in the order of the network's trainable parameters."""
        with one_thread():
            return self._sum(positions)

    def _sum(self, positions: Tensor) -> Tensor:
        total = torch.zeros(self.num_parameters, dtype=torch.float64)
        for group in self._groups(positions):
            gradients = self._formed(group).double()
            norms = gradients.norm(dim=1)
            finite = torch.isfinite(norms)
            total += clip_factors(norms[finite], self.clip_norm) @ gradients[finite]
        return checked_sum(total, len(positions), self.max_grad_norm)

    def square_norms(self, positions: Tensor) -> Tensor:
        """The squared gradient norms of these roots (tests, diagnostics)."""
        found = torch.zeros(self.subgraphs.num_roots)
        for group in self._groups(positions):
            found[group] = self._formed(group).square().sum(1)
        return found[positions]

    def _groups(self, positions: Tensor) -> list[Tensor]:
        """The positions, cut into groups of roots with equal numbers of rows and edges on every level."""
        if positions.numel() == 0:
            return []
        shapes = torch.cat((self.subgraphs.rows_within, self.subgraphs.edges_within))[:, positions]
        _, shape_of = torch.unique(shapes, dim=1, return_inverse=True)
        order = torch.argsort(shape_of, stable=True)
        groups = positions[order].split(torch.bincount(shape_of).tolist())
        return [part for group in groups for part in group.split(_TOGETHER)]

    def _formed(self, positions: Tensor) -> Tensor:
        """One gradient per root, as rows."""
        count = positions.numel()
        filled = torch.cat((positions, positions[-1:].expand(_TOGETHER - count)))
        batch = self.subgraphs.batch(filled)
        rows = dense_rows(take_rows(self.features, batch.nodes)).view(_TOGETHER, -1, self.features.shape[1])
        edges = tuple(_edges_by_root(batch, level) for level in range(self.network.num_layers))
        labels = self.labels[filled]
        if self._treats_alike(rows, edges):
            return self._form(rows, edges, labels)[:count]
        single = [(rows[i : i + 1], _at(edges, i), labels[i : i + 1]) for i in range(count)]
        return torch.cat([self._form(*one) for one in single])

    def _form(self, rows: Tensor, edges: Edges, labels: Tensor) -> Tensor:
        parameters = {name: p.detach() for name, p in self.parameters.items()}
        found = self._gradients(parameters, rows, edges, labels)
        return torch.cat([g.flatten(1) for g in found.values()], dim=1)

    def _treats_alike(self, rows: Tensor, edges: Edges) -> bool:
        """Whether equal roots of this shape get equal gradients, with random rows, weights and edges."""
        shape = (rows.shape[1], *[(sources.shape[1], counts.shape[1]) for sources, _, counts in edges])
        if shape not in self._alike:
            made = _random_edges(rows.shape[1], edges)

            def compute(rows: Tensor, labels: Tensor) -> list[Tensor]:
                return [self._form(rows, made, labels)]

            labels = self.labels.new_zeros(1, *self.labels.shape[1:])
            self._alike[shape] = treats_rows_alike(self.network, rows, labels, _TOGETHER, compute)
        return self._alike[shape]

    def _one_loss(self, parameters: dict[str, Tensor], rows: Tensor, edges: Edges, label: Tensor) -> Tensor:
        """The loss of a single root; `torch.func` maps it over roots, so it cannot see another one."""
        num_inputs, layers = rows.shape[0], list[AnyMessages]()
        for sources, targets, counts in edges:
            layers.append(LocalMessages(num_inputs, torch.arange(counts.shape[0]), sources, targets, counts))
            num_inputs = counts.shape[0]
        batch = RootedBatch(torch.arange(rows.shape[0]), (), tuple(layers))  # type: ignore[arg-type]
        with EvenLinear():
            scores = functional_call(self.network, parameters, (rows, batch))
        return self.loss(scores, label.unsqueeze(0)).sum()


def _edges_by_root(batch: RootedBatch, level: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and message counts with one row per root, numbered within the root (all of one shape)."""
    messages, roots = batch.layers[level], batch.num_roots
    first_input, first_output = batch.row_offsets[level][:-1], batch.row_offsets[level + 1][:-1]
    sources = messages.sources.view(roots, -1) - first_input.unsqueeze(1)
    targets = messages.targets.view(roots, -1) - first_output.unsqueeze(1)
    return sources, targets, messages.counts.view(roots, -1)


def _at(edges: Edges, root: int) -> Edges:
    return tuple((a[root : root + 1], b[root : root + 1], c[root : root + 1]) for a, b, c in edges)


def _random_edges(num_inputs: int, like: Edges) -> Edges:
    """Edges of the same shapes, the same for all roots, between random rows."""
    generator, made = torch.Generator().manual_seed(0), []
    for sources, _, counts in like:
        edges, outputs = sources.shape[1], counts.shape[1]
        source = torch.randint(num_inputs, (edges,), generator=generator)
        target = torch.randint(outputs, (edges,), generator=generator).sort().values
        count = torch.bincount(target, minlength=outputs).to(counts.dtype)
        made.append((source.repeat(len(sources), 1), target.repeat(len(sources), 1), count.repeat(len(sources), 1)))
        num_inputs = outputs
    return tuple(made)


def require_stateless(network: nn.Module) -> None:
    """Refuse what could carry data from one root to another: norms over rows, buffers, hooks, replaced forwards."""
    if not isinstance(network, RootedNetwork):
        raise UnprovenError(f"expected a RootedNetwork; got {type(network).__name__}, for which there is no proof")
    found = []
    for name, layer in network.named_modules():
        reason = state_objection(layer)
        if reason is not None:
            found.append(f"layer '{name or 'model'}' ({type(layer).__name__}): {reason}")
    UnprovenError.collect(found)


def state_objection(layer: nn.Module) -> str | None:
    """Why `layer` is refused, or None."""
    if isinstance(layer, _NormBase):
        return "expected layers that keep the rows of a batch apart; got a norm over rows; use LayerNorm"
    if any(base.__name__ == "MessagePassing" for base in type(layer).__mro__):
        return "expected a layer on rooted subgraphs; got one of PyG; write it with hushgraph.nn.messages"
    if next(layer.buffers(recurse=False), None) is not None:
        return "expected a layer without buffers; got one that could keep data in them; remove them"
    if has_hooks(layer):
        return "expected a plain layer; got one with hooks or a replaced forward; remove them"
    return None
