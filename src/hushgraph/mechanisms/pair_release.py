"""What mechanisms that release a graph have in common: a bit for every pair of nodes, and canaries among the pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import (
    merged,
    ordered_numbers,
    pair_edges,
    pair_ends,
    pair_numbers,
    without,
)
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.metadata import count_pairs
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_MOST_CANARIES = 100_000


@dataclass(frozen=True)
class PairRelease(PureMechanism):
    """One bit for every pair of nodes, each bit with loss 1 / `scale`; what comes out is a graph.

    With `undirected` a pair is unordered and its bit says that either direction is there; both directions come out or
    none. Otherwise each direction is a pair of its own. Edges that were declared public come out as they are, and
    their pairs have no bit.

    Bound: the bits that one unit can change. Entries of one pair are one bit where pairs are unordered.
    """

    undirected: bool = True

    proof = "graph-release"
    reads = frozenset({"edges"})
    released = "a graph"

    def sensitivity(self, unit: Unit) -> float:
        """How many bits one unit changes."""
        f = unit.footprint
        return (f.own_list + f.other_entries) / (2.0 if f.mirrored and self.undirected else 1.0)

    def query(self, data: Any, *inputs: Any) -> MemoryEdges:
        """The edges as they are."""
        return data.whole_lists.load()

    def pairs(self, data: Any) -> Pairs:
        """The pairs of the graph, linked, public and all."""
        edges: MemoryEdges = data.whole_lists.load()
        public = np.empty(0, dtype=np.int64)
        if data.public_edges is not None:
            public = pair_numbers(data.public_edges, undirected=self.undirected)
        linked = without(pair_numbers(edges, undirected=self.undirected), public)
        return Pairs(linked, public, edges.num_nodes, self.undirected)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The bits of all pairs."""
        pairs = self.pairs(data)
        bits = np.zeros(pairs.total)
        bits[pairs.linked] = 1.0
        return bits

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """Unordered and ordered pairs."""
        return [cls(), cls(undirected=False)]

    def to_tensors(self, value: MemoryEdges) -> dict[str, Any]:
        """The two arrays of the graph."""
        return {"offsets": value.offsets, "sources": value.sources}

    def from_tensors(self, tensors: dict[str, Any]) -> MemoryEdges:
        """The inverse of `to_tensors`."""
        return MemoryEdges(tensors["offsets"], tensors["sources"])

    # Canaries: pairs of a small graph, linked by coin. Their bits are drawn apart, so they may share nodes

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as are planted within a second."""
        return _MOST_CANARIES

    def canary_inputs(self, pairs: int) -> tuple[Any, ...]:
        """What a release of the audited graph is given, in which half of so many pairs are linked."""
        return ()

    def canary(self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: Any) -> Evidence | None:
        """How many directions of each canary came out, for units that are edges."""
        if unit.footprint.records:
            return None
        both = unit.footprint.mirrored
        nodes = 2 + math.isqrt((2 if both else 1) * len(coins))  # hardly more pairs than canaries
        numbers = np.sort(rng.choice(count_pairs(nodes, undirected=both), len(coins), replace=False))
        graph = audit_graph(torch.zeros(nodes, 1), pair_edges(numbers[coins], nodes, undirected=both).edge_index())
        inputs = self.canary_inputs(count_pairs(nodes, undirected=self.undirected))
        found: MemoryEdges = open_vault(graph).release(stage.name, *inputs)
        seen = _directions_seen(numbers, found, both)
        ratios = (2.0 * seen / max(1, seen.max()) - 1.0) / (stage.scale or 1.0)
        return Evidence(ratios, "edge", parts=seen[:, None])


@dataclass(frozen=True)
class Pairs:
    """The numbers of the `linked` private pairs and of the `public` ones, both ascending."""

    linked: np.ndarray
    public: np.ndarray
    num_nodes: int
    undirected: bool

    @property
    def total(self) -> int:
        """How many pairs there are."""
        return count_pairs(self.num_nodes, undirected=self.undirected)

    def private_apart(self, numbers: np.ndarray) -> np.ndarray:
        """Those of the ascending `numbers` that are neither linked nor public."""
        return without(without(numbers, self.linked), self.public)

    def graph(self, numbers: np.ndarray) -> MemoryEdges:
        """The graph of these private pairs and the public ones."""
        return pair_edges(merged(numbers, self.public), self.num_nodes, undirected=self.undirected)


def _directions_seen(numbers: np.ndarray, found: MemoryEdges, both: bool) -> np.ndarray:
    """For every pair, how many of its directions (of one, or of both) are in the graph."""
    out, nodes = pair_numbers(found, undirected=False), found.num_nodes
    source, target = pair_ends(numbers, nodes, undirected=both)
    seen = np.isin(ordered_numbers(source, target, nodes), out).astype(np.float64)
    return seen + np.isin(ordered_numbers(target, source, nodes), out) if both else seen
