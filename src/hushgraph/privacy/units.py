"""What is protected: the unit of privacy, a typed and required value.

A guarantee means nothing without the change it hides. A `Unit` says which change that is, what it leaves public, and
how far it can move the two things that leave a vault: a sum over in-neighbors, and a sum of clipped gradients.
A mechanism asks the unit for its bound; a unit that has none refuses by name (deny by default).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, ClassVar

from hushgraph.errors import InputError, UnprovenError, did_you_mean


class Relation(Enum):
    """How two neighboring datasets differ in one unit."""

    ADD_OR_REMOVE = "added or removed"
    NULL = "replaced by a null record"
    REPLACE = "replaced by any other record"


@dataclass(frozen=True)
class Unit:
    """Base of all units. Subclasses state their neighbors in `change` and their bounds in the two methods.

    `public` names the parts of a graph that every neighbor shares, out of `edges`, `features`, `labels`.
    """

    name: ClassVar[str]
    relation: ClassVar[Relation] = Relation.ADD_OR_REMOVE
    public: ClassVar[frozenset[str]] = frozenset()
    change: ClassVar[str]
    protects: ClassVar[str]
    not_protected: ClassVar[tuple[str, ...]] = ()

    def aggregation_sensitivity(self, row_norm: float) -> float:
        """L2 change of `A^T X` over one unit, when every row of X has norm at most `row_norm`."""
        raise UnprovenError(f"no bound is known for a sum over neighbors under the unit '{self.name}'")

    def examples_touched(self) -> int:
        """How many examples of a row-wise training set one unit can change (0: none, training is free)."""
        raise UnprovenError(f"no bound is known for per-example gradients under the unit '{self.name}'")

    def count(self, num_nodes: int, num_edges: int) -> int:
        """How many units a dataset of this public size holds (sets the default and the largest delta)."""
        return num_nodes

    @property
    def max_out_degree(self) -> int | None:
        """The cap on a node's own list of receivers, where the unit needs one."""
        return None

    @property
    def degree_promised(self) -> bool:
        """True when the degree bound is a promise about the input (checked) rather than a cap (applied)."""
        return False

    def as_dict(self) -> dict[str, Any]:
        """The unit as plain JSON values."""
        return {"name": self.name, **asdict(self)}

    def __str__(self) -> str:
        return self.name


_EDGE_PUBLIC = frozenset({"features", "labels"})


@dataclass(frozen=True)
class DirectedEdge(Unit):
    """One directed edge is added or removed. Features, labels and the node set are public."""

    name = "directed-edge"
    public = _EDGE_PUBLIC
    change = "one directed edge is added or removed"
    protects = "whether any one directed edge is in the graph"
    not_protected = ("features", "labels", "the set of nodes", "many edges of one node together")

    def aggregation_sensitivity(self, row_norm: float) -> float:
        """One receiver gains or loses one row."""
        return row_norm

    def examples_touched(self) -> int:
        """No example: features and labels are public."""
        return 0

    def count(self, num_nodes: int, num_edges: int) -> int:
        """Directed edges."""
        return num_edges


@dataclass(frozen=True)
class UndirectedEdge(Unit):
    """One friendship, i.e. both entries of a symmetric graph, is added or removed."""

    name = "undirected-edge"
    public = _EDGE_PUBLIC
    change = "one undirected edge (both of its directions) is added or removed"
    protects = "whether any one pair of nodes is connected"
    not_protected = ("features", "labels", "the set of nodes", "many edges of one node together")

    def aggregation_sensitivity(self, row_norm: float) -> float:
        """Two receivers, each gains or loses one row: sqrt(2)."""
        return math.sqrt(2.0) * row_norm

    def examples_touched(self) -> int:
        """No example: features and labels are public."""
        return 0

    def count(self, num_nodes: int, num_edges: int) -> int:
        """Undirected edges: half of the stored entries."""
        return num_edges // 2


