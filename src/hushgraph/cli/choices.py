"""From words on the command line to a method, a unit and a budget; every problem is reported at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from hushgraph import registry
from hushgraph.cli.deferred import deferred
from hushgraph.errors import InputError
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget, as_budget
from hushgraph.settings import from_words

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
    method: str,
    unit: str | None,
    epsilon: float | dict[str, float],
    delta: float | None,
    settings: dict[str, str],
) -> Choices:
    """The method, unit and budget, or one error that lists everything wrong with them."""
    problems: list[str] = []
    kind = _collect(problems, lambda: None if unit is None else registry.load("units", unit))
    budget = _collect(problems, lambda: as_budget((epsilon, delta)))
    if not (unit is None or registry.knows("units", unit)) and registry.knows("methods", method):
        raise InputError(*problems)  # a setting of that unit would be called an unknown one of the method
    own = {key: word for key, word in settings.items() if kind is not None and key in _parameters(kind)}
    rest = {key: word for key, word in settings.items() if key not in own}
    found_unit = _collect(problems, lambda: None if kind is None else kind(**from_words(kind, own)))
    with deferred() if problems else nullcontext():  # nothing will be trained: its layers are not needed
        found_method = _collect(problems, lambda: _method(method, rest))
    InputError.collect(problems)
    return Choices(found_method, found_unit, budget)  # type: ignore[arg-type]


def _parameters(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _method(name: str, words: dict[str, str]) -> Method:
    found = registry.load("methods", name)
    method: Method = found(**found.from_words(words))
    return method


def _collect(problems: list[str], make: Callable[[], T]) -> T | None:
    try:
        return make()
    except InputError as error:
        problems.extend(error.problems)
        return None
