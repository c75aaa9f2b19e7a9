"""A table of edges with a column of types: edges to the mailbox that every node has for each declared type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.packed import INT32_LIMIT
from hushgraph.importing.edges import EdgeStream
from hushgraph.importing.findings import Code, Finding, tallied
from hushgraph.importing.rules import words_of


@dataclass
class MailboxStream:
    """Blocks of `[2, E]`: senders, and the mailbox `type * nodes + receiver` (see `hushgraph.graph.types`).

    An undirected line becomes an edge in both directions, of the same type. What was found is known when all of them
    were read.
    """

    stream: EdgeStream
    column: str
    names: tuple[str, ...]
    own: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        table = self.stream.table
        InputError.collect(table.require([self.column], "--edge-type"))
        if self.num_mailboxes >= INT32_LIMIT:
            raise InputError(
                f"--edge-types: expected nodes times types below {INT32_LIMIT:,}; got {self.num_mailboxes:,}; declare "
                "fewer types"
            )

    @property
    def num_mailboxes(self) -> int:
        """How many there are."""
        return len(self.stream.ids) * len(self.names)

    @property
    def findings(self) -> list[Finding]:
        """What was found in all lines."""
        return [*self.stream.findings, *self.own]

    def __iter__(self) -> Iterator[Tensor]:
        loops = others = 0
        for (source, target), (words,) in self.stream.lines(self.column):
            kinds = self._numbered(words)
            known = kinds >= 0
            kept = known & (source != target)
            others, loops = others + int((~known).sum()), loops + int((known & ~kept).sum())
            yield from self._entries(source[kept], target[kept], kinds[kept])
        self.own = tallied([Finding(Code.OTHER_TYPES, others), Finding(Code.SELF_LOOPS, loops)])

    def _entries(self, source: np.ndarray, target: np.ndarray, kinds: np.ndarray) -> Iterator[Tensor]:
        first = kinds.astype(np.int64) * len(self.stream.ids)
        yield torch.from_numpy(np.stack([source.astype(np.int64), first + target]))
        if self.stream.both:
            yield torch.from_numpy(np.stack([target.astype(np.int64), first + source]))

    def _numbered(self, words: object) -> np.ndarray:
        """The number of the type of every line; -1 for one that was not declared, which only some want left out."""
        where, known = self.stream.table.where, {name: number for number, name in enumerate(self.names)}
        distinct, places, _ = words_of(words, self.column, where)
        numbers = np.array([known.get(word, -1) for word in distinct] or [-1])
        if (numbers[places] < 0).any() and not self.stream.columns.drop_unknown:
            word = distinct[int(places[int(np.argmax(numbers[places] < 0))])]
            raise InputError(
                f"{where}: expected one of the declared types ({', '.join(self.names)}) in '{self.column}'; got "
                f"'{word}'. Declare it (--edge-types), or leave such edges out with --drop-unknown"
            )
        return numbers[places]
