"""Small pieces of HTML. Every word that enters a page passes through `escape` here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from hushgraph.text import rounded_up

_PILLS = {
    "handled": ("good", "handled"),
    "partly": ("warn", "in part"),
    "not handled": ("bad", "not handled"),
    "outside": ("plain", "outside scope"),
}


def text(words: Any) -> str:
    """Words as HTML text."""
    return escape(str(words))


def paragraph(words: str, kind: str = "") -> str:
    """One paragraph."""
    return f"<p{_class(kind)}>{text(words)}</p>"


def bullets(items: Iterable[str], empty: str = "nothing") -> str:
    """A list."""
    found = list(items) or [empty]
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in found) + "</ul>"


def pill(words: str, kind: str) -> str:
    """A short colored label: `good`, `warn`, `bad` or `plain`."""
    return f'<span class="pill {escape(kind)}">{text(words)}</span>'


def state_pill(state: str) -> str:
    """The label of a state of a check list."""
    kind, words = _PILLS[state]
    return pill(words, kind)


def banner(words: str, kind: str = "") -> str:
    """A message nobody should miss."""
    return f'<div class="banner {escape(kind)}"><p>{text(words)}</p></div>'


def section(identity: str, title: str, *parts: str, lead: str = "") -> str:
    """A section of the page with its anchor."""
    opening = f'<section id="{escape(identity)}"><h2>{text(title)}</h2>'
    return opening + (paragraph(lead, "lead") if lead else "") + "".join(parts) + "</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """A table. Cells are HTML already; `numeric` columns are aligned right."""
    right = set(numeric)
    top = "".join(f"<th{_class('n' if i in right else '')}>{text(word)}</th>" for i, word in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class('n' if i in right else 'rowname' if i == 0 else '')}>{cell}</td>" for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def tile(key: str, value: str, words: str = "") -> str:
    """A number with its name, for a row of tiles."""
    inside = "".join(f'<div class="{kind}">{text(part)}</div>' for kind, part in zip("kvw", (key, value, words)))
    return f"<div>{inside}</div>"


def data_island(identity: str, values: Any) -> str:
    """JSON that the page's script reads; `<` is written so that it cannot end the element."""
    body = json.dumps(values, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{escape(identity)}">{body}</script>'


def number(value: float, digits: int = 4) -> str:
    """A price for people: rounded up, and `inf` is spelled out."""
    return "infinite" if math.isinf(value) else rounded_up(value, digits)


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
