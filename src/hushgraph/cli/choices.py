"""From words on the command line to a method, a unit and a budget; every problem is reported at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hushgraph.errors import InputError
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget

if TYPE_CHECKING:
    from hushgraph.methods.base import Method

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the user asked for."""

    method: Method
    unit: units.Unit | None
    budget: Budget


def read_choices(
    method: str, unit: str | None, epsilon: float, delta: float | None, settings: dict[str, str]
) -> Choices:
    """The method, unit and budget, or one error that lists everything wrong with them."""
    problems: list[str] = []
    own, rest = _split_words(unit, settings)
    found_unit = _collect(problems, lambda: None if unit is None else _unit(unit, own))
    found_method = _collect(problems, lambda: _method(method, rest))
    budget = _collect(problems, lambda: Budget(epsilon, delta))
    InputError.collect(problems)
    return Choices(found_method, found_unit, budget)  # type: ignore[arg-type]


def _split_words(unit: str | None, settings: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings that are parameters of the unit, and the rest, which are the method's."""
    kind = units.UNITS.get(unit or "")
    names = {field.name for field in dataclasses.fields(kind)} if kind is not None else set()
    own = {key: word for key, word in settings.items() if key in names}
    return own, {key: word for key, word in settings.items() if key not in names}


def _unit(name: str, own: dict[str, str]) -> units.Unit:
    from hushgraph.settings import from_words

    return units.by_name(name, **(from_words(units.UNITS[name], own) if own else {}))


def _method(name: str, words: dict[str, str]) -> Method:
    from hushgraph.registry import method_class
    from hushgraph.settings import from_words

    found = method_class(name)
    return found(**from_words(found, words))


def _collect(problems: list[str], make: Callable[[], T]) -> T | None:
    try:
        return make()
    except InputError as error:
        problems.extend(error.problems)
        return None
