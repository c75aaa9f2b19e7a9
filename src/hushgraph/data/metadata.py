"""The public facts about a graph: all that a plan may know."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from hushgraph.errors import InputError
from hushgraph.privacy.units import EDGE_UNITS, Unit

TRAIN_SHARE, VAL_SHARE = 0.75, 0.10


@dataclass(frozen=True)
class PublicFacts:
    """Sizes declared public. `num_edges` counts directed entries and is used for delta only.

    It is None where the unit makes it private: see `for_unit`.
    """

    num_nodes: int
    num_edges: int | None
    num_train: int
    num_val: int = 0
    num_test: int = 0
    num_features: int | None = None
    num_classes: int | None = None
    name: str = "graph"

    def __post_init__(self) -> None:
        least = {"nodes": (self.num_nodes, 1), "edges": (self.num_edges or 0, 0), "train nodes": (self.num_train, 0)}
        problems = [f"{what}: expected at least {low}; got {size}" for what, (size, low) in least.items() if size < low]
        if self.num_train > self.num_nodes:
            problems.append(f"train nodes: expected at most {self.num_nodes}; got {self.num_train}")
        InputError.collect(problems)

    @classmethod
    def from_sizes(
        cls,
        num_nodes: int,
        num_edges: int | None = None,
        num_train: int | None = None,
        num_classes: int | None = None,
    ) -> PublicFacts:
        """Facts for a plan without data; 75% of the nodes train unless said otherwise."""
        train = int(TRAIN_SHARE * num_nodes) if num_train is None else num_train
        val = int(VAL_SHARE * num_nodes)
        return cls(num_nodes, num_edges, train, val, max(0, num_nodes - train - val), num_classes=num_classes)

    def for_unit(self, unit: Unit) -> PublicFacts:
        """The facts without those that `unit` makes private.

        The number of edges stays where edges are public, and where they are the protected unit themselves: there it is
        taken as public to set delta, and the certificate says so. Elsewhere it adds up private lists and is dropped.
        """
        public = unit.name in EDGE_UNITS or "edges" in unit.public
        return self if public or self.num_edges is None else replace(self, num_edges=None)

    def count_units(self, unit: Unit) -> int:
        """How many units a dataset of this size holds."""
        if self.num_edges is None and unit.name in EDGE_UNITS:
            raise InputError(f"edges: expected their number, which sets delta under the unit '{unit.name}'; got none")
        return unit.count(self.num_nodes, self.num_edges or 0)

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain JSON values."""
        return asdict(self)
