"""What was done to data on the way in: facts first, one line each when they are shown.

The counts are about private data. They are for whoever holds the data, and never leave with a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NO_DIRECTION = (
    "edges: expected to be told what a line is; got neither. A friendship or another mutual relation: --undirected "
    "(directed=False). An edge from the first to the second node: --directed (directed=True). The guarantee is about "
    "one such edge"
)
"""What is said where nobody said it."""


class Code(StrEnum):
    """The kinds of findings."""

    HEADER = "header"
    NO_HEADER = "no-header"
    EXTRA_COLUMNS = "extra-columns"
    BOTH_DIRECTIONS = "both-directions"
    MISSING_ENDS = "missing-ends"
    UNKNOWN_ENDS = "unknown-ends"
    SELF_LOOPS = "self-loops"
    REPEATED_EDGES = "repeated-edges"
    OTHER_TYPES = "other-types"
    PUBLIC_EDGES = "public-edges"
    ISOLATED = "isolated"
    MISSING_LABELS = "missing-labels"
    FOUND_CLASSES = "found-classes"
    EMPTY_CLASSES = "empty-classes"
    MISSING_VALUES = "missing-values"
    CLIPPED = "clipped"
    OTHER_CATEGORY = "other-category"
    IGNORED_COLUMNS = "ignored-columns"
    NO_FEATURES = "no-features"
    NO_SPLIT = "no-split"
    IN_NO_SPLIT = "in-no-split"


_SENTENCES = {
    Code.HEADER: "the first line of {where} ({what}) was taken as the names of its columns",
    Code.NO_HEADER: "{where} has no line with names: the first two columns are the ends of an edge",
    Code.EXTRA_COLUMNS: "columns of edges that are not used: {what}",
    Code.BOTH_DIRECTIONS: "each line stands for an undirected edge: both of its directions are stored",
    Code.MISSING_ENDS: "{count} edges without one of their ends were left out",
    Code.UNKNOWN_ENDS: "{count} edges that name a node which is not in the list of nodes were left out",
    Code.SELF_LOOPS: "{count} edges from a node to itself were left out",
    Code.REPEATED_EDGES: "{count} repeated edges were kept once",
    Code.OTHER_TYPES: "{count} edges of a type that was not declared were left out",
    Code.PUBLIC_EDGES: "{count} edges of {where} are public knowledge; they are edges of the graph, whether the table "
    "of edges has them or not",
    Code.ISOLATED: "{count} nodes have no edge; they stay in the graph",
    Code.MISSING_LABELS: "{count} nodes have no label; they stay in the graph and in the split, as empty records",
    Code.FOUND_CLASSES: "classes were not declared: the {count} labels that occur are used, which is allowed only "
    "where labels are public (declare them with classes)",
    Code.EMPTY_CLASSES: "{count} declared classes have no node in the data; they stay, because they were declared",
    Code.MISSING_VALUES: "column {what}: {count} missing values became {fill}",
    Code.CLIPPED: "column {what}: {count} values outside of the declared range were moved to its ends",
    Code.OTHER_CATEGORY: "column {what}: {count} values that are no declared category became zeros",
    Code.IGNORED_COLUMNS: "columns of nodes that are not used: {what}",
    Code.NO_FEATURES: "no column was declared as a feature: every node has the same single feature, 1",
    Code.NO_SPLIT: "no column says who is trained on: a random split is made when the graph is used",
    Code.IN_NO_SPLIT: "{count} nodes are in no part of the split",
}

_OF_ONE = {
    Code.MISSING_ENDS: "1 edge without one of its ends was left out",
    Code.UNKNOWN_ENDS: "1 edge that names a node which is not in the list of nodes was left out",
    Code.SELF_LOOPS: "1 edge from a node to itself was left out",
    Code.REPEATED_EDGES: "1 repeated edge was kept once",
    Code.OTHER_TYPES: "1 edge of a type that was not declared was left out",
    Code.PUBLIC_EDGES: "1 edge of {where} is public knowledge; it is an edge of the graph, whether the table of edges "
    "has it or not",
    Code.ISOLATED: "1 node has no edge; it stays in the graph",
    Code.MISSING_LABELS: "1 node has no label; it stays in the graph and in the split, as an empty record",
    Code.FOUND_CLASSES: "classes were not declared: the 1 label that occurs is used, which is allowed only where "
    "labels are public (declare them with classes)",
    Code.EMPTY_CLASSES: "1 declared class has no node in the data; it stays, because it was declared",
    Code.MISSING_VALUES: "column {what}: 1 missing value became {fill}",
    Code.CLIPPED: "column {what}: 1 value outside of the declared range was moved to its end",
    Code.OTHER_CATEGORY: "column {what}: 1 value that is no declared category became zeros",
    Code.IN_NO_SPLIT: "1 node is in no part of the split",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was found and what was done about it."""

    code: Code
    count: int = 0
    what: str = ""
    where: str = ""
    fill: str = ""

    def __str__(self) -> str:
        words = _OF_ONE.get(self.code) if self.count == 1 else None
        words = words or _SENTENCES[self.code]
        return words.format(count=f"{self.count:,}", what=self.what, where=self.where, fill=self.fill)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = {"code": self.code.value, "count": self.count, "what": self.what, "where": self.where}
        return {**values, "fill": self.fill}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Finding:
        """The inverse of `as_dict`."""
        return cls(**{**values, "code": Code(values["code"])})


def tallied(findings: list[Finding]) -> list[Finding]:
    """The findings of many batches as one list: equal ones added up, those that count nothing left out."""
    counts: dict[tuple[Code, str, str, str], int] = {}
    for one in findings:
        key = (one.code, one.what, one.where, one.fill)
        counts[key] = counts.get(key, 0) + one.count
    tells = {Code.HEADER, Code.NO_HEADER, Code.EXTRA_COLUMNS, Code.BOTH_DIRECTIONS, Code.IGNORED_COLUMNS}
    tells |= {Code.NO_FEATURES, Code.NO_SPLIT}
    return [
        Finding(code, count, what, where, fill)
        for (code, what, where, fill), count in counts.items()
        if count or code in tells
    ]