@dataclass(frozen=True)
class Node(Unit):
    """One node's own record (features, label, outgoing list capped at `max_degree`) becomes null.

    The list belongs to the node that sends; it is capped with that record's own randomness and never refilled, so
    no other node's list changes. The set of nodes is public, and so are the other nodes' lists, even where they
    name this node.
    """

    max_degree: int = 100

    name = "node"
    relation = Relation.NULL
    change = "one node's own record (features, label and its own outgoing list) becomes null"
    protects = "one node's features, label and own list of neighbors"
    not_protected = (
        "the set of nodes and the train/validation/test membership",
        "entries of other nodes' lists that name the node",
        "a prediction about the node itself: it is computed from the node's own record",
    )

    def __post_init__(self) -> None:
        if not isinstance(self.max_degree, int) or isinstance(self.max_degree, bool) or self.max_degree < 1:
            raise InputError(f"max_degree: expected a whole number of at least 1; got {self.max_degree!r}")

    def aggregation_sensitivity(self, row_norm: float) -> float:
        """At most `max_degree` receivers lose one row each: sqrt(D)."""
        return math.sqrt(self.max_degree) * row_norm

    def examples_touched(self) -> int:
        """Its own example."""
        return 1

    @property
    def max_out_degree(self) -> int | None:
        """The cap D."""
        return self.max_degree


@dataclass(frozen=True)
class NodeReplace(Node):
    """As `Node`, but the record is replaced by any other record."""

    name = "node-replace"
    relation = Relation.REPLACE
    change = "one node's own record (features, label and its own outgoing list) is replaced by any other"

    def aggregation_sensitivity(self, row_norm: float) -> float:
        """D receivers lose a row and D gain one, possibly the same with opposite rows: 2 sqrt(D)."""
        return 2.0 * math.sqrt(self.max_degree) * row_norm


@dataclass(frozen=True)
class NodePromise(Node):
    """One node with everything incident to it is removed; both graphs have degree at most `max_degree`.

    Nothing is dropped to reach the bound: an input over it is refused. The rows of the other nodes move by
    sqrt(D); the node's own row is part of its own record.
    """

    name = "node-promise"
    change = "one node with everything incident to it is removed, in a graph of promised maximum degree"
    protects = "one node's features, label and all its edges"
    not_protected = (
        "the set of nodes and the train/validation/test membership",
        "the promise itself: no node has more neighbors than the stated maximum",
        "the node's own aggregated row and a prediction about the node itself",
    )

    @property
    def degree_promised(self) -> bool:
        """The degree bound is checked, not applied."""
        return True


@dataclass(frozen=True)
class Record(Unit):
    """One record of a table without edges is added or removed."""

    name = "record"
    change = "one record (features and label) is added or removed"
    protects = "one record's features and label"
    not_protected = ("the number of records", "a prediction about the record itself")

    def examples_touched(self) -> int:
        """Its own example."""
        return 1


@dataclass(frozen=True)
class Local(Unit):
    """One person's own features (and label) become any other. Only a randomized report leaves the person's device.

    The edges are public: the server has them. `private_labels=False` says that labels are public too.
    `range_from_data` marks what can be proved when the range of the features was taken from raw values: nothing.
    """

    private_labels: bool = True
    range_from_data: bool = False

    name = "local"
    relation = Relation.REPLACE
    public = frozenset({"edges"})
    change = "one person's features and label are replaced by any others"
    protects = "one person's features and label, from everybody including the server"
    not_protected = ("the edges", "the set of people and the train/validation/test membership")

    def __post_init__(self) -> None:
        if self.private_labels:
            return
        shown = {
            "public": frozenset({"edges", "labels"}),
            "change": "one person's features are replaced by any others",
            "protects": "one person's features, from everybody including the server",
            "not_protected": ("the labels", *self.not_protected),
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)


UNITS: dict[str, type[Unit]] = {
    unit.name: unit for unit in (DirectedEdge, UndirectedEdge, Node, NodeReplace, NodePromise, Record, Local)
}


EDGE_UNITS = frozenset({"directed-edge", "undirected-edge"})
NODE_UNITS = frozenset({"node", "node-replace", "node-promise"})


def by_name(name: str, **parameters: Any) -> Unit:
    """The unit called `name`; parameters such as `max_degree` go to those that take them."""
    if name not in UNITS:
        raise InputError(f"unknown unit '{name}'; {did_you_mean(name, UNITS)}")
    make: Callable[..., Unit] = UNITS[name]
    try:
        return make(**parameters)
    except TypeError as error:
        raise InputError(f"the unit '{name}' takes no parameter {', '.join(sorted(parameters))}") from error


def from_dict(values: dict[str, Any]) -> Unit:
    """The inverse of `Unit.as_dict`."""
    parameters = dict(values)
    return by_name(parameters.pop("name"), **parameters)
