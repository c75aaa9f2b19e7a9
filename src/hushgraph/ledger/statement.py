"""What a ledger says, as data: datasets with their totals and limits, and the last runs with who, when and why.

Reads running totals and the entries of the runs that are shown, however many there are.
"""

from __future__ import annotations

from typing import Any

from hushgraph.ledger.datasets import known_datasets
from hushgraph.ledger.entries import Entry
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.totals import curves_of, total_of
from hushgraph.privacy.units import Unit

LAST = 20


def statement(
    ledger: Ledger,
    *,
    dataset: str | None = None,
    unit: Unit | None = None,
    delta: float | None = None,
    last: int = LAST,
) -> dict[str, Any]:
    """The datasets (or one), with totals for every unit that was charged (or for `unit`), and the last runs."""
    book = ledger.readable()
    with book.reading() as rows:
        known = known_datasets(rows)
        chosen = None if dataset is None else book.find_dataset(dataset)
        head = book.head()
        return {
            "folder": None if ledger.folder is None else str(ledger.folder),
            "entries": head.number + 1,
            "hash": head.hash,
            "datasets": [
                {"dataset": one.id, "names": one.names, "totals": _totals(book, one.id, unit, delta)}
                for one in known.values()
                if chosen in (None, one.id)
            ],
            "runs": [_run(rows.of_run(entry.values["run"])) for entry in rows.of_kind("open", last, chosen)],
            "runs_in_all": rows.count("open", chosen),
            "refused": [_refusal(entry) for entry in rows.of_kind("refused", last, chosen)],
            "refused_in_all": rows.count("refused", chosen),
        }


def _totals(book: Ledger, dataset: str, unit: Unit | None, delta: float | None) -> list[dict[str, Any]]:
    if unit is not None:
        return [book.total(dataset, unit, delta).as_dict()]
    found = []
    for account in sorted(book.accounts(dataset), key=lambda account: unit_key(account.unit)):
        found.append(total_of(account, delta, lambda own=account: curves_of(book.history(), own)).as_dict())  # type: ignore[misc]
    return found


def _run(entries: list[Entry]) -> dict[str, Any]:
    """One run, from its entries."""
    by_kind = {kind: [entry for entry in entries if entry.kind == kind] for kind in {entry.kind for entry in entries}}
    opened = by_kind["open"][0]
    values = opened.values
    closed = by_kind.get("close", [None])[0]
    price = next(price for price in values["prices"] if price["unit"] == values["unit"])
    if closed is not None and closed.values["prices"]:
        price = closed.values["prices"][0]
    models = [entry.values for entry in by_kind.get("model", []) or ([closed] if closed is not None else [])]
    return {
        "run": values["run"],
        "time": values.get("imported", {}).get("time", opened.time),
        "dataset": values["dataset"],
        "unit": values["unit"],
        "method": values["method"],
        "chosen": next((entry.values["option"] for entry in by_kind.get("choice", [])), None),
        "closed": closed is not None,
        "charges": len(by_kind.get("charge", [])),
        "epsilon": price["epsilon"],
        "delta": values["claim"]["delta"],
        "counts": price["counts"],
        "seeded": values["seeded"],
        "paper_mode": values["paper_mode"],
        "unpublished": values["unpublished"],
        "group": values["group"],
        "operator": values["operator"],
        "purpose": values["purpose"],
        "command": values["command"],
        "model_path": models[-1]["model_path"] if models else None,
        "weights_hash": models[-1]["weights_hash"] if models else None,
        "signoffs": [_sign_off(entry) for entry in by_kind.get("signoff", [])],
        "imported": "imported" in values,
    }


def _sign_off(entry: Entry) -> dict[str, Any]:
    return {"time": entry.time, **{key: entry.values[key] for key in ("verdict", "name", "note")}}


def _refusal(entry: Entry) -> dict[str, Any]:
    kept = ("dataset", "unit", "method", "epsilon", "delta", "limit", "before", "after", "cause", "operator", "purpose")
    return {"time": entry.time, **{key: entry.values[key] for key in kept}}
