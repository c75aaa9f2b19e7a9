"""Numbers, lists and foreign text, written for people."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any


def rounded_up(value: float, digits: int = 4) -> str:
    """The smallest number of `digits` digits not below `value`: a printed promise is never better than the proved."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(round(value / unit, 9)) * unit:.{digits}g}"


def rounded_down(value: float, digits: int = 4) -> str:
    """The largest number of `digits` digits not above `value`: what is left of a limit is never shown as more."""
    return rounded_up(-value, digits).removeprefix("-") if value > 0.0 else rounded_up(value, digits)


def settings_in_words(values: Mapping[str, Any]) -> str:
    """`parts 50, removal no`: what is not set is left out."""
    shown = {key: value for key, value in values.items() if value is not None}
    yes_or_no = {True: "yes", False: "no"}
    words = {key: yes_or_no[value] if isinstance(value, bool) else str(value) for key, value in shown.items()}
    return ", ".join(f"{key} {value}" for key, value in words.items())


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def to_the_minute(time: str) -> str:
    """A time as the ledger writes it (2026-01-31T12:34:56+00:00), for people; other words stay as they are."""
    return f"{time[:10]} {time[11:16]} UTC" if len(time) > 16 and time.endswith("+00:00") else time


def visible(text: str) -> str:
    """The text without what a terminal would obey: control characters other than line ends and tabs are written out."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" or not _steers(one) else f"\\x{ord(one):02x}" for one in text)


def _steers(character: str) -> bool:
    """Control characters, lone surrogates, and marks that change the direction of what follows."""
    return unicodedata.category(character) in ("Cc", "Cs", "Cf")
