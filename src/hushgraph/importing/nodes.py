"""The table of nodes: an id, features by public rules, a label and a part of the split for each, read in batches."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.targets import NumberRange
from hushgraph.importing.findings import Code, Finding, tallied
from hushgraph.importing.ids import Ids
from hushgraph.importing.rules import AsIs, Rule, numbers_of, rules_of, words_of
from hushgraph.importing.tables import Table
from hushgraph.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

_PARTS = {"train": 1, "training": 1, "val": 2, "valid": 2, "validation": 2, "dev": 2, "test": 3, "testing": 3}
_NO_PART = {"", "none", "unlabeled", "-"}


@dataclass(frozen=True)
class NodeColumns:
    """What each column of the table of nodes is; what is not named is refused, unless `ignore` covers it.

    Names in `ignore` and in rules for numbers as they are may be patterns (`x*`). `ignore=("*",)` leaves out the rest.
    """

    id: str
    label: str | None = None
    split: str | None = None
    features: Mapping[str, Any] | Sequence[str] | None = None
    classes: Sequence[Any] | NumberRange | None = None
    ignore: Sequence[str] = ()

    def rules(self, table: Table) -> list[Rule]:
        """The rules, with patterns written out, in the order of the table's columns where one rule has several."""
        found: list[Rule] = []
        for rule in rules_of(self.features):
            several = isinstance(rule, AsIs) and rule.column not in table.columns
            names = fnmatch.filter(table.columns, rule.column) if several else []
            found += [replace(rule, column=name) for name in names if name not in self._named] if names else [rule]
        return found

    @property
    def _named(self) -> set[str]:
        return {name for name in (self.id, self.label, self.split) if name is not None}

    def problems(self, table: Table, rules: list[Rule]) -> list[str]:
        """Columns that are named and not there, named twice, or there and not named."""
        options = {"id": self.id, "label": self.label, "split": self.split}
        problems = [
            problem for option, name in options.items() if name is not None for problem in table.require([name], option)
        ]
        for rule in rules:
            problems += table.require([rule.column], rule.as_words())
            if rule.column in self._named or sum(other.column == rule.column for other in rules) > 1:
                problems.append(f"column '{rule.column}': expected one use of it; got two. Remove one")
        undeclared = [name for name in self.rest(table, rules) if not self._ignored(name)]
        return problems + ([_undeclared(table, undeclared)] if undeclared else [])

    def rest(self, table: Table, rules: list[Rule]) -> list[str]:
        """Columns without a use."""
        used = self._named | {rule.column for rule in rules}
        return [name for name in table.columns if name not in used]

    def _ignored(self, name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.ignore)


def _undeclared(table: Table, names: list[str]) -> str:
    """One problem for all columns without a use; the options are spelled out for the first of them."""
    name, columns = names[0], ", ".join(f"'{name}'" for name in names)
    which = f"the column {columns}" if len(names) == 1 else f"each of the columns {columns}"
    return (
        f"{table.where}: expected a use for {which}; got none. Numbers need their range from public knowledge, because "
        f"the largest value is somebody's: --numeric {name}=LOW:HIGH, or --as-is {name} if their scale is right. Words "
        f"need their list: --category {name}=A,B,... or --hashed {name}=64. Dates need the first and the last: --date "
        f"{name}=2010-01-01:2026-01-01. To leave out what is of no use: --ignore {','.join(names)}. In Python: "
        f"features={{'{name}': (LOW, HIGH)}}, None, ['A', 'B'], 64 or ('2010-01-01', '2026-01-01'); ignore=[{columns}]"
    )


@dataclass
class Nodes:
    """All that the table of nodes holds: `parts` is 1, 2, 3 for train, val, test and 0 for none of them."""

    ids: Ids
    features: np.ndarray
    feature_names: list[str]
    labels: np.ndarray
    class_names: list[str] | None
    classes_declared: bool
    parts: np.ndarray | None
    findings: list[Finding] = field(default_factory=list)
    targets: np.ndarray | None = None
    """The numbers to predict, where `labels` are parts of their range."""


