"""What is protected: the unit of privacy, a typed value that every epsilon is stated with.

A guarantee means nothing without the change it hides. A `Unit` says which change that is, what it leaves public, and
its `Footprint`: how much of a graph one such change can touch, in numbers. The bound of every mechanism is arithmetic
on the footprint; a number that is infinite (the default) means that no bound is known, so what needs it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note

EDGES_PER_NODE = 10
"""Undirected edges per node to judge delta by, where their number, which is private, was not declared."""


class Relation(Enum):
    """How two neighboring datasets differ in one unit."""

    ADD_OR_REMOVE = "added or removed"
    NULL = "replaced by an empty one"
    REPLACE = "replaced by any other"


@dataclass(frozen=True)
class Footprint:
    """What one unit can change. Proofs in docs/proofs/ name the fields they use.

    receivers: other nodes whose sum over in-neighbors changes, each by one row, after the unit's own cap: an entry that
        leads to them comes or goes, or the row behind it changes with its node's record.
    own_list: entries of the unit's own list that change, before any cap.
    other_entries: entries of other nodes' lists that change.
    records: records (features, label) that change.
    groups: whole groups of records that change.
    replaced: the record becomes another one, not an empty one.
    mirrored: `own_list` and `other_entries` are the two directions of one pair.
    incident: at most one node's record changes, and every entry that changes leads from or to one and the same node.
    """

    receivers: float = math.inf
    own_list: float = math.inf
    other_entries: float = math.inf
    records: float = math.inf
    groups: float = math.inf
    replaced: bool = False
    mirrored: bool = False
    incident: bool = False

    @property
    def owned(self) -> bool:
        """Whether the change is one node's own record, its own outgoing list included, and nothing else."""
        return self.records == 1 and self.other_entries == 0


@dataclass(frozen=True)
class Unit:
    """Base of all units: `noun` is the thing that changes, `relation` how.

    `public` names the parts of a dataset that every neighbor shares, out of `edges`, `features`, `labels`. With
    `trust` "local" no server may see a raw value. A unit of a table without edges has no `has_edges`.
    """

    kind: ClassVar[registry.Kind] = "units"
    name: ClassVar[str]
    noun: ClassVar[str]
    protects: ClassVar[str]
    relation: ClassVar[Relation] = Relation.ADD_OR_REMOVE
    public: ClassVar[frozenset[str]] = frozenset()
    trust: ClassVar[Literal["central", "local"]] = "central"
    has_edges: ClassVar[bool] = True
    unprotected: ClassVar[tuple[Note, ...]] = ()

    @property
    def change(self) -> str:
        """The change that is hidden, in words."""
        return f"{self.noun} is {self.relation.value}"

    @property
    def footprint(self) -> Footprint:
        """How much one unit can change; nothing is known unless a subclass says so."""
        return Footprint()

    @property
    def cap(self) -> int | None:
        """How many entries of a node's own list are used, where the unit cuts lists."""
        return None

    @property
    def promised_degree(self) -> float:
        """The most neighbors that a node of the data can have, where the unit promises that and `check` sees to it."""
        return math.inf

    @property
    def honest(self) -> Unit:
        """The unit that is charged where a publication states this one (paper mode)."""
        return self

    @property
    def published(self) -> Unit:
        """The unit that publications state for such data; paper mode takes it where none is named."""
        return self

    def covers(self, other: Unit, *, edges: bool = True) -> bool:
        """Whether a run that was charged for this unit can be priced for `other` by the same bounds.

        What is public here was handed out raw, so it must be public there too. Lists were cut by this unit's cap, and
        the bounds of `other` are about lists that its own cap cuts, or of data that keeps its promise; that does not
        matter to a run that reads no list (`edges=False`). The trust must be the same.
        """
        same_lists = self.cap == other.cap and self.promised_degree <= other.promised_degree
        return self.public <= other.public and (same_lists or not edges) and self.trust == other.trust

    def count(self, metadata: Metadata) -> int:
        """How many units a dataset of this public size holds: sets the default and the largest delta.

        Never fewer than nodes: their number is known, and a number of edges that is declared too small must not make
        delta large.
        """
        return metadata.num_nodes

    def counted(self, metadata: Metadata) -> str:
        """How `count` counts, in words."""
        return "the number of nodes"

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """What the unit takes as public beyond sizes and settings."""
        return tuple(note(Code.ALL_OF, part=part) for part in sorted(self.public))

    def check(self, data: Any, *, paper_mode: bool = False) -> None:
        """Refuse data whose neighbors are not of this kind, or that breaks a promise of the unit."""

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Datasets that differ from `data` in one unit: tests and audits go through them."""
        raise NotImplementedError(f"the unit '{self.name}' lists no neighbors")

    @classmethod
    def variants(cls) -> list[Unit]:
        """Typical units of this kind, for tables and tests."""
        return [cls()]

    def as_dict(self) -> dict[str, Any]:
        """The unit as plain JSON values."""
        return {"name": self.name, **asdict(self)}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _EdgeUnit(Unit):
    """Features, labels and the set of nodes are public; one edge more or less is the secret."""

    public = frozenset({"features", "labels"})
    unprotected = (note(Code.FEATURES), note(Code.LABELS), note(Code.NODE_SET), note(Code.MANY_EDGES))

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
        if not paper_mode and data.edges.num_edges and data.edges.is_symmetric():
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
        if not data.edges.is_symmetric():
            raise InputError(
                "undirected-edge: expected a symmetric graph (both directions of every edge); got a directed one. "
                "Use the unit directed-edge, or make the graph symmetric (torch_geometric.utils.to_undirected)"
            )


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
        largest = max(int(data.edges.out_degree().max()), int(data.edges.in_degree().max()))
        if largest > self.max_degree:
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

    Nothing bounds how many other nodes' lists and sums change, so that sums over neighbors are refused; what can be
    bounded is what depends on few nodes by itself. The set of nodes is public.
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


@dataclass(frozen=True)
class Record(Unit):
    """One record of a table without edges is replaced by an empty one; the number of records is public."""

    name = "record"
    noun = "one record (features and label)"
    protects = "one record's features and label"
    relation = Relation.NULL
    has_edges = False
    unprotected = (note(Code.NUM_RECORDS), note(Code.OWN_PREDICTION))

    @property
    def footprint(self) -> Footprint:
        """One record; nothing is known about edges."""
        return Footprint(records=1)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every record made empty."""
        for node in range(data.metadata.num_nodes):
            yield data.with_record(node, None)


