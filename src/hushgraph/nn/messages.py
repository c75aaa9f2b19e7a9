"""The four steps that message-passing layers are made of, with gradients: take rows along edges, add them up again.

A layer that is written with them runs on many rooted subgraphs side by side, on a whole graph, and on one rooted
subgraph inside `torch.func` (`LocalMessages`), where per-root gradients of any layer can be formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.graph.rooted import Messages


@dataclass(frozen=True)
class LocalMessages:
    """The edges of one layer of a single root, in tensors that `torch.func.vmap` can stack.

    As `Messages`: `own` is the place of every output row among the input rows; `sources` and `targets` are the input
    and the output row of every edge; `counts` says how many messages every output row receives.
    """

    num_inputs: int
    own: Tensor
    sources: Tensor
    targets: Tensor
    counts: Tensor


AnyMessages = Messages | LocalMessages


def sum_messages(rows: Tensor, messages: AnyMessages) -> Tensor:
    """For every output row, the sum of the input rows that send to it."""
    if isinstance(messages, LocalMessages):
        return _added(rows.index_select(0, messages.sources), messages)
    return cast(Tensor, _SumMessages.apply(rows, messages))


def take_sources(rows: Tensor, messages: AnyMessages) -> Tensor:
    """The input row of every edge."""
    if isinstance(messages, LocalMessages):
        return rows.index_select(0, messages.sources)
    return cast(Tensor, _TakeSources.apply(rows, messages))


def take_targets(rows: Tensor, messages: AnyMessages) -> Tensor:
    """The output row of every edge."""
    if isinstance(messages, LocalMessages):
        return rows.index_select(0, messages.targets)
    return cast(Tensor, _TakeTargets.apply(rows, messages))


def sum_edges(rows: Tensor, messages: AnyMessages) -> Tensor:
    """For every output row, the sum over its edges of one row per edge."""
    if isinstance(messages, LocalMessages):
        return _added(rows, messages)
    return cast(Tensor, _SumEdges.apply(rows, messages))


@torch.no_grad()
def largest_of_edges(start: Tensor, rows: Tensor, messages: AnyMessages) -> Tensor:
    """For every output row, the largest entries among its own in `start` and those of its edges; without gradient."""
    places = messages.targets.unsqueeze(1).expand_as(rows)
    return start.detach().scatter_reduce(0, places, rows.detach(), "amax", include_self=True)


def _added(rows: Tensor, messages: LocalMessages) -> Tensor:
    empty = rows.new_zeros((messages.own.shape[0], rows.shape[1]))
    return empty.index_add(0, messages.targets, rows)


class _SumMessages(torch.autograd.Function):
    """The gradient runs along reversed edges."""

    @staticmethod
    def forward(ctx, rows: Tensor, messages: Messages) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.messages = messages
        return _bag_sum(messages.sources, rows, messages.offsets)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        edges, offsets = ctx.messages.by_source
        return _bag_sum(ctx.messages.targets[edges], grad, offsets), None


class _TakeSources(torch.autograd.Function):
    """The gradient adds up the edges of each input row."""

    @staticmethod
    def forward(ctx, rows: Tensor, messages: Messages) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.messages = messages
        return rows.index_select(0, messages.sources)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        edges, offsets = ctx.messages.by_source
        return _bag_sum(edges, grad, offsets), None


class _SumEdges(torch.autograd.Function):
    """The gradient of an edge is that of its output row."""

    @staticmethod
    def forward(ctx, rows: Tensor, messages: Messages) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.messages = messages
        return _bag_sum(torch.arange(rows.shape[0]), rows, messages.offsets)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return grad.index_select(0, ctx.messages.targets), None


class _TakeTargets(torch.autograd.Function):
    """The gradient adds up the edges of each output row."""

    @staticmethod
    def forward(ctx, rows: Tensor, messages: Messages) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.messages = messages
        return rows.index_select(0, messages.targets)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return _bag_sum(torch.arange(grad.shape[0]), grad, ctx.messages.offsets), None


def _bag_sum(indices: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    if indices.numel() == 0:
        return rows.new_zeros((offsets.numel() - 1, rows.shape[1]))
    return F.embedding_bag(indices, rows.contiguous(), offsets, mode="sum", include_last_offset=True)