def read_nodes(table: Table, columns: NodeColumns, scratch: Path | None = None) -> Nodes:
    """Read the table once. With `scratch`, features are kept in a file there and not in memory."""
    rules = columns.rules(table)
    InputError.collect(columns.problems(table, rules))
    ids: list[pa.Array] = []
    features, labels = Growing(scratch, sum(rule.width for rule in rules) or 1), _label_reader(columns, table.where)
    parts: list[np.ndarray] = []
    findings: list[Finding] = []
    wanted = dict.fromkeys([columns.id, columns.label, columns.split, *(rule.column for rule in rules)])
    for batch in table.read([name for name in wanted if name is not None]):
        ids.append(batch.column(columns.id))
        features.add(_encoded(batch, rules, table.where, findings))
        if columns.label is not None:
            labels.add(batch.column(columns.label))
        if columns.split is not None:
            parts.append(_parts(batch.column(columns.split), table.where, columns.split))
    found = Ids.read(ids, table.where, columns.id) if ids else _no_nodes(table)
    if unused := columns.rest(table, rules):
        findings.append(Finding(Code.IGNORED_COLUMNS, what=", ".join(unused)))
    findings += [] if rules else [Finding(Code.NO_FEATURES)]
    split = np.concatenate(parts) if parts else None
    findings.append(Finding(Code.NO_SPLIT) if split is None else Finding(Code.IN_NO_SPLIT, int((split == 0).sum())))
    numbers, names, declared = labels.result(len(found), findings)
    named = [name for rule in rules for name in rule.names] or ["constant"]
    targets = labels.targets if isinstance(labels, _Targets) else None
    return Nodes(found, features.result(), named, numbers, names, declared, split, tallied(findings), targets)


def _no_nodes(table: Table) -> Ids:
    raise InputError(f"{table.where}: expected at least one node; got a table without rows")


def _encoded(batch: pa.RecordBatch, rules: list[Rule], where: str, findings: list[Finding]) -> np.ndarray:
    if not rules:
        return np.ones((batch.num_rows, 1), dtype=np.float32)
    rows = []
    for rule in rules:
        encoded, notes = rule.encode(batch.column(rule.column), where)
        rows.append(encoded)
        findings += notes
    return np.concatenate(rows, axis=1)


def _parts(values: pa.Array, where: str, column: str) -> np.ndarray:
    distinct, places, missing = words_of(values, column, where)
    lower = [word.lower() for word in distinct]
    unknown = sorted({word for word in lower if word not in _PARTS and word not in _NO_PART})
    if unknown:
        raise InputError(
            f"{where}: expected train, val, test or nothing in column '{column}'; got {', '.join(unknown[:3])}"
            f"{', ...' if len(unknown) > 3 else ''}; rename them"
        )
    numbers = np.array([_PARTS.get(word, 0) for word in lower] or [0], dtype=np.int8)[places]
    return np.where(missing, np.int8(0), numbers)


def class_names_of(classes: Any, counts: bool = True) -> list[str]:
    """The declared names of the classes; their number stands for 0, 1, 2, ... where labels are numbers (`counts`)."""
    if counts and isinstance(classes, int) and classes > 0:
        return [str(number) for number in range(classes)]
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        wanted = "their number, or a list of their names" if counts else "a list of their names"
        raise InputError(f"classes: expected {wanted}, as in classes=['a', 'b']; got {classes!r}")
    return [str(name) for name in classes]


