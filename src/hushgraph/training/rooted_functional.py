"""Per-root clipped gradients of networks with layers that the closed form does not know, by `torch.func`.

The gradient of every root is formed outright by a function that is given this root's rows, edges and label and nothing
else, so what it is made of needs no proof layer by layer: roots cannot mix. Two things could carry data from one root
to another or into the model unnoticed, and are refused: state that a forward pass writes (batch norm) and hooks. Beyond
that, a layer's `forward` must compute from its arguments and weights alone.

Roots of the same shape (rows and edges per layer) are taken together. With one layer there are few shapes; with more
layers there are many, and the cost comes close to that of one backward pass per root.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase

from hushgraph.data.rows import Rows, dense_rows, take_rows
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.rooted import RootedBatch, RootedSubgraphs
from hushgraph.nn.messages import AnyMessages, LocalMessages
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.nn.rowwise import has_hooks
from hushgraph.training.losses import check_labels
from hushgraph.training.optimizers import trainable
from hushgraph.training.rounding import checked_sum, clip_factors, clip_norm, double_slack, norm_slack

# Gradients are formed for at most this many numbers at a time (64 MiB in single precision).
_NUMBERS = 2**24

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
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.num_parameters = sum(p.numel() for p in trainable(network))
        self.max_grad_norm = float(max_grad_norm)
        slack = norm_slack(0) + double_slack(subgraphs.num_roots, subgraphs.num_roots)
        self.clip_norm = clip_norm(max_grad_norm, slack, grid, self.num_parameters)
        self._gradients = vmap(grad(self._one_loss), in_dims=(None, 0, 0, 0), randomness="different")

    def sum(self, positions: Tensor) -> Tensor:
        """The clipped sum over the roots at these positions, in the order of the network's trainable parameters."""
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
        size = max(1, _NUMBERS // self.num_parameters)
        groups = positions[order].split(torch.bincount(shape_of).tolist())
        return [part for group in groups for part in group.split(size)]

    def _formed(self, positions: Tensor) -> Tensor:
        """One gradient per root, as rows."""
        batch, count = self.subgraphs.batch(positions), positions.numel()
        rows = dense_rows(take_rows(self.features, batch.nodes)).view(count, -1, self.features.shape[1])
        edges = tuple(_edges_by_root(batch, level) for level in range(self.network.num_layers))
        parameters = {name: p.detach() for name, p in self.parameters.items()}
        found = self._gradients(parameters, rows, edges, self.labels[positions])
        return torch.cat([g.flatten(1) for g in found.values()], dim=1)

    def _one_loss(self, parameters: dict[str, Tensor], rows: Tensor, edges: Edges, label: Tensor) -> Tensor:
        """The loss of a single root; `torch.func` maps it over roots, so it cannot see another one."""
        num_inputs, layers = rows.shape[0], list[AnyMessages]()
        for sources, targets, counts in edges:
            layers.append(LocalMessages(num_inputs, torch.arange(counts.shape[0]), sources, targets, counts))
            num_inputs = counts.shape[0]
        batch = RootedBatch(torch.arange(rows.shape[0]), (), tuple(layers))  # type: ignore[arg-type]
        scores = functional_call(self.network, parameters, (rows, batch))
        return F.cross_entropy(scores, label.unsqueeze(0))


def _edges_by_root(batch: RootedBatch, level: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and message counts with one row per root, numbered within the root (all of one shape)."""
    messages, roots = batch.layers[level], batch.num_roots
    first_input, first_output = batch.row_offsets[level][:-1], batch.row_offsets[level + 1][:-1]
    sources = messages.sources.view(roots, -1) - first_input.unsqueeze(1)
    targets = messages.targets.view(roots, -1) - first_output.unsqueeze(1)
    return sources, targets, messages.counts.view(roots, -1)


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
