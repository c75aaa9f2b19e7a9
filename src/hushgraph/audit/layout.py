"""Where canaries stand in a graph, and how what they moved is weighed: shared by all canaries in noisy sums.

Canaries are disjoint: each moves rows that no other canary touches, so that one run gives as many independent
observations as there are canaries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.privacy.units import DirectedEdge, Node, UndirectedEdge, Unit

BASE_NODES = 100
LARGEST_GRAPH = 400_000


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


def most_canaries(unit: Unit, length: int | None = None) -> int:
    """How many canaries of `unit` fit in a graph; a node's list has `length` entries (by default all it may have)."""
    nodes = 1 + (unit.max_degree if length is None else length) if isinstance(unit, Node) else 2
    return max(4, LARGEST_GRAPH // nodes)


def lay_out(unit: Unit, coins: np.ndarray, rng: np.random.Generator, length: int | None = None) -> Layout:
    """Pairs of nodes for units that are edges, nodes with lists of receivers for units that are nodes."""
    if isinstance(unit, UndirectedEdge | DirectedEdge):
        return _pairs(coins, rng, both=isinstance(unit, UndirectedEdge))
    if isinstance(unit, Node):
        return _lists(coins, unit.max_degree if length is None else length)
    raise InputError(f"no canaries are known for sums over neighbors under the unit '{unit}'")


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


class Evidence:
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

    def scores(self) -> np.ndarray:
        """Scores of variance 1: mean 0 for absent canaries, mu for planted ones."""
        return (self.total / self.information.clamp_min(1e-300).sqrt()).numpy()

    def ratios(self, scale: float = 1.0) -> np.ndarray:
        """Log likelihood ratios of planted against absent, if all noise is `scale` times what is planned."""
        return ((self.total - self.information / 2.0) / scale**2).numpy()
