"""Table cells that are more than text. What is put into them is escaped."""

from __future__ import annotations

from markupsafe import Markup


def pill(words: str, kind: str) -> Markup:
    """A short colored label: `good`, `warn`, `bad` or `plain`."""
    return Markup('<span class="pill {}">{}</span>').format(kind, words)


def mono(words: str) -> Markup:
    """A hash or a name, in a fixed width."""
    return Markup('<span class="hash">{}</span>').format(words)


def below(value: str | Markup, words: str) -> Markup:
    """A value with small words under it."""
    return Markup('{}<br><span class="note">{}</span>').format(value, words) if words else Markup("{}").format(value)
