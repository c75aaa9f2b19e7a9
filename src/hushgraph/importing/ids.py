"""The user's own names of nodes, and the numbers 0 to n - 1 that stand for them here."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.importing.rules import is_text
from hushgraph.importing.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 1_024
"""Of an id that is a word: all of them are stored in the width of the longest."""
_ROOM = 8
"""A table from id to number is used where ids are at most this many times as many as nodes."""


class Ids:
    """Distinct ids in the order of the nodes: whole numbers, or words."""

    def __init__(self, values: np.ndarray | pa.Array) -> None:
        self.values = values

    @classmethod
    def counted(cls, count: int) -> Ids:
        """The ids 0 to count - 1."""
        return cls(np.arange(count, dtype=np.int64))

    @classmethod
    def read(cls, batches: list[pa.Array], where: str, column: str) -> Ids:
        """The ids of a column, if they are distinct and none is missing."""
        pa = arrow()
        import pyarrow.compute as pc

        together = pa.chunked_array([_uniform(batch, where, column) for batch in batches]).combine_chunks()
        if len(together) == 0:
            raise InputError(f"{where}: expected at least one node; got none")
        problems = []
        if missing := together.null_count:
            problems.append(f"{where}: expected an id for every node in '{column}'; got {missing} without; add them")
        repeated = len(together) - missing - len(pc.unique(together.drop_null()))
        if repeated:
            problems.append(
                f"{where}: expected every id in '{column}' once; got {repeated} repeated; keep one record of each node"
            )
        if is_text(together.type) and (odd := _odd_words(together)):
            problems.append(
                f"{where}: expected ids of at most {MOST_BYTES:,} bytes without the character NUL in '{column}'; got "
                f"{odd} others; shorten them"
            )
        InputError.collect(problems)
        return cls(_as_numbers(together))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def are_words(self) -> bool:
        """Whether ids are words rather than whole numbers."""
        return not isinstance(self.values, np.ndarray)

    def numbers(self, given: pa.Array, where: str) -> np.ndarray:
        """The number of each id, int32 or int64; -1 where it is nobody's, -2 where it is missing."""
        pa = arrow()
        import pyarrow.compute as pc

        if given.type != pa.int32():  # which is taken as it is: half as much to move as int64
            given = _uniform(given, where, "ends of edges")
        missing = np.array(pc.is_null(given)) if given.null_count else None
        found = self._of_words(given) if self.are_words or is_text(given.type) else self._of_numbers(given)
        if missing is not None:
            found[missing] = -2
        return found

    def knows(self, word: str) -> bool:
        """Whether a word of a text file is an id."""
        return bool(self._of_words(arrow().array([word]))[0] >= 0)

    def array(self) -> np.ndarray:
        """The ids as they are stored: int64, or UTF-8 bytes of one width."""
        if isinstance(self.values, np.ndarray):
            return self.values
        return np.array([word.encode() for word in self.values.to_pylist()], dtype=np.bytes_)

    # Looking up

    def _of_words(self, given: pa.Array) -> np.ndarray:
        pa = arrow()
        import pyarrow.compute as pc

        if not self.are_words and is_text(given.type):
            try:
                return self._of_numbers(given.cast(pa.int64()))
            except pa.ArrowInvalid:
                pass  # some are no numbers; words are compared then
        places = pc.index_in(given.cast(pa.string()), value_set=self._words)
        return np.array(pc.fill_null(places, -1), dtype=np.int64)

    def _of_numbers(self, given: pa.Array) -> np.ndarray:
        pa = arrow()
        import pyarrow.compute as pc

        whole = pc.fill_null(given, -1) if given.null_count else given
        wanted = np.from_dlpack(whole)  # `to_numpy` would import pandas first
        if self._table is None:
            places = pc.index_in(given.cast(pa.int64()), value_set=pa.array(self.values, type=pa.int64()))
            return np.array(pc.fill_null(places, -1), dtype=np.int64)
        if self._are_counted and len(wanted) and 0 <= wanted.min() <= wanted.max() < len(self):
            return wanted
        inside = (wanted >= 0) & (wanted < len(self._table))
        if inside.all():
            return self._table[wanted]
        return np.where(inside, self._table[np.where(inside, wanted, 0)], -1)

    @cached_property
    def _are_counted(self) -> bool:
        """Whether ids are 0, 1, 2, ...: then they are the numbers."""
        return bool(np.array_equal(self.values, np.arange(len(self))))

    @cached_property
    def _words(self) -> pa.Array:
        pa = arrow()
        return pa.array(self.values).cast(pa.string()) if isinstance(self.values, np.ndarray) else self.values

    @cached_property
    def _table(self) -> np.ndarray | None:
        """The number of each possible id, where ids are small enough for such a table."""
        values = self.values
        if not isinstance(values, np.ndarray) or values.min() < 0 or values.max() > _ROOM * len(values) + 1_000:
            return None
        table = np.full(int(values.max()) + 1, -1, dtype=np.int32)
        table[values] = np.arange(len(values))
        return table


def _uniform(values: Any, where: str, column: str) -> pa.Array:
    """Whole numbers as int64, words as trimmed strings (an empty one is missing); anything else is refused."""
    pa = arrow()
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if is_text(values.type):
        trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
        return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    if pa.types.is_null(values.type):
        return values.cast(pa.string())
    try:
        if pa.types.is_integer(values.type):
            return values if values.type == pa.int64() else values.cast(pa.int64())
        if pa.types.is_floating(values.type):
            return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values).cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    raise InputError(
        f"{where}: expected ids that are whole numbers or words in '{column}'; got values of type "
        f"{values.type}; convert the column"
    )


def _odd_words(words: pa.Array) -> int:
    """How many ids are too long, or have the one character in them that is lost at the end of a stored word."""
    import pyarrow.compute as pc

    odd = pc.or_(pc.greater(pc.binary_length(words), MOST_BYTES), pc.match_substring(words, "\0"))
    return int(pc.sum(odd).as_py() or 0)


def _as_numbers(words: pa.Array) -> np.ndarray | pa.Array:
    """Whole numbers where every word is one and is written as one writes it (7, not 007); otherwise the words."""
    pa = arrow()
    import pyarrow.compute as pc

    if not is_text(words.type):
        return words.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    try:
        numbers = words.cast(pa.int64())
    except pa.ArrowInvalid:
        return words
    return numbers.to_numpy() if pc.all(pc.equal(numbers.cast(pa.string()), words)).as_py() else words
