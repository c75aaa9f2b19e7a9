"""Runs whose process ended before it could close them: what they planned and never charged can be given back.

An open run counts as its whole plan, because nobody knows what it will still release. Closing it fixes that: from then
on every charge of it is refused (`Run.charge`), so that what it has charged is all that it can ever have released.
"""

from __future__ import annotations

from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.accounts import FILTER, PLAIN
from hushgraph.ledger.entries import Entry
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.limits import closing_price
from hushgraph.ledger.verify import find_run
from hushgraph.privacy import events, units


def close_abandoned(ledger: Ledger, run: str) -> dict[str, Any]:
    """Close a run (its id, or the beginning of it) in its process's place; returns what was entered.

    The occasion of the ledger says who does it, and why, which is needed.
    """
    if not ledger.occasion.purpose.strip():
        raise InputError(
            "purpose: expected why the run is closed (its process was stopped, ...); got none. Say it: --why"
        )
    with ledger.transaction() as rows:
        whole = find_run([entry.values["run"] for entry in rows.of_kind("open")], run)
        entries = rows.of_run(whole)
        if any(entry.kind == "close" for entry in entries):
            raise InputError(f"run: expected one that is open; {whole} is closed already")
        opened = next(entry for entry in entries if entry.kind == "open").values
        charges = [entry for entry in entries if entry.kind == "charge"]
        values = {
            "run": whole,
            "dataset": opened["dataset"],
            "prices": _prices(opened, charges),
            "charges": len(charges),
        }
        values |= {"model_path": None, "weights_hash": None, "abandoned": ledger.occasion.who}
        ledger.append("close", values)
    return values


def _prices(opened: dict[str, Any], charges: list[Entry]) -> list[dict[str, Any]]:
    """What the charges cost; a run that chose its way, or that belongs to a group, keeps its whole price."""
    price = next(price for price in opened["prices"] if price["unit"] == opened["unit"])
    if opened["branches"] or price["counts"] not in (PLAIN, FILTER):
        return []
    charged = events.composed([events.from_json(entry.values["event"]) for entry in charges])
    final = {**price, **closing_price(price, [charged], units.from_dict(opened["unit"]))}
    return [{**final, "was": {key: price[key] for key in ("epsilon", "delta", "cost", "cost_delta")}}]