class _Labels:
    """Words to class numbers: by the declared names, or by the words that occur, in their natural order."""

    def __init__(self, classes: Sequence[Any] | None, column: str, where: str) -> None:
        self.declared = None if classes is None else class_names_of(classes, counts=False)
        self.known: dict[str, int] = {name: number for number, name in enumerate(self.declared or ())}
        self.column, self.where, self.chunks = column, where, list[np.ndarray]()
        if self.declared is not None and len(self.known) != len(self.declared):
            raise InputError(f"classes: expected different names; got {', '.join(self.declared)}")

    def add(self, values: pa.Array) -> None:
        distinct, places, missing = words_of(values, self.column, self.where)
        others = sorted({word for word in distinct if word} - self.known.keys())
        if self.declared is not None and others:
            raise InputError(
                f"{self.where}: expected labels among the declared classes ({', '.join(self.declared)}); got "
                f"{counted(len(others), 'other')}, such as '{others[0]}'; declare them too, or leave such labels empty"
            )
        for word in others:
            self.known[word] = len(self.known)
        numbers = np.array([self.known.get(word, -1) for word in distinct] or [-1], dtype=np.int64)[places]
        self.chunks.append(np.where(missing, -1, numbers))

    def result(self, count: int, findings: list[Finding]) -> tuple[np.ndarray, list[str] | None, bool]:
        """The labels, the names of the classes, and whether these were declared."""
        if not self.chunks:
            return np.full(count, -1, dtype=np.int64), self.declared, self.declared is not None
        labels = np.concatenate(self.chunks)
        findings.append(Finding(Code.MISSING_LABELS, int((labels < 0).sum())))
        if self.declared is not None:
            seen = np.bincount(labels[labels >= 0], minlength=len(self.declared))
            findings.append(Finding(Code.EMPTY_CLASSES, int((seen == 0).sum())))
            return labels, self.declared, True
        names = sorted(self.known, key=_natural)
        turned = np.array([*(names.index(word) for word in self.known), -1])
        findings.append(Finding(Code.FOUND_CLASSES, len(names)))
        return turned[labels], names, False


class _Targets:
    """Numbers within a declared range; their classes are its parts."""

    def __init__(self, numbers: NumberRange, column: str, where: str) -> None:
        self.numbers, self.column, self.where = numbers, column, where
        self.targets: np.ndarray | None = None

    def add(self, values: pa.Array) -> None:
        found = numbers_of(values, self.column, self.where).astype(np.float32)
        self.targets = found if self.targets is None else np.concatenate([self.targets, found])

    def result(self, count: int, findings: list[Finding]) -> tuple[np.ndarray, list[str] | None, bool]:
        """The parts, their names, and that these were declared."""
        if self.targets is None:
            self.targets = np.full(count, np.nan, dtype=np.float32)
        outside = (self.targets < self.numbers.low) | (self.targets > self.numbers.high)
        findings.append(Finding(Code.CLIPPED, int(outside.sum()), self.column))
        findings.append(Finding(Code.MISSING_LABELS, int(np.isnan(self.targets).sum())))
        return self.numbers.classes_of(torch.from_numpy(self.targets)).numpy(), self.numbers.names, True


def _label_reader(columns: NodeColumns, where: str) -> _Labels | _Targets:
    column = columns.label or "label"
    if isinstance(columns.classes, NumberRange):
        return _Targets(columns.classes, column, where)
    return _Labels(columns.classes, column, where)


def _natural(word: str) -> tuple[bool, float, str]:
    """Numbers by size and before words."""
    try:
        return False, float(word), word
    except ValueError:
        return True, 0.0, word


class Growing:
    """Rows of float32 that are added in parts: in memory, or in a file of a folder."""

    def __init__(self, folder: Path | None, width: int) -> None:
        self._path = None if folder is None else folder / "features.bin"
        self._width, self._parts = width, list[np.ndarray]()

    def add(self, rows: np.ndarray) -> None:
        """Put rows after those that are there."""
        if self._path is None:
            self._parts.append(rows)
            return
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, dtype="<f4").data)

    def result(self) -> np.ndarray:
        """All rows; of a file, a view of it."""
        if self._path is not None and self._path.exists():
            return np.memmap(self._path, dtype="<f4", mode="r").reshape(-1, self._width)
        return np.concatenate(self._parts) if self._parts else np.empty((0, self._width), dtype=np.float32)
