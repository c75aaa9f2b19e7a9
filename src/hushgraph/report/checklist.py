"""One line of a list that a claim is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["handled", "partly", "not handled", "outside"]


@dataclass(frozen=True)
class Row:
    """An item of a checklist, its state, and what is true of it in this run."""

    name: str
    state: State
    words: str
