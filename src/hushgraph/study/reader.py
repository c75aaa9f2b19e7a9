"""Reading what a user wrote: every value has a place and a type, and all problems are found before any is reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hushgraph.errors import HushgraphError, InputError, MissingDataError, did_you_mean

T = TypeVar("T")
MOST_REPETITIONS = 100_000


_MOST_PLACES = 3


@dataclass
class Problems:
    """What is wrong with a file, and where; and the datasets whose files are not here."""

    places: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)

    def add(self, place: str, problem: str) -> None:
        """One more problem, or one more place of it."""
        self.places.setdefault(problem, []).append(place)

    def listed(self) -> list[str]:
        """Every problem once, with its places, and one sentence for all missing files."""
        found = [f"{_words(list(dict.fromkeys(places)))}: {problem}" for problem, places in self.places.items()]
        return [*found, *(MissingDataError(*self.missing).problems if self.missing else ())]


def _words(places: list[str]) -> str:
    more = len(places) - _MOST_PLACES
    return ", ".join(places[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


@dataclass
class Reader:
    """One mapping of a file. `where` is its place, for messages; problems of all readers of a file go to one list."""

    values: dict[str, Any]
    where: str = ""
    problems: Problems = field(default_factory=Problems)

    @classmethod
    def of(cls, value: Any, where: str, problems: Problems) -> Reader:
        """A reader of a value that has to be a mapping."""
        if isinstance(value, dict):
            return cls({str(key): item for key, item in value.items()}, where, problems)
        problems.add(where or "study", f"expected a mapping of names to values; got {shown(value)}")
        return cls({}, where, problems)

    def at(self, key: str) -> str:
        """The place of a key."""
        return f"{self.where}.{key}" if self.where else key

    def only(self, known: Iterable[str]) -> None:
        """Report every key that is not known."""
        names = list(known)
        for key in self.values:
            if key not in names:
                self.problems.add(self.at(key), f"unknown; {did_you_mean(key, names)}")

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def problem(self, key: str, expected: str) -> None:
        """Report a value that is not what it should be."""
        self.problems.add(self.at(key), f"expected {expected}; got {shown(self.values.get(key))}")

    def attempt(self, key: str, make: Callable[[], T]) -> T | None:
        """What `make` returns, or None with its problems reported at this key."""
        try:
            return make()
        except MissingDataError as error:
            self.problems.missing |= dict.fromkeys(error.names)
        except InputError as error:
            for problem in error.problems:
                self.problems.add(self.at(key), problem)
        except (HushgraphError, TypeError, ValueError, ImportError, AttributeError) as error:
            self.problems.add(self.at(key), str(error))
        return None

    def text(self, key: str, default: str = "") -> str:
        """A word."""
        value = self.values.get(key, default)
        if isinstance(value, str):
            return value
        self.problem(key, "a word")
        return default

    def among(self, key: str, known: Iterable[str], default: str | None) -> str | None:
        """One of several words."""
        value, names = self.values.get(key, default), list(known)
        if value is None or (isinstance(value, str) and value in names):
            return value
        self.problems.add(self.at(key), f"got {shown(value)}; {did_you_mean(str(value), names)}")
        return default

    def listed(self, key: str) -> list[Any]:
        """A value or a list of values, as a list."""
        value = self.values.get(key)
        if value is None:
            return []
        return list(value) if isinstance(value, list | tuple) else [value]

    def numbers(self, key: str, *, above: float = -math.inf, most: float = math.inf) -> list[float]:
        """Numbers, which YAML also gives as words: 1e-7, inf."""
        found = [number(value) for value in self.listed(key)]
        if any(value is None or not above < value <= most for value in found):
            bounds = f" above {above:g}" if math.isfinite(above) else ""
            bounds += f" and at most {most:g}" if math.isfinite(most) else ""
            self.problem(key, f"numbers{bounds}")
            return []
        return [value for value in found if value is not None]

    def count_or_list(self, key: str, default: list[int]) -> list[int]:
        """A number of repetitions (0, 1, ... are taken) or the list of them."""
        value = self.values.get(key)
        if value is None:
            return default
        if _is_whole(value) and 1 <= value <= MOST_REPETITIONS:
            return list(range(value))
        if isinstance(value, list) and value and all(_is_whole(one) for one in value):
            return list(value)
        self.problem(key, f"a number of repetitions (1 to {MOST_REPETITIONS:,}), or a list of whole numbers")
        return default

    def flags(self, key: str) -> list[bool]:
        """true, false, or a list of them."""
        found = self.listed(key) or [False]
        if all(isinstance(one, bool) for one in found):
            return found
        self.problem(key, "true or false, or a list of them")
        return [False]


def number(value: Any) -> float | None:
    """A number, also one that was written as a word; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(found) else found


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value for a message: the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
