"""How columns become features: by rules that are public knowledge, one value at a time.

A rule looks at one person's value and at what was declared, never at the other values of the column: a range, a list of
categories or an average that is read off the data would tell something about the people in it. So each rule is
post-processing of one record, and a unit that protects a record protects what comes out.
"""

from __future__ import annotations

import datetime
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.importing.findings import Code, Finding

if TYPE_CHECKING:
    import pyarrow as pa

NOT_A_NUMBER = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
"""Words that stand for a missing number."""


@dataclass(frozen=True)
class Rule(ABC):
    """One column and what it becomes: `width` numbers per node."""

    column: str

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the features."""

    @property
    def width(self) -> int:
        """How many features there are."""
        return len(self.names)

    @abstractmethod
    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """A float32 row per value, and what had to be done to the values."""

    @abstractmethod
    def as_words(self) -> str:
        """The rule as it is typed."""


@dataclass(frozen=True)
class Range(Rule):
    """A number between two declared ends, moved to [0, 1]; what is missing becomes 1/2."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"column '{self.column}': expected a range LOW:HIGH of two finite numbers, LOW below HIGH; "
                f"got {self.low:g}:{self.high:g}"
            )

    @property
    def names(self) -> list[str]:
        """One feature, named like the column."""
        return [self.column]

    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """Clipped to the range and scaled."""
        return _scaled(numbers_of(values, self.column, where), self.low, self.high, self.column)

    def as_words(self) -> str:
        """`--numeric age=0:120`."""
        return f"--numeric {self.column}={self.low:g}:{self.high:g}"


@dataclass(frozen=True)
class Dates(Rule):
    """A date between two declared ones, moved to [0, 1]; what is missing becomes 1/2."""

    first: datetime.date
    last: datetime.date

    def __post_init__(self) -> None:
        if not self.first < self.last:
            raise InputError(
                f"column '{self.column}': expected a first date before the last; got {self.first} and {self.last}"
            )

    @property
    def names(self) -> list[str]:
        """One feature, named like the column."""
        return [self.column]

    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """Clipped to the range and scaled, to the second."""
        first, last = (float(np.datetime64(end, "s").astype(np.int64)) for end in (self.first, self.last))
        return _scaled(seconds_of(values, self.column, where), first, last, self.column)

    def as_words(self) -> str:
        """`--date joined=2010-01-01:2026-01-01`."""
        return f"--date {self.column}={self.first}:{self.last}"


def date_of(word: Any) -> datetime.date:
    """A date, or one written as 2026-01-31; a ValueError for anything else."""
    if isinstance(word, datetime.datetime):
        return word.date()
    return word if isinstance(word, datetime.date) else datetime.date.fromisoformat(str(word).strip())


def _scaled(found: np.ndarray, low: float, high: float, column: str) -> tuple[np.ndarray, list[Finding]]:
    """A column of numbers between 0 and 1, and what was missing or outside."""
    missing = np.isnan(found)
    outside = (found < low) | (found > high)
    scaled = (np.clip(found, low, high) - low) / (high - low)
    scaled[missing] = 0.5
    notes = [
        Finding(Code.MISSING_VALUES, int(missing.sum()), column, fill="the middle of the range"),
        Finding(Code.CLIPPED, int(outside.sum()), column),
    ]
    return scaled.astype(np.float32)[:, None], notes


@dataclass(frozen=True)
class AsIs(Rule):
    """A number that is taken as it is, because its scale means something by itself; what is missing becomes 0."""

    @property
    def names(self) -> list[str]:
        """One feature, named like the column."""
        return [self.column]

    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """The numbers, as float32; infinite ones are missing."""
        found = numbers_of(values, self.column, where)
        with np.errstate(over="ignore"):
            found = found.astype(np.float32)
        missing = ~np.isfinite(found)
        found[missing] = 0.0
        return found[:, None], [Finding(Code.MISSING_VALUES, int(missing.sum()), self.column, fill="0")]

    def as_words(self) -> str:
        """`--as-is x1`."""
        return f"--as-is {self.column}"


