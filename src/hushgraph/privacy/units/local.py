"""One person's own data, hidden from everybody, the server included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.unit import Relation, Unit


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
            "noun": "one person's data (features)",
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
