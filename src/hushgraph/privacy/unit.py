"""The base of all units of privacy: which change is hidden, what it leaves public, and its footprint in numbers.

The bound of every mechanism is arithmetic on the `Footprint`: how much of a graph one change can touch. A number that
is infinite (the default) means that no bound is known, so what needs it is refused. The units are in `units`.
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
    groups: whole groups of records that change, where a group is one of the `parts` of one class.
    parts: how many groups the records of a class fall into, by a public rule that looks at one record at a time.
    replaced: the record becomes another one, not an empty one.
    mirrored: `own_list` and `other_entries` are the two directions of one pair.
    incident: at most one node's record changes, and every entry that changes leads from or to one and the same node.
    """

    receivers: float = math.inf
    own_list: float = math.inf
    other_entries: float = math.inf
    records: float = math.inf
    groups: float = math.inf
    parts: int = 1
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
