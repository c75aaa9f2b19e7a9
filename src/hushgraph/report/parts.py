"""Parts that sections share: rows of checklists, and table cells that are more than text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

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
