"""One node is the secret: its record, with its own list of neighbors or with all its edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hushgraph.errors import InputError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.unit import Footprint, Relation, Unit


@dataclass(frozen=True)
class Node(Unit):
    """One node's own record (features, label, outgoing list capped at `max_degree`) is replaced by an empty one.

    The list belongs to the node that sends; it is capped with that record's own randomness and never refilled, so
    no other node's list changes. The set of nodes is public, and so are the other nodes' lists, even where they
    name this node.
    """

    max_degree: int = 100

    name = "node"
    noun = "one node's own record (features, label and outgoing list)"
    protects = "one node's features, label and own list of neighbors"
    relation = Relation.NULL
    unprotected: ClassVar[tuple[Note, ...]] = (note(Code.SPLIT), note(Code.OTHER_LISTS), note(Code.OWN_PREDICTION))

    def __post_init__(self) -> None:
        if not isinstance(self.max_degree, int) or isinstance(self.max_degree, bool) or self.max_degree < 1:
            raise InputError(f"max_degree: expected a whole number of at least 1; got {self.max_degree!r}")

    @property
    def footprint(self) -> Footprint:
        """At most `max_degree` receivers lose one row each; no other list changes."""
        return Footprint(receivers=self.max_degree, other_entries=0, records=1, incident=True)

    @property
    def cap(self) -> int | None:
        """The cap D."""
        return self.max_degree

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """The cap."""
        return (*super().notes(metadata), note(Code.DEGREE_CAP, max_degree=self.max_degree))

    @classmethod
    def variants(cls) -> list[Unit]:
        """With the usual cap, and with one that small graphs reach."""
        return [cls(), cls(max_degree=4)]

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every record made empty."""
        for node in range(data.metadata.num_nodes):
            yield data.with_record(node, None)


@dataclass(frozen=True)
class NodeReplace(Node):
    """As `Node`, but the record is replaced by any other record."""

    name = "node-replace"
    relation = Relation.REPLACE

    @property
    def footprint(self) -> Footprint:
        """As for `Node`, and as many receivers again for the record that takes its place."""
        return Footprint(receivers=self.max_degree, other_entries=0, records=1, replaced=True, incident=True)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every record replaced by a random one, and by its opposite."""
        for node in range(data.metadata.num_nodes):
            yield data.with_record(node, data.random_record(node, rng))
            yield data.with_record(node, data.opposite_record(node))


@dataclass(frozen=True)
class BoundedDegreeNode(Node):
    """One node with all its edges is removed; both graphs have degree at most `max_degree`.

    Nothing is dropped to reach the bound: an input over it is refused. The rows of the other nodes move by
    sqrt(D); the node's own row is part of its own record.
    """

    name = "bounded-degree-node"
    noun = "one node with all its edges"
    protects = "one node's features, label and all its edges"
    unprotected = (note(Code.SPLIT), note(Code.OWN_ROW))

    @property
    def footprint(self) -> Footprint:
        """Its own list and one entry in each of at most D others."""
        most = self.max_degree
        return Footprint(receivers=most, own_list=most, other_entries=most, records=1, incident=True)

    @property
    def cap(self) -> int | None:
        """None: the bound is checked, not applied."""
        return None

    @property
    def promised_degree(self) -> float:
        """The bound D."""
        return self.max_degree

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """The promise."""
        return (*Unit.notes(self, metadata), note(Code.DEGREE_BOUND, max_degree=self.max_degree))

    def check(self, data: Any, *, paper_mode: bool = False) -> None:
        """An input over the promised degree, in either direction, is refused."""
        if not data.metadata.num_nodes:
            return
        if data.largest_degree() > self.max_degree:
            raise InputError(
                f"{self.name}: expected no node with more than {self.max_degree} neighbors (max_degree); got one. "
                "Raise max_degree if the bound is known without the data, or use the unit node"
            )

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every node made empty, with all entries that name it."""
        for node in range(data.metadata.num_nodes):
            yield data.without_node(node)


@dataclass(frozen=True)
class NodeWithEdges(Unit):
    """One node with all its incident edges, in and out and however many, is replaced by an empty isolated one.

    Nothing bounds how many other nodes' lists and sums change, so that plain sums over neighbors are refused; what can
    be bounded is what depends on few nodes by itself, and sums along balanced weights. The set of nodes is public.
    """

    name = "node-with-edges"
    noun = "one node (features, label) with all its edges"
    protects = "one node's features, label and all its edges, however many"
    relation = Relation.NULL
    unprotected = (note(Code.SPLIT), note(Code.OWN_ROW))

    @property
    def footprint(self) -> Footprint:
        """One record and any number of entries, all of them of this node."""
        return Footprint(records=1, incident=True)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every node made empty, with all entries that name it."""
        for node in range(data.metadata.num_nodes):
            yield data.without_node(node)
