"""Canaries: planted units, where they stand in a graph made for an audit, and how what they moved is weighed.

Canaries are disjoint: each moves rows that no other canary touches, so that one run gives as many independent
observations as there are canaries. The coin of a canary says whether it is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.rows import Rows
from hushgraph.graph.types import EdgeTypes
from hushgraph.privacy.units import Unit

BASE_NODES = 100
LARGEST_GRAPH = 400_000
SCALES = (1.0, 0.5)
"""Ratios are worked out for noise as planned, and for half of it: the first kind reads too little noise badly."""

OpenVault = Callable[..., Any]
"""`open_vault(graph, progress=None)`: a vault of its own for the audited stage, on a ledger in memory."""


@dataclass(frozen=True)
class Evidence:
    """What one stage said about every canary; `planted` says in a word what the canaries are.

    `ratios` are log likelihood ratios of planted against absent: one row, or one for each of `SCALES`. Where they are
    Gaussian, `information` is the squared separation mu^2 of each canary. Mechanisms that draw batches have one more
    ratio for `repeated` batches. Reports of several parts that are drawn alike and independently have the ratios of
    single `parts`, `[canaries, parts]`, and no noise that could be scaled.
    """

    ratios: np.ndarray
    planted: str = "unit"
    information: np.ndarray | None = None
    repeated: np.ndarray | None = None
    parts: np.ndarray | None = None

    @property
    def normal(self) -> np.ndarray | None:
        """Scores of variance 1, where ratios are Gaussian: mean 0 for absent canaries, mu for planted ones."""
        if self.information is None:
            return None
        ratio = np.atleast_2d(self.ratios)[0]
        scores: np.ndarray = (ratio + self.information / 2.0) / np.sqrt(np.maximum(self.information, 1e-300))
        return scores

    @classmethod
    def together(cls, every: Sequence[Evidence]) -> Evidence:
        """What several stages say about the same canaries: given the coin they are independent, so ratios add up."""
        known = [one.information for one in every if one.information is not None]
        return cls(
            ratios=np.asarray(sum(one.ratios for one in every)),
            information=np.asarray(sum(known)) if len(known) == len(every) else None,
        )


@dataclass(frozen=True)
class Layout:
    """Canary `owner[i]` sends from node `sender[i]` to node `receiver[i]`, if its coin says so.

    An undirected edge has two such pairs, a node as many as its list is long. `base` are edges between other nodes.
    """

    coins: np.ndarray
    num_nodes: int
    owner: Tensor
    sender: Tensor
    receiver: Tensor
    base: Tensor

    def edges(self, everyone: bool = False) -> Tensor:
        """The edges of the graph; with `everyone`, absent canaries send as well (something else)."""
        kept = torch.ones_like(self.owner, dtype=torch.bool) if everyone else self.present()[self.owner]
        return torch.cat([self.base, torch.stack([self.sender[kept], self.receiver[kept]])], dim=1)

    def present(self) -> Tensor:
        """The coins as a tensor."""
        return torch.from_numpy(self.coins)

    @property
    def list_length(self) -> int:
        """How many pairs one canary has."""
        return len(self.owner) // len(self.coins)

    @property
    def heads(self) -> Tensor:
        """The node that stands for each canary: the first sender of its pairs."""
        return BASE_NODES + (self.num_nodes - BASE_NODES) // len(self.coins) * torch.arange(len(self.coins))


def flip_coins(canaries: int, rng: np.random.Generator) -> np.ndarray:
    """One fair coin for each canary."""
    if canaries < 4:
        raise InputError(f"canaries: expected at least 4; got {canaries}")
    coins: np.ndarray = rng.random(canaries) < 0.5
    return coins


def room_for(unit: Unit, length: int | None = None) -> int:
    """How many canaries of `unit` fit in a graph; a node's list has `length` entries (by default all it may have)."""
    return max(4, LARGEST_GRAPH // (1 + _list_length(unit, length)))


def lay_out(unit: Unit, coins: np.ndarray, rng: np.random.Generator, length: int | None = None) -> Layout:
    """Pairs of nodes for units that are edges, nodes with lists of receivers for units that are records."""
    if unit.footprint.records == 0:
        return _pairs(coins, rng, both=unit.footprint.mirrored)
    return _lists(coins, _list_length(unit, length))


def _list_length(unit: Unit, length: int | None) -> int:
    receivers = unit.footprint.receivers
    if unit.footprint.records == 0:
        return 1
    if length is None and not np.isfinite(receivers):
        raise InputError(f"no canaries are known for sums over neighbors under the unit '{unit}'")
    return int(receivers) if length is None else length


def _pairs(coins: np.ndarray, rng: np.random.Generator, *, both: bool) -> Layout:
    left = BASE_NODES + 2 * torch.arange(len(coins))
    right = left + 1
    sender = torch.cat([left, right]) if both else left
    receiver = torch.cat([right, left]) if both else right
    owner = torch.arange(len(coins)).repeat(2 if both else 1)
    return Layout(coins, BASE_NODES + 2 * len(coins), owner, sender, receiver, _base_edges(rng, both))


def _lists(coins: np.ndarray, length: int) -> Layout:
    first = BASE_NODES + (length + 1) * torch.arange(len(coins))
    owner = torch.arange(len(coins)).repeat_interleave(length)
    receiver = first[owner] + 1 + torch.arange(length).repeat(len(coins))
    nothing = torch.empty((2, 0), dtype=torch.int64)
    return Layout(coins, BASE_NODES + (length + 1) * len(coins), owner, first[owner], receiver, nothing)


def _base_edges(rng: np.random.Generator, both: bool) -> Tensor:
    """A few ordinary edges among the base nodes; one direction only, or both."""
    pairs = torch.from_numpy(rng.integers(0, BASE_NODES, size=(2, 4 * BASE_NODES)))
    pairs = pairs[:, pairs[0] < pairs[1]]
    return torch.cat([pairs, pairs.flip(0)], dim=1) if both else pairs


class Tally:
    """Adds up, for every canary, how far releases moved in the direction in which the canary moves them.

    A release that is N(change, noise^2) if the canary is planted and N(0, noise^2) if not contributes <residual,
    change> / noise^2, and |change|^2 / noise^2 to the information, which is the squared separation mu^2.
    """

    def __init__(self, layout: Layout) -> None:
        self.owner = layout.owner
        self.total = torch.zeros(len(layout.coins), dtype=torch.float64)
        self.information = torch.zeros_like(self.total)

    def add(self, residual: Tensor, change: Tensor, noise: float | Tensor) -> None:
        """One release: its residual and the canary's change on every pair's receiver, and the noise there."""
        precision = torch.as_tensor(noise, dtype=torch.float64) ** -2
        self.total.index_add_(0, self.owner, (residual * change).sum(dim=1) * precision)
        self.information.index_add_(0, self.owner, (change * change).sum(dim=1) * precision)

    def evidence(self, planted: str) -> Evidence:
        """All of it, if noise is as planned and if it is less."""
        ratio = self.total - self.information / 2.0
        ratios = np.stack([(ratio / scale**2).numpy() for scale in SCALES])
        return Evidence(ratios, planted, information=self.information.numpy())


def audit_graph(
    x: Rows, edge_index: Tensor, y: Tensor | None = None, train: Tensor | None = None, classes: int = 2
) -> CheckedGraph:
    """A checked graph for an audit: by default one class, and only node 0 for training."""
    from torch_geometric.data import Data  # takes a second, and plans need no graph

    nodes = len(x)
    if train is None:
        train = torch.arange(nodes) == 0
    labels = torch.zeros(nodes, dtype=torch.int64) if y is None else y
    return check_graph(Data(x=x, edge_index=edge_index, y=labels, train_mask=train, num_classes=classes))


def of_one_type(graph: CheckedGraph, number: int, types: int) -> CheckedGraph:
    """The graph of an audit, with all of its edges of one of several types."""
    index, names = graph.edges.edge_index(), tuple(map(str, range(types)))
    found = EdgeTypes.of(index, torch.full((index.shape[1],), number), names, graph.metadata.num_nodes)
    return replace(graph, edge_types=found, metadata=replace(graph.metadata, edge_types=names))
