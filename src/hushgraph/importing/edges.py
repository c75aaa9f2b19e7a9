"""The table of edges: two columns of ids, turned into numbers a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.types import MOST_TYPES
from hushgraph.importing.findings import NO_DIRECTION, Code, Finding, tallied
from hushgraph.importing.ids import Ids
from hushgraph.importing.tables import Table, joined, open_table

_SOURCES = ("source", "src", "from", "u", "node1", "start", "sender")
_TARGETS = ("target", "dst", "to", "v", "node2", "end", "receiver", "dest", "destination")


@dataclass
class EdgeColumns:
    """Which columns hold the ends of an edge, and what a line means.

    `directed` False: a line is an undirected edge, and whoever reads the lines stores both directions.
    `drop_unknown` leaves out edges that name a node which is not in the list, or a type that was not declared;
    otherwise they are refused. `kind` is the column with the type of an edge, and `kinds` the types there are, from
    public knowledge.
    """

    source: str | None = None
    target: str | None = None
    directed: bool | None = None
    drop_unknown: bool = False
    kind: str | None = None
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is None) != (not self.kinds):
            raise InputError(
                "--edge-type: expected a column of edges, and its words from public knowledge (--edge-types A,B,C); "
                "got one without the other. The words that occur are private: one edge more could add one"
            )
        if len(set(self.kinds)) < len(self.kinds) or not all(self.kinds) or len(self.kinds) > MOST_TYPES:
            raise InputError(f"--edge-types: expected 1 to {MOST_TYPES} distinct words; got {', '.join(self.kinds)}")

    def require_direction(self) -> bool:
        """Whether lines have a direction; it has to be said, because it decides what one edge is."""
        if self.directed is None:
            raise InputError(NO_DIRECTION)
        return self.directed


@dataclass
class EdgeStream:
    """Blocks of `[2, E]` node numbers, a column per line; what was found is known when all of them were read."""

    table: Table
    ids: Ids
    columns: EdgeColumns
    findings: list[Finding] = field(default_factory=list)

    @property
    def both(self) -> bool:
        """Whether a line stands for both directions."""
        return not self.columns.require_direction()

    @property
    def entries(self) -> int:
        """How many edges the lines stand for, in both directions where they have two; 0 if it is not known."""
        return self.table.rows * (2 if self.both else 1)

    def __iter__(self) -> Iterator[Tensor]:
        for block, _ in self.lines():
            yield torch.from_numpy(block)

    def lines(self, *others: str) -> Iterator[tuple[np.ndarray, list[Any]]]:
        """The ends of the edges, `[2, E]`, a batch at a time, and the values of other columns for the same lines."""
        source, target = _ends(self.table, self.columns)
        both = self.both
        missing = unknown = 0
        for batch in self.table.read([source, target, *others]):
            pair = np.stack([self.ids.numbers(batch.column(name), self.table.where) for name in (source, target)])
            block, values = pair, [batch.column(name) for name in others]
            if pair.size and pair.min() < 0:
                without, nobody = (pair == -2).any(axis=0), (pair == -1).any(axis=0)
                missing, unknown = missing + int(without.sum()), unknown + int((nobody & ~without).sum())
                if unknown and not self.columns.drop_unknown:
                    raise _unknown_node(self.table, batch, pair, source, target)
                kept = np.flatnonzero(~(without | nobody))
                block, values = pair[:, kept], [column.take(kept) for column in values]
            yield block, values
        self.findings = tallied(
            [
                *_unused(self.table, {source, target, *others}),
                *([Finding(Code.BOTH_DIRECTIONS)] if both else []),
                Finding(Code.MISSING_ENDS, missing),
                Finding(Code.UNKNOWN_ENDS, unknown),
            ]
        )


def open_edges(
    paths: Sequence[Path], ids: Ids, columns: EdgeColumns, header: bool | None
) -> tuple[Table, list[Finding]]:
    """The table of edges in one or several files. What is said about the first lines of many is said once."""
    opened = [_open_file(path, ids, columns, header) for path in paths]
    table = joined([one for one, _ in opened])
    return table, [replace(note, where=table.where) for note in opened[0][1]]


def _open_file(path: Path, ids: Ids, columns: EdgeColumns, header: bool | None) -> tuple[Table, list[Finding]]:
    """The table of edges in a file. Where nobody says so, a first line that names two nodes holds no column names."""
    named = columns.source is not None or columns.target is not None
    table = open_table(path)
    if table.first is None:
        return table, []
    has_names = header if header is not None else named or not _names_nodes(table.first, ids)
    if not has_names:
        return open_table(path, header=False), [Finding(Code.NO_HEADER, where=table.where)]
    return table, [Finding(Code.HEADER, what=", ".join(table.columns), where=table.where)]


def _names_nodes(first: tuple[str, ...], ids: Ids) -> bool:
    return len(first) >= 2 and all(ids.knows(word) for word in first[:2])


def _ends(table: Table, columns: EdgeColumns) -> tuple[str, str]:
    """The two columns: those that were named, those of a usual name, or the first two."""
    if len(table.columns) < 2:
        raise InputError(f"{table.where}: expected two columns, the ends of an edge; got {len(table.columns)}")
    given = [name for name in (columns.source, columns.target) if name is not None]
    InputError.collect(table.require(given, "--source, --target"))
    lower = {name.lower(): name for name in table.columns}
    usual = [next((lower[word] for word in words if word in lower), None) for words in (_SOURCES, _TARGETS)]
    first, second = usual if all(usual) else table.columns[:2]
    source, target = columns.source or first, columns.target or second
    if source == target:
        raise InputError(f"{table.where}: expected two columns, the ends of an edge; got '{source}' for both")
    assert source is not None
    assert target is not None
    return source, target


def _unused(table: Table, used: set[str]) -> list[Finding]:
    rest = [name for name in table.columns if name not in used]
    return [Finding(Code.EXTRA_COLUMNS, what=", ".join(rest))] if rest else []


def _unknown_node(table: Table, batch: Any, pair: np.ndarray, source: str, target: str) -> InputError:
    at = int(np.flatnonzero((pair == -1).any(axis=0))[0])
    column = source if pair[0, at] == -1 else target
    return InputError(
        f"{table.where}: expected edges between nodes of the list; got '{batch.column(column)[at].as_py()}' in "
        f"'{column}', which is no node's id; add it to the list, or leave such edges out with --drop-unknown"
    )
