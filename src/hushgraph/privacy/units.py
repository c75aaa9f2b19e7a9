"""What is protected: the unit of privacy, a typed value that every epsilon is stated with.

A guarantee means nothing without the change it hides. What a unit says of itself is in `unit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.unit import Footprint as Footprint
from hushgraph.privacy.unit import Relation as Relation
from hushgraph.privacy.unit import Unit as Unit

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
        return max(1, (metadata.num_edges - metadata.num_public_edges) // 2)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every private edge left out, and some that are not there put in."""
        known = data.public_pairs
        for pair in data.pairs(directed=False):
            if pair not in known:
                yield data.without_pair(pair, both=True)
        for pair in data.absent_pairs(rng):
            if pair not in known:
                yield data.with_pair(pair, both=True)


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
class Class(Unit):
    """All records of one class are replaced by any others of that class, or, with `removal`, by empty ones.

    The classes are public, and so is the number of records in all; how many a class has is not: records of the class
    may become empty, and empty ones records of the class.
    """

    removal: bool = False

    name = "class"
    noun = "all records of one class"
    protects = "what the records of any one class look like, and how many there are"
    relation = Relation.REPLACE
    has_edges = False
    unprotected: ClassVar[tuple[Note, ...]] = (note(Code.NUM_RECORDS), note(Code.CLASSES), note(Code.OWN_PREDICTION))

    def __post_init__(self) -> None:
        if self.removal:
            object.__setattr__(self, "relation", Relation.NULL)

    @property
    def change(self) -> str:
        """The change that is hidden, in words."""
        return f"{self.noun} are replaced by {'empty ones' if self.removal else 'any others'}"

    @property
    def footprint(self) -> Footprint:
        """One group, of any number of records."""
        return Footprint(groups=1, replaced=not self.removal)

    def count(self, metadata: Metadata) -> int:
        """Groups."""
        return metadata.classes * self.footprint.parts

    def counted(self, metadata: Metadata) -> str:
        """Groups."""
        return f"the number of {'classes' if self.footprint.parts == 1 else 'parts of classes'}"

    @classmethod
    def variants(cls) -> list[Unit]:
        """Replaced, and removed."""
        return [cls(), cls(removal=True)]

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every group removed; if groups are replaced, also by random records, by opposite ones and by fewer.

        The part of a record is its number modulo the parts: a rule that is given with the data.
        """
        parts = self.footprint.parts
        for group in range(data.metadata.classes * parts):
            for change in ("removed",) if self.removal else ("removed", "random", "opposite", "fewer"):
                yield data.with_group(group // parts, group % parts, parts, change, rng)


@dataclass(frozen=True)
class Subclass(Class):
    """All records of one given part of one class are replaced; they stay in their class and part.

    `parts`: into how many parts the records of a class fall, by a public rule that looks at one record at a time.
    """

    parts: int = 50

    name = "subclass"
    noun = "all records of one part of one class"
    protects = "what the records of any one part of a class look like, and how many there are"
    unprotected = (note(Code.NUM_RECORDS), note(Code.CLASSES), note(Code.PARTS), note(Code.OWN_PREDICTION))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, int) or isinstance(self.parts, bool) or self.parts < 1:
            raise InputError(f"parts: expected a whole number of at least 1; got {self.parts!r}")

    @property
    def footprint(self) -> Footprint:
        """One group, of any number of records."""
        return Footprint(groups=1, parts=self.parts, replaced=not self.removal)

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """The number of parts."""
        return (*super().notes(metadata), note(Code.PARTS_OF_CLASSES, parts=self.parts))

    @classmethod
    def variants(cls) -> list[Unit]:
        """Two parts, which small tables fill, replaced and removed."""
        return [cls(parts=2), cls(parts=2, removal=True)]


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