@dataclass(frozen=True)
class Local(Unit):
    """One person's own features (and label) are replaced. Only a randomized report leaves the person's device.

    The edges are public: the server has them. `private_labels=False` says that labels are public too.
    """

    private_labels: bool = True

    name = "local"
    noun = "one person's data (features and label)"
    protects = "one person's features and label, from everybody including the server"
    relation = Relation.REPLACE
    public = frozenset({"edges"})
    trust = "local"
    unprotected = (note(Code.EDGES), note(Code.PEOPLE))

    def __post_init__(self) -> None:
        if self.private_labels:
            return
        shown = {
            "public": frozenset({"edges", "labels"}),
            "noun": "one person's features",
            "protects": "one person's features, from everybody including the server",
            "unprotected": (note(Code.LABELS), *self.unprotected),
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)

    @classmethod
    def variants(cls) -> list[Unit]:
        """With private and with public labels."""
        return [cls(), cls(private_labels=False)]

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every person's features (and label) replaced by random ones."""
        for node in range(data.metadata.num_nodes):
            yield data.with_record(
                node, data.random_record(node, rng, keep_list=True, keep_label=not self.private_labels)
            )


def as_unit(given: Any) -> Unit:
    """A unit, its class or its name as a unit."""
    if isinstance(given, Unit):
        return given
    if isinstance(given, str):
        return by_name(given)
    if isinstance(given, type) and issubclass(given, Unit):
        return given()
    known = ", ".join(registry.names("units"))
    raise InputError(f"unit: expected a unit such as hushgraph.units.Node(), or a name ({known}); got {given!r}")


def by_name(name: str, **parameters: Any) -> Unit:
    """The unit called `name`; parameters such as `max_degree` go to those that take them."""
    found: Any = registry.load("units", name)
    try:
        unit: Unit = found(**parameters)
        return unit
    except TypeError as error:
        raise InputError(f"the unit '{name}' takes no parameter {', '.join(sorted(parameters))}") from error


def from_dict(values: dict[str, Any]) -> Unit:
    """The inverse of `Unit.as_dict`."""
    parameters = dict(values)
    parameters.pop("range_from_data", None)  # of older files; a parameter of the report now
    return by_name(parameters.pop("name"), **parameters)
