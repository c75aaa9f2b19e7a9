"""Metadata: the public sizes of a dataset, and all that a plan may know about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

from hushgraph.errors import InputError

TRAIN_SHARE, VAL_SHARE = 0.75, 0.10
MANY_ROWS = 50_000
"""From so many rows on, plain training takes steps on a few thousand instead of all."""
MOST_CLASSES, MOST_FEATURES = 1 << 17, 1 << 24
MOST_NODES, MOST_EDGES = 1 << 40, 1 << 48
"""No dataset has more; a file that says so is damaged, or wants the memory."""
_MOST_PAIRS = 1 << 53
"""As many coins as a noise source tosses in one go."""


@dataclass(frozen=True)
class Metadata:
    """Sizes declared public.

    `num_edges` counts directed entries. It is never taken from the data: it is what a user declares to be public
    knowledge, or None. `num_public` counts the nodes whose records are public knowledge, `num_public_edges` the edges
    that are, one by one. With `multilabel` a node may have any number of the classes. Where numbers are predicted, the
    classes are equal parts of the declared range from `target_low` to `target_high`. With `weighted`, edges have
    weights within a declared bound; `edge_types` are the declared types of edges.
    """

    num_nodes: int
    num_train: int
    num_val: int = 0
    num_test: int = 0
    num_features: int | None = None
    num_classes: int | None = None
    num_edges: int | None = None
    name: str = "graph"
    num_public: int = 0
    num_public_edges: int = 0
    multilabel: bool = False
    target_low: float | None = None
    target_high: float | None = None
    weighted: bool = False
    edge_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = {name: value for name, value in vars(self).items() if name.startswith("num_") and value is not None}
        InputError.collect(
            f"{name}: expected a whole number; got {value!r}"
            for name, value in sizes.items()
            if isinstance(value, bool) or not isinstance(value, Integral)
        )
        least = {"nodes": (self.num_nodes, 1), "edges": (self.num_edges or 0, 0), "train nodes": (self.num_train, 0)}
        problems = [f"{what}: expected at least {low}; got {size}" for what, (size, low) in least.items() if size < low]
        if self.num_train > self.num_nodes >= 1:
            problems.append(f"train nodes: expected at most {self.num_nodes}; got {self.num_train}")
        most = {"nodes": (self.num_nodes, MOST_NODES), "edges": (self.num_edges or 0, MOST_EDGES)}
        most |= {"features": (self.num_features or 0, MOST_FEATURES), "classes": (self.num_classes or 0, MOST_CLASSES)}
        problems += [
            f"{what}: expected at most {top:,}; got {size:,}" for what, (size, top) in most.items() if size > top
        ]
        InputError.collect(problems)

    @classmethod
    def from_sizes(
        cls,
        num_nodes: int,
        num_edges: int | None = None,
        num_train: int | None = None,
        num_features: int | None = None,
        num_classes: int | None = None,
    ) -> Metadata:
        """Metadata for a plan without data; 75% of the nodes train unless said otherwise."""
        train = int(TRAIN_SHARE * max(0, num_nodes)) if num_train is None else num_train
        val = int(VAL_SHARE * num_nodes)
        rest = max(0, num_nodes - train - val)
        return cls(num_nodes, train, val, rest, num_features, num_classes, num_edges)

    @property
    def features(self) -> int:
        """The number of features, where one is needed."""
        return self._needed("features", self.num_features)

    @property
    def classes(self) -> int:
        """The number of classes, where one is needed."""
        return self._needed("classes", self.num_classes)

    def _needed(self, what: str, value: int | None) -> int:
        if value is None:
            raise InputError(f"{what}: expected their number, which the method needs; got none. Declare it")
        return value

    @property
    def types(self) -> int:
        """How many types of edges there are: one, where none were declared."""
        return max(1, len(self.edge_types))

    def as_dict(self) -> dict[str, Any]:
        """The metadata as plain JSON values."""
        values = asdict(self)
        unsaid = {name for name in ("multilabel", "weighted", "edge_types") if not values[name]}
        unsaid |= {"target_low", "target_high"} if self.target_low is None else set()
        return {key: value for key, value in values.items() if key not in unsaid}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Metadata:
        """The inverse of `as_dict`."""
        return cls(**{**values, "edge_types": tuple(values.get("edge_types", ()))})


EXAMPLE = Metadata(1_000, 750, 100, 150, 16, 4)
"""Sizes of a small graph, to ask a method what it would do."""


def count_pairs(num_nodes: int, *, undirected: bool) -> int:
    """How many pairs of different nodes there are."""
    ordered = num_nodes * (num_nodes - 1)
    found = ordered // 2 if undirected else ordered
    if found > _MOST_PAIRS:
        raise InputError(f"pairs of nodes: expected at most 2^53; got {found:.3g} of {num_nodes} nodes")
    return found