@dataclass(frozen=True)
class Categories(Rule):
    """One of the declared words: a column of zeros and ones for each; any other word, or none, is all zeros."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words or len(set(self.words)) != len(self.words):
            raise InputError(
                f"column '{self.column}': expected distinct categories; got {', '.join(self.words) or 'none'}"
            )

    @property
    def names(self) -> list[str]:
        """`column=word` for each word."""
        return [f"{self.column}={word}" for word in self.words]

    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """One row of zeros and ones per value."""
        distinct, places, missing = words_of(values, self.column, where)
        known = {word: number for number, word in enumerate(self.words)}
        numbers = np.array([known.get(word, -1) for word in distinct] or [-1])[places]
        rows = np.zeros((len(values), self.width), dtype=np.float32)
        found = ~missing & (numbers >= 0)
        rows[np.flatnonzero(found), numbers[found]] = 1.0
        notes = [
            Finding(Code.MISSING_VALUES, int(missing.sum()), self.column, fill="zeros"),
            Finding(Code.OTHER_CATEGORY, int((~missing & ~found).sum()), self.column),
        ]
        return rows, notes

    def as_words(self) -> str:
        """`--category city=Rome,Paris`."""
        return f"--category {self.column}={','.join(self.words)}"


@dataclass(frozen=True)
class Hashed(Rule):
    """Any word, in one of so many boxes by a public checksum: for columns whose words nobody can list."""

    boxes: int

    def __post_init__(self) -> None:
        if not 2 <= self.boxes <= 65_536:
            raise InputError(f"column '{self.column}': expected 2 to 65536 buckets; got {self.boxes}")

    @property
    def names(self) -> list[str]:
        """`column#number` for each box."""
        return [f"{self.column}#{number}" for number in range(self.boxes)]

    def encode(self, values: pa.Array, where: str) -> tuple[np.ndarray, list[Finding]]:
        """One row of zeros and a one per value."""
        distinct, places, missing = words_of(values, self.column, where)
        boxes = np.array([zlib.crc32(word.encode()) % self.boxes for word in distinct] or [0])[places]
        rows = np.zeros((len(values), self.boxes), dtype=np.float32)
        rows[np.flatnonzero(~missing), boxes[~missing]] = 1.0
        return rows, [Finding(Code.MISSING_VALUES, int(missing.sum()), self.column, fill="zeros")]

    def as_words(self) -> str:
        """`--hashed employer=64`."""
        return f"--hashed {self.column}={self.boxes}"


def rule_of(column: str, given: Any) -> Rule:
    """The rule that a value of the dictionary `features` stands for."""
    if isinstance(given, Rule):
        return given
    if given is None or given == "as-is":
        return AsIs(column)
    if isinstance(given, int) and not isinstance(given, bool):
        return Hashed(column, given)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(end, int | float) for end in given):
        return Range(column, float(given[0]), float(given[1]))
    if isinstance(given, tuple) and len(given) == 2 and all(_is_date(end) for end in given):
        return Dates(column, date_of(given[0]), date_of(given[1]))
    if isinstance(given, Sequence | set | frozenset) and not isinstance(given, str):
        return Categories(column, tuple(str(word) for word in (sorted(given) if isinstance(given, set) else given)))
    raise InputError(
        f"features['{column}']: expected (low, high) for numbers, a list of words for categories, a number of buckets "
        f"for hashed words, two dates (2010-01-01 or datetime.date), or None for numbers as they are; got {given!r}"
    )


def _is_date(value: Any) -> bool:
    try:
        date_of(value)
    except ValueError:
        return False
    return True


def rules_of(features: Mapping[str, Any] | Sequence[str] | None) -> list[Rule]:
    """The rules of a dictionary column -> declaration; a list of columns means numbers as they are."""
    if features is None:
        return []
    if isinstance(features, str):
        features = [features]
    given = features if isinstance(features, Mapping) else dict.fromkeys(features)
    return [rule_of(str(column), value) for column, value in given.items()]


def numbers_of(values: pa.Array, column: str, where: str) -> np.ndarray:
    """The values as float64, NaN where one is missing; words that are no numbers are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_text(values.type):
        trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
        missing = pc.is_in(pc.utf8_lower(trimmed), pa.array(sorted(NOT_A_NUMBER)))
        values = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    try:
        found = values.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        kind, dates = _kind(values), f"--date {column}=2010-01-01:2026-01-01"
        words = f"Declare it as words (--category {column}=A,B,... or --hashed {column}=64)"
        advice = f"Declare the first and the last date ({dates})" if _are_dates(values) else words
        raise InputError(
            f"{where}: expected numbers in column '{column}'; got {'dates' if _are_dates(values) else kind}. {advice}, "
            f"leave it out (--ignore {column}), or correct it"
        ) from None
    return np.array(found.to_numpy(zero_copy_only=False), dtype=np.float64)


def seconds_of(values: pa.Array, column: str, where: str) -> np.ndarray:
    """Dates and times as seconds, float64, NaN where one is missing; words that are no dates are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_text(values.type):
        trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
        missing = pc.is_in(pc.utf8_lower(trimmed), pa.array(sorted(NOT_A_NUMBER)))
        values = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    try:
        if not (is_text(values.type) or pa.types.is_temporal(values.type) or pa.types.is_null(values.type)):
            raise pa.ArrowInvalid("numbers are no dates")
        found = values.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(
            f"{where}: expected dates such as 2026-01-31 in column '{column}'; got others. Write them like that, or "
            f"leave the column out (--ignore {column})"
        ) from None
    return np.array(found.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _are_dates(values: pa.Array) -> bool:
    import pyarrow as pa

    try:
        seconds_of(values, "", "")
    except InputError:
        return False
    return not pa.types.is_null(values.type)


def words_of(values: pa.Array, column: str, where: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The distinct words, the place of each value among them, and which values are missing (none, or empty)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = _whole(values)
    try:
        words = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(
            f"{where}: expected words in column '{column}'; got {_kind(values)}; convert the column, or leave it out "
            f"(--ignore {column})"
        ) from None
    trimmed = pc.utf8_trim_whitespace(words)
    missing = pc.or_kleene(pc.is_null(trimmed), pc.equal(trimmed, ""))
    encoded = pc.fill_null(trimmed, "").dictionary_encode()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), places, np.array(pc.fill_null(missing, True), dtype=bool)


def _whole(values: pa.Array) -> pa.Array:
    """Whole numbers that some library turned into floats because one was missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    try:
        return empty.cast(pa.int64())
    except pa.ArrowInvalid:
        return empty


def is_text(kind: Any) -> bool:
    """Whether a column holds words."""
    import pyarrow as pa

    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _kind(values: pa.Array) -> str:
    return "words" if is_text(values.type) else f"values of type {values.type}"
