"""One edge is the secret: features, labels and the set of nodes are public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hushgraph.errors import InputError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.unit import Footprint, Unit

EDGES_PER_NODE = 10
"""Undirected edges per node to judge delta by, where their number, which is private, was not declared."""


@dataclass(frozen=True)
class _EdgeUnit(Unit):
    """Features, labels and the set of nodes are public; one edge more or less is the secret."""

    public = frozenset({"features", "labels"})
    unprotected: ClassVar[tuple[Note, ...]] = (
        note(Code.FEATURES),
        note(Code.LABELS),
        note(Code.NODE_SET),
        note(Code.MANY_EDGES),
    )

    def counted(self, metadata: Metadata) -> str:
        """Edges as declared, or an assumption: their real number is private."""
        if metadata.num_edges is not None:
            return "the number of edges, as declared"
        return f"for an assumed {EDGES_PER_NODE} edges per node; declare their number with --edges or num_edges="

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """The number of edges is declared, or it is not looked at."""
        known = metadata.num_edges
        edges = (
            note(Code.EDGES_ASSUMED, per_node=EDGES_PER_NODE)
            if known is None
            else note(Code.EDGES_DECLARED, edges=known)
        )
        return (edges, *super().notes(metadata))

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every edge left out, and some that are not there put in."""
        for pair in data.pairs(directed=not self.footprint.mirrored):
            yield data.without_pair(pair, both=self.footprint.mirrored)
        for pair in data.absent_pairs(rng):
            yield data.with_pair(pair, both=self.footprint.mirrored)


@dataclass(frozen=True)
class DirectedEdge(_EdgeUnit):
    """One directed edge is added or removed. Features, labels and the set of nodes are public."""

    name = "directed-edge"
    noun = "one directed edge"
    protects = "whether any one directed edge is in the graph"

    @property
    def footprint(self) -> Footprint:
        """One receiver gains or loses one row."""
        return Footprint(receivers=1, own_list=1, other_entries=0, records=0, groups=0, incident=True)

    @property
    def honest(self) -> Unit:
        """Publications count one direction of graphs that are symmetric: what they protect is half an edge."""
        return UndirectedEdge()

    def count(self, metadata: Metadata) -> int:
        """Directed edges, as declared."""
        assumed = 2 * EDGES_PER_NODE * metadata.num_nodes
        return assumed if metadata.num_edges is None else max(metadata.num_edges, metadata.num_nodes)

    def check(self, data: Any, *, paper_mode: bool = False) -> None:
        """A symmetric graph is refused: one edge would be two entries."""
        if not paper_mode and data.edges.num_edges and data.is_symmetric():
            raise InputError(
                "directed-edge: expected a directed graph; got a symmetric one, where one edge is two entries. "
                "Use the unit undirected-edge; paper mode compares with publications that count one direction"
            )


@dataclass(frozen=True)
class UndirectedEdge(_EdgeUnit):
    """One undirected edge, i.e. both entries of a symmetric graph, is added or removed."""

    name = "undirected-edge"
    noun = "one undirected edge (both of its directions)"
    protects = "whether any one pair of nodes is connected"

    @property
    def footprint(self) -> Footprint:
        """Two receivers, each gains or loses one row."""
        return Footprint(receivers=2, own_list=1, other_entries=1, records=0, groups=0, mirrored=True, incident=True)

    @property
    def published(self) -> Unit:
        """One direction of it."""
        return DirectedEdge()

    def count(self, metadata: Metadata) -> int:
        """Undirected edges: half of the declared entries."""
        assumed = EDGES_PER_NODE * metadata.num_nodes
        return assumed if metadata.num_edges is None else max(metadata.num_edges // 2, metadata.num_nodes)

    def check(self, data: Any, *, paper_mode: bool = False) -> None:
        """A directed graph is refused."""
        if not data.is_symmetric():
            raise InputError(
                f"{self.name}: expected a symmetric graph (both directions of every edge); got a directed one. "
                "Use the unit directed-edge, or make the graph symmetric (torch_geometric.utils.to_undirected)"
            )


@dataclass(frozen=True)
class PrivateEdge(UndirectedEdge):
    """One undirected edge of the private part is added or removed; edges that were declared public stay.

    Every such change is one of `UndirectedEdge`, so every bound of that unit holds; what was charged for this unit
    says nothing about the public edges.
    """

    name = "private-edge"
    noun = "one undirected edge that was not declared public (both of its directions)"
    protects = "whether any one pair of nodes outside the declared public edges is connected"
    unprotected = (*UndirectedEdge.unprotected, note(Code.PUBLIC_PART))

    @property
    def published(self) -> Unit:
        """The same: publications count private edges once."""
        return self

    def covers(self, other: Unit, *, edges: bool = True) -> bool:
        """Only units that leave the public edges public too."""
        return isinstance(other, PrivateEdge) and super().covers(other, edges=edges)

    def count(self, metadata: Metadata) -> int:
        """Undirected edges as declared, less the public ones."""
        if metadata.num_edges is None:
            return super().count(metadata)
        return max((metadata.num_edges - metadata.num_public_edges) // 2, metadata.num_nodes)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every private edge left out, and some that are not there put in."""
        known = data.public_pairs
        for pair in data.pairs(directed=False):
            if pair not in known:
                yield data.without_pair(pair, both=True)
        for pair in data.absent_pairs(rng):
            if pair not in known:
                yield data.with_pair(pair, both=True)
