"""What a ledger says, as data: datasets with their totals and limits, and the last runs with who, when and why.

Reads running totals and the entries of the runs that are shown, however many there are.

`render` makes one HTML file of it that opens offline.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.accounts import Account
from hushgraph.ledger.datasets import known_datasets
from hushgraph.ledger.entries import Entry
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.limits import cause_in_words
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.store import Rows
from hushgraph.ledger.totals import curves_of, total_of
from hushgraph.ledger.verify import standing
from hushgraph.privacy.units import Unit
from hushgraph.text import rounded_up

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
                        for total in _totals(book, rows, one.id, unit, delta)
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


def run_of(ledger: Ledger, run: str) -> dict[str, Any]:
    """One run by its whole id, as a statement shows it."""
    book = ledger.readable()
    with book.reading() as rows:
        entries = rows.of_run(run)
        if not any(entry.kind == "open" for entry in entries):
            raise InputError(f"run: expected one of this ledger; it has no run '{run}'. See `hushgraph ledger show`")
        return _run(entries)


def _totals(book: Ledger, rows: Rows, dataset: str, unit: Unit | None, delta: float | None) -> list[dict[str, Any]]:
    if unit is not None:
        return [book.total(dataset, unit, delta).as_dict()]
    found = []
    for account in sorted(book.accounts(dataset), key=lambda account: unit_key(account.unit)):
        if _only_refused(rows, account):
            continue
        found.append(total_of(account, delta, lambda own=account: curves_of(book.history(), own)).as_dict())  # type: ignore[misc]
    return found


def _only_refused(rows: Rows, account: Account) -> bool:
    """Whether a unit is known from refused runs alone: "not private" would be about runs that promise other things."""
    says_more = account.is_private or account.limit or account.groups or account.lost
    if says_more or not rows.count("refused", account.dataset):
        return False
    return all(entry.values["unit"] != account.unit for entry in rows.of_kind("open", dataset=account.dataset))


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
        "pending: no data of this name was seen yet; the limit binds the first data used under that name, and no other "
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
        "model_path": models[-1].get("model_path") if models else None,
        "weights_hash": models[-1].get("weights_hash") if models else None,
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


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1d232b }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem } caption { text-align: left; padding: .3rem 0 }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #d8dde3; vertical-align: top }
th { background: #f3f5f7 } .number { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #a3161b; font-weight: 600 } .small { color: #5a6572; font-size: .85rem } code { word-break: break-all }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #e4e8ec } th { background: #1f262e }
  th, td { border-color: #333c46 } .bad { color: #ff8a8a } .small { color: #9aa7b5 } }
"""


def render(found: dict[str, Any]) -> str:
    """The page of a statement."""
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = [
        "<h1>Privacy ledger</h1>",
        f'<p class="small">{_text(found["folder"] or "in memory")}: {found["entries"]} entries, last hash '
        f"<code>{_text(found['hash'])}</code>. Written {written}. It is shown here, not verified: run "
        "<code>hushgraph ledger verify</code>.</p>",
        *(_dataset(dataset) for dataset in found["datasets"]),
        _runs(found["runs"], found["runs_in_all"]),
        _refusals(found["refused"], found["refused_in_all"]),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Privacy ledger</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _dataset(dataset: dict[str, Any]) -> str:
    others = [name for name in dataset["names"] if name != dataset["dataset"]]
    names = f' <span class="small">also called {_text(", ".join(others))}</span>' if others else ""
    rows = [
        (
            _text(total["unit"]["name"]),
            f"<b>{_text(total['words'])}</b>"
            if total["private"]
            else f'<span class="bad">{_text(total["words"])}</span>',
            _limit(total["limit"]) + _history(total["limits"]),
            _text(total["reason"]),
        )
        for total in dataset["totals"]
    ]
    pending = f'<p class="bad">{_text(words)}</p>' if (words := pending_words(dataset)) else ""
    return f"<h2>{_text(dataset['dataset'])}{names}</h2>{pending}" + _table(("unit", "total", "limit", "why"), rows)


def _history(limits: list[dict[str, Any]]) -> str:
    return "".join(f'<br><span class="small">{_text(limit_words(limit))}</span>' for limit in limits[1:])


def _limit(limit: dict[str, Any] | None) -> str:
    if limit is None:
        return "none"
    why = f": {_text(limit['purpose'])}" if limit["purpose"] else ""
    who = f'<br><span class="small">set by {_text(limit["operator"])}{why}</span>'
    return f"epsilon {limit['epsilon']:g} at delta {limit['delta']:g}{who}"


def _runs(runs: list[dict[str, Any]], in_all: int) -> str:
    rows = [
        (
            f"<code>{_text(run['run'])}</code><br><span class='small'>{_text(run['time'])}</span>",
            _text(run["dataset"]),
            _text(run["method"] + (f": {run['chosen']}" if run["chosen"] else "")),
            _text(run["unit"]["name"]),
            f"{_epsilon(run['epsilon'])} at {run['delta']:g}",
            _text(run_state(run)),
            f"{_text(run['operator'])}<br><span class='small'>{_text(run['purpose'])}</span>",
            f"<span class='small'>{_text(run['model_path'] or '')}</span>",
            _text(sign_off_words(run)),
        )
        for run in reversed(runs)
    ]
    heads = ("run", "dataset", "method", "unit", "epsilon", "state", "who and why", "model", "sign-off")
    return f"<h2>Runs</h2><p class='small'>The last {len(runs)} of {in_all}.</p>" + _table(heads, rows)


def run_state(run: dict[str, Any]) -> str:
    """How a run counts, in words."""
    words = ["closed" if run["closed"] else "open: all of it counts"]
    if run["seeded"]:
        words.append("seeded: not private")
    if run["counts"] == "left out":
        words.append("unpublished: left out")
    elif run["counts"] == "unproved":
        words.append("no guarantee")
    if run["group"]:
        words.append(f"group {run['group']}")
    return ", ".join(words)


def _refusals(refused: list[dict[str, Any]], in_all: int) -> str:
    if not refused:
        return ""
    rows = [
        (
            _text(one["time"]),
            _text(one["dataset"]),
            _text(one["method"]),
            _text(one["unit"]["name"]),
            _epsilon(one["epsilon"]),
            _text(cause_in_words(one["cause"])),
            _text(one["operator"]),
        )
        for one in reversed(refused)
    ]
    heads = ("time", "dataset", "method", "unit of the limit", "epsilon asked", "why", "who")
    return f"<h2>Refused</h2><p class='small'>The last {len(refused)} of {in_all}.</p>" + _table(heads, rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{_text(word)}</th>" for word in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _epsilon(value: Any) -> str:
    return rounded_up(float(value))


def _text(value: Any) -> str:
    return html.escape(str(value))
