"""Who runs something on a dataset, why, and what they declare about it. Every run is entered with its occasion."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from hushgraph.ledger.identity import GraphArrays
from hushgraph.ledger.lock import command_line

OPERATOR = "HUSHGRAPH_OPERATOR"


def default_operator() -> str:
    """The operator named by HUSHGRAPH_OPERATOR, or user@host."""
    if named := os.environ.get(OPERATOR, "").strip():
        return named
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True)
class Occasion:
    """What a ledger writes down with every run that is opened on it.

    `unpublished` declares that nothing of a run that is not private (seeded, or without protection) will leave the
    holder: it is then left out of totals. `group` names runs that were declared together before the first of them
    (`Ledger.declare_group`). `arrays` is the data itself, from which the ledger recognizes the dataset; `continues` and
    `separate` decide where it resembles one that is known.
    """

    operator: str = field(default_factory=default_operator)
    purpose: str = ""
    command: str = field(default_factory=command_line)
    unpublished: bool = False
    group: str | None = None
    arrays: GraphArrays | None = None
    continues: str | None = None
    separate: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What goes into an entry."""
        return {
            "operator": self.operator,
            "purpose": self.purpose,
            "command": self.command,
            "unpublished": self.unpublished,
            "group": self.group,
        }

    @property
    def who(self) -> dict[str, str]:
        """The operator and the purpose."""
        return {"operator": self.operator, "purpose": self.purpose}
