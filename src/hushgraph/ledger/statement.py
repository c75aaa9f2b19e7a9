"""What a ledger says, as data: datasets with their totals and limits, and the last runs with who, when and why.

Reads running totals and the entries of the runs that are shown, however many there are.
"""

from __future__ import annotations

from typing import Any

from hushgraph.ledger.datasets import known_datasets
from hushgraph.ledger.entries import Entry
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.signoff import standing
from hushgraph.ledger.store import Rows
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
                {
                    "dataset": one.id,
                    "names": one.names,
                    "pending": not one.sketches and not rows.count("open", one.id),
                    "totals": [
                        {**total, "limits": _limits(rows, one.id, total["unit"])}
                        for total in _totals(book, one.id, unit, delta)
                    ],
                }
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


def _limits(rows: Rows, dataset: str, unit: dict[str, Any]) -> list[dict[str, Any]]:
    """The limits that were ever set on a dataset for a unit, each with the one before and the last run before it."""
    found: list[dict[str, Any]] = []
    opened = rows.of_kind("open", dataset=dataset) if rows.count("limit", dataset) > 1 else []
    for entry in rows.of_kind("limit", dataset=dataset):
        if entry.values["unit"] != unit:
            continue
        own = {key: entry.values[key] for key in ("epsilon", "delta", "operator", "purpose")}
        before = {key: found[-1][key] for key in ("epsilon", "delta")} if found else None
        runs = [one.values["run"] for one in opened if one.number < entry.number]
        after = runs[-1] if runs else None
        found.append({"time": entry.time, **own, "change": _change(own, before), "before": before, "after_run": after})
    return found


def _change(limit: dict[str, Any], before: dict[str, Any] | None) -> str:
    """Set, raised or lowered, by the numbers alone."""
    if before is None:
        return "set"
    return "raised" if any(limit[key] > before[key] for key in ("epsilon", "delta")) else "lowered"


def limit_words(limit: dict[str, Any]) -> str:
    """One limit of the history: what it was changed to, after which run, by whom and why."""
    at = f"{limit['epsilon']:g} at delta {limit['delta']:g}"
    what = f"set to {at}"
    if limit["before"] is not None:
        what = f"{limit['change']} from {limit['before']['epsilon']:g} at delta {limit['before']['delta']:g} to {at}"
        what += f" after run {limit['after_run'][:8]}" if limit["after_run"] else " before any run"
    why = f": {limit['purpose']}" if limit["purpose"] else ""
    return f"{what} by {limit['operator']}{why}"


def pending_words(dataset: dict[str, Any]) -> str:
    """What a limit on a name means as long as no data of that name was seen; nothing where it was."""
    if not dataset["pending"] or not any(total["limit"] for total in dataset["totals"]):
        return ""
    return (
        "pending: no data of this name was seen yet; the limit binds the first data that is called so, and no other "
        "(hushgraph ledger limit --data FILE binds the data itself)"
    )


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
        "signoffs": [_sign_off(entry, by_kind["signoff"]) for entry in by_kind.get("signoff", [])],
        "imported": "imported" in values,
    }


def _sign_off(entry: Entry, of_run: list[Entry]) -> dict[str, Any]:
    said = {key: entry.values[key] for key in ("verdict", "name", "note")}
    return {"time": entry.time, **said, "counts": entry in standing(of_run)}


def sign_off_words(run: dict[str, Any]) -> str:
    """The last word of every person who signed, and that there were others before."""
    said = run["signoffs"]
    words = []
    for one in (one for one in said if one["counts"]):
        others = {other["verdict"] for other in said if other["name"] == one["name"]} - {one["verdict"]}
        words.append(f"{one['verdict']} by {one['name']}" + (f" ({others.pop()} before)" if others else ""))
    return "; ".join(words)


def _refusal(entry: Entry) -> dict[str, Any]:
    kept = ("dataset", "unit", "method", "epsilon", "delta", "limit", "before", "after", "cause", "operator", "purpose")
    return {"time": entry.time, **{key: entry.values[key] for key in kept}}
