"""The sections of a report, one file each.

A section is a function from a `RunContext` to the values of its template:

    @section("mine", "My section", after="claim", template="<p>{{ words }}</p>")
    def mine(context: RunContext) -> dict[str, Any]:
        return {"words": context.certificate.method}

A file in this folder is found without being named anywhere. Values are escaped by the template; `ui` holds the pieces
that sections share (templates/macros.html).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from hushgraph.errors import InputError, did_you_mean
from hushgraph.report.context import RunContext

Values = Callable[[RunContext], dict[str, Any]]
When = Callable[[RunContext], bool]


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its title, what it follows, and how it is made."""

    name: str
    title: str
    after: str | None
    template: str
    values: Values
    when: When | None = None


_known: dict[str, Section] = {}


def section(
    name: str, title: str, *, after: str | None = None, template: str, when: When | None = None
) -> Callable[[Values], Values]:
    """Make a function a section of every report, or of those that `when` says; without `after` it comes first."""

    def register(values: Values) -> Values:
        known = _known.get(name)
        if known is not None and known.values.__module__ != values.__module__:
            raise InputError(f"section: '{name}' exists already in {known.values.__module__}; choose another name")
        _known[name] = Section(name, title, after, template, values, when)
        return values

    return register


def all_sections() -> list[Section]:
    """Every section, each behind the one it names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for one in _known.values():
        if one.after is not None and one.after not in _known:
            raise InputError(f"section '{one.name}': after '{one.after}' is unknown; {did_you_mean(one.after, _known)}")
    ordered: list[Section] = []
    _place(None, ordered)
    if len(ordered) < len(_known):
        lost = sorted(set(_known) - {one.name for one in ordered})
        raise InputError(f"sections follow each other in a circle: {', '.join(lost)}")
    return ordered


def sections_of(context: RunContext) -> list[Section]:
    """Those that have something to say about a run."""
    return [one for one in all_sections() if one.when is None or one.when(context)]


def _place(after: str | None, ordered: list[Section]) -> None:
    for one in sorted((one for one in _known.values() if one.after == after), key=lambda one: one.name):
        ordered.append(one)
        _place(one.name, ordered)


State = Literal["handled", "partly", "not handled", "outside"]


@dataclass(frozen=True)
class Row:
    """An item of a checklist, its state, and what is true of it in this run."""

    name: str
    state: State
    words: str


def pill(words: str, kind: str) -> Markup:
    """A short colored label: `good`, `warn`, `bad` or `plain`. What is put into it is escaped."""
    return Markup('<span class="pill {}">{}</span>').format(kind, words)


def mono(words: str) -> Markup:
    """A hash or a name, in a fixed width."""
    return Markup('<span class="hash">{}</span>').format(words)


def below(value: str | Markup, words: str) -> Markup:
    """A value with small words under it."""
    return Markup('{}<br><span class="note">{}</span>').format(value, words) if words else Markup("{}").format(value)
