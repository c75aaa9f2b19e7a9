"""What brute-force tests go through: every mechanism under every unit, and every graph that differs in one unit.

The matrix follows from what mechanisms and units declare, so a class that is registered later is in it, inside this
project or outside. Neighbors are listed by loops in Python and are meant for small graphs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hushgraph import registry
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.graph.rows import dense_rows
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import Unit

Pair = tuple[int, int]
Status = Literal["free", "bounded", "refused"]

# The matrix


@dataclass(frozen=True)
class Cell:
    """One mechanism under one unit. `bound` is the sensitivity, 0 where free and infinite where refused."""

    mechanism: Mechanism
    unit: Unit

    @property
    def bound(self) -> float:
        """How far one unit can move one answer."""
        return 0.0 if self.mechanism.reads <= self.unit.public else self.mechanism.sensitivity(self.unit)

    @property
    def status(self) -> Status:
        """Free: all that is read is public. Refused: no bound is proved. Bounded: everything else."""
        if self.mechanism.reads <= self.unit.public:
            return "free"
        return "bounded" if math.isfinite(self.bound) else "refused"


def mechanisms() -> list[Mechanism]:
    """The variants of all registered mechanisms."""
    return [one for name in registry.names("mechanisms") for one in registry.load("mechanisms", name).variants()]


def units() -> list[Unit]:
    """The variants of all registered units."""
    return [one for name in registry.names("units") for one in registry.load("units", name).variants()]


def matrix() -> Iterator[Cell]:
    """All cells, mechanism by mechanism."""
    for mechanism in mechanisms():
        for unit in units():
            yield Cell(mechanism, unit)


# Neighbors


@dataclass(frozen=True)
class NodeRecord:
    """What one node owns: its features, its label, and the list of nodes it sends to (None: the list stays)."""

    features: Tensor
    label: int
    receivers: tuple[int, ...] | None


@dataclass(frozen=True)
class Variations:
    """A checked graph whose neighbors can be asked for; `unit.neighbors(Variations(graph), rng)` lists them."""

    graph: CheckedGraph

    @property
    def metadata(self) -> Any:
        """The public sizes."""
        return self.graph.metadata

    @property
    def edges(self) -> Edges:
        """The edges."""
        return self.graph.edges

    @property
    def public_pairs(self) -> set[Pair]:
        """The pairs that were declared public, in both directions."""
        known = self.graph.public_edges
        listed = [] if known is None else known.edge_index().t().tolist()
        return {pair for one, other in listed for pair in ((one, other), (other, one))}

    def pairs(self, *, directed: bool) -> Iterator[Pair]:
        """The edges that are there; of an undirected graph, each once."""
        for source, target in self.graph.edges.edge_index().t().tolist():
            if directed or source < target:
                yield source, target

    def absent_pairs(self, rng: np.random.Generator, count: int = 5) -> Iterator[Pair]:
        """A few pairs that are not connected."""
        nodes, present = self.metadata.num_nodes, set(self.pairs(directed=True))
        for _ in range(count):
            source, target = (int(v) for v in rng.integers(0, nodes, size=2))
            if source != target and (source, target) not in present and (target, source) not in present:
                yield source, target

    def without_pair(self, pair: Pair, *, both: bool) -> CheckedGraph:
        """The graph without an edge."""
        gone = {pair, pair[::-1]} if both else {pair}
        return self._with_edges([edge for edge in self.pairs(directed=True) if edge not in gone])

    def with_pair(self, pair: Pair, *, both: bool) -> CheckedGraph:
        """The graph with one edge more."""
        return self._with_edges([*self.pairs(directed=True), pair, *([pair[::-1]] if both else [])])

    def without_node(self, node: int) -> CheckedGraph:
        """The graph with an empty record for `node`, and without the entries of other lists that name it."""
        empty = self.with_record(node, None)
        kept = [edge for edge in Variations(empty).pairs(directed=True) if node not in edge]
        return replace(empty, edges=_edges(kept, self.metadata.num_nodes))

    def with_record(self, node: int, record: NodeRecord | None) -> CheckedGraph:
        """The graph with another record for `node`; None is the empty one: no features, no label, no list."""
        features = dense_rows(self.graph.features).clone()
        labels = self.graph.labels.clone()
        features[node] = 0.0 if record is None else record.features
        labels[node] = -1 if record is None else record.label
        receivers: tuple[int, ...] | None = () if record is None else record.receivers
        edges = self.graph.edges
        if receivers is not None:
            others = [edge for edge in self.pairs(directed=True) if edge[0] != node]
            edges = _edges([*others, *((node, receiver) for receiver in receivers)], self.metadata.num_nodes)
        return replace(self.graph, features=features, labels=labels, edges=edges)

    def with_group(self, label: int, part: int, parts: int, change: str, rng: np.random.Generator) -> CheckedGraph:
        """The table with other records in one part of a class; the part of a record is its number modulo `parts`.

        `change`: all become empty ("removed"), get random or opposite features, or random ones in every other record.
        """
        features, labels = dense_rows(self.graph.features).clone(), self.graph.labels.clone()
        numbers = torch.arange(len(labels))
        members = numbers[(labels == label) & (numbers % parts == part)]
        gone = members if change == "removed" else members[::2] if change == "fewer" else members[:0]
        if change in ("random", "fewer"):
            drawn = 3.0 * rng.standard_normal((len(members), features.shape[1]))
            features[members] = torch.from_numpy(drawn).to(features.dtype)
        features[members] *= -1.0 if change == "opposite" else 1.0
        features[gone], labels[gone] = 0.0, -1
        return replace(self.graph, features=features, labels=labels)

    def random_record(
        self, node: int, rng: np.random.Generator, *, keep_list: bool = False, keep_label: bool = False
    ) -> NodeRecord:
        """A record that is as different as chance makes it."""
        nodes, columns = self.metadata.num_nodes, int(self.graph.features.shape[1])
        others = [other for other in range(nodes) if other != node]
        length = int(rng.integers(0, len(others) + 1))
        return NodeRecord(
            features=torch.from_numpy(3.0 * rng.standard_normal(columns)).to(torch.float32),
            label=int(self.graph.labels[node]) if keep_label else int(rng.integers(0, self.metadata.classes)),
            receivers=None if keep_list else tuple(int(v) for v in rng.choice(others, size=length, replace=False)),
        )

    def opposite_record(self, node: int) -> NodeRecord:
        """The record with its features turned round and another label; the list stays."""
        label = (int(self.graph.labels[node]) + 1) % self.metadata.classes
        return NodeRecord(-dense_rows(self.graph.features)[node], label, None)

    def _with_edges(self, pairs: list[Pair]) -> CheckedGraph:
        return replace(self.graph, edges=_edges(pairs, self.metadata.num_nodes))


def _edges(pairs: list[Pair], nodes: int) -> MemoryEdges:
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    return MemoryEdges.from_edge_index(index, nodes).coalesce()
