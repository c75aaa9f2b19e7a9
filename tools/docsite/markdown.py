"""Words and tables for generated pages."""

from __future__ import annotations

import inspect
import re
from typing import Any


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a bar inside a cell is written out."""
    shown = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in shown)


def listed(words: list[str]) -> str:
    """Names in code, or a dash."""
    return ", ".join(f"`{word}`" for word in words) or "-"


def about(found: Any) -> str:
    """The docstring of a class, as paragraphs; places of proofs become links."""
    paragraphs = inspect.cleandoc(found.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return re.sub(r"docs/proofs/([\w-]+)\.md", r"[\1](../proofs/\1.md)", text)
