"""What a ledger says was charged."""

from __future__ import annotations

from hushgraph.ledger.checking import Status, Verification
from hushgraph.ledger.ledger import Ledger


def charged_stages(ledger: Ledger) -> list[str]:
    """The stage of every charge, in order."""
    return [entry.values["stage"] for entry in ledger.history().entries if entry.kind == "charge"]


def require_sound(found: Verification) -> None:
    """Nothing is contradicted."""
    assert found.having(Status.CONTRADICTED) == []
