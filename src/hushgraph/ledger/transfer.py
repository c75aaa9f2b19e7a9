"""Entries in and out: an export as JSON lines, and the import of exports and of ledgers of format 1.

The last line of an export is the ledger's signed head: one that was cut off says less than the ledger did, and is
refused. So is any text but the one that `export` writes of the same entries.

`recover` saves what can be saved of a damaged ledger, never letting a charge disappear. Entries that still follow
from one another are kept as they are, with their hashes; copies and exports fill holes. Where entries stay lost, that
is written down, and every total of the ledger is "not private" from then on: nobody knows what they charged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hushgraph.errors import HushgraphError, InputError, LedgerError
from hushgraph.files.reading import Form, damage_named, lines_within, parse_json, require_fields
from hushgraph.files.writing import flush_folder, write_whole
from hushgraph.ledger import old
from hushgraph.ledger.accounts import RunningTotals, fold
from hushgraph.ledger.datasets import JOINED
from hushgraph.ledger.entries import FIRST_LINK, Entry, History, canonical, check_chain, check_own
from hushgraph.ledger.keys import Head, Keys, contradiction
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.limits import Refusal, Request, closing_price, price_run
from hushgraph.ledger.lock import held
from hushgraph.ledger.old import OldLedger, modernized
from hushgraph.ledger.store import COLUMNS, FILE, Store, entry_of
from hushgraph.privacy import events, units

LARGEST_EXPORT = 1 << 30
_FORM: dict[str, Form] = {
    **dict.fromkeys(("kind", "time", "previous", "hash"), str),
    "number": int,
    "values": dict,
}
_OF_RUNS = ("charge", "choice", "parallel")


def export(ledger: Ledger, path: Path) -> int:
    """Write all entries to `path`, one JSON object a line, for its owner only; returns how many there are."""
    with ledger.reading():
        entries, head = ledger.history().entries, ledger.head()
    lines = (*(entry.as_dict() for entry in entries), {"head": head.as_dict()})
    write_whole(path, "".join(canonical(line) + "\n" for line in lines))
    return len(entries)


def read_export(path: Path, *, headless: bool = False) -> History:
    """The entries of an export, each checked to follow from the one before, and the last to be the one signed.

    `headless` takes one without a head, as earlier versions wrote it: whether entries are missing cannot be told.
    """
    entries: list[Entry] = []
    head: Head | None = None
    expected = f"{path}: expected an export of a ledger, one JSON object a line"
    with damage_named(expected, LedgerError, do="Export it again"):
        for line in lines_within(path, LARGEST_EXPORT, of="an export of a ledger"):
            values = parse_json(line)
            if head is not None or canonical(values).encode() + b"\n" != line:
                raise LedgerError(f"{path}: expected an export as it was written; it was changed. Export it again")
            if isinstance(values, dict) and values.keys() == {"head"}:
                head = Head.from_dict(values["head"])
            else:
                entries.append(_exported(values, path))
    check_chain(entries, str(path))
    if not entries:
        raise LedgerError(f"{path}: expected an export of a ledger; the file is empty")
    history = History(tuple(entries))
    if head is not None or not headless:
        _require_whole(history, head, path)
    return history


def _require_whole(history: History, head: Head | None, path: Path) -> None:
    if head is None:
        wrong: str | None = "it was cut off, or an earlier version wrote it"
    elif (head.number, head.time) != (history.entries[-1].number, history.entries[-1].time):
        wrong = f"the last entry has another number or time than the one signed, {head.number}"
    else:
        wrong = contradiction(head, history)
    if wrong is not None:
        raise LedgerError(f"{path}: expected the ledger's signed head in the last line; {wrong}. Export it again")


def _exported(values: Any, path: Path) -> Entry:
    if not isinstance(values, dict) or values.keys() != _FORM.keys():
        raise LedgerError(f"{path}: expected an export of a ledger, one JSON object a line; got other fields")
    require_fields(values, _FORM, path)
    entry = Entry(**values)
    check_own(entry, canonical(entry.values), str(path))
    return entry


def import_into(ledger: Ledger, source: Path, dataset: str | None = None) -> dict[str, Any]:
    """Enter the runs of another ledger: a folder or file of format 1, or an export.

    `dataset` names the dataset they belong to in this ledger; default: the name they have there.
    """
    file = source / old.FILE if source.is_dir() else source
    if not file.is_file():
        raise InputError(f"{source}: expected an export, or a ledger of format 1; found none")
    with open(file, "rb") as opened:
        first = opened.read(4096).split(b"\n")[0]
    with damage_named(source, LedgerError, do="Nothing of it was entered. Export it again"):
        if b'"version":1' in first:
            return replay_old(ledger, old.read_old(file), str(source), dataset)
        return _replay_export(ledger, read_export(file), str(source), dataset)


# Format 1


def replay_old(ledger: Ledger, found: OldLedger, source: str, dataset: str | None = None) -> dict[str, Any]:
    """Enter what a ledger of format 1 says; the limit that was in force there is set for what follows."""
    header = found.entries[0]
    facts = {"source": source, "format": 1, "last_hash": found.entries[-1]["hash"], "torn_bytes": len(found.torn)}
    with ledger.transaction():
        name = ledger.dataset_named(dataset or found.dataset)
        replay = _Replay(ledger, name, modernized(found.entries[1:], header["unit"]))
        done = replay.carry_out(facts)
    return done


# Exports


def _replay_export(ledger: Ledger, found: History, source: str, dataset: str | None) -> dict[str, Any]:
    """Enter the runs of an export, dataset by dataset; sketches stay where they are, so datasets go by their names."""
    joined = {entry.dataset for entry in found.of_kind(JOINED)}
    named = dict.fromkeys(entry.dataset for entry in found.of_kind("dataset"))
    names = [name for name in named if name is not None and name not in joined]
    if dataset is not None and len(names) != 1:
        raise InputError(f"dataset: expected an export of one dataset to rename; got {len(names)}")
    facts = {"source": source, "format": 2, "last_hash": found.last_hash, "torn_bytes": 0}
    done = {"runs": 0, "entries": 0}
    with ledger.transaction():
        for name in names:
            entries = [
                {**e.values, "kind": e.kind, "imported": {"time": e.time, "hash": e.hash}}
                for e in found.entries
                if e.dataset == name
            ]
            part = _Replay(ledger, ledger.dataset_named(dataset or name), entries).carry_out(facts)
            done = {key: done[key] + part[key] for key in done}
    return done


class _Replay:
    """Entries of one dataset on their way into a ledger. Runs come first; the last limits bind what follows them."""

    def __init__(self, ledger: Ledger, dataset: str, entries: list[dict[str, Any]]) -> None:
        self.ledger, self.dataset, self.entries = ledger, dataset, entries
        self.opened: dict[str, dict[str, Any]] = {}
        self.charged: dict[str, list[Any]] = {}

    def carry_out(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Enter everything, or nothing where it does not fit."""
        self._require_room()
        for entry in self.entries:
            if entry["kind"] == "open":
                self._open(entry)
            elif entry["kind"] in _OF_RUNS:
                self._of_run(entry)
            elif entry["kind"] == "close":
                self._close(entry)
        done = {"dataset": self.dataset, "runs": len(self.opened), "entries": len(self.entries)}
        self.ledger.append("import", {**facts, **done, **self.ledger.occasion.who})
        for entry in _last_limits(self.entries):
            unit = units.from_dict(entry["unit"])
            self.ledger.set_limit(entry["epsilon"], entry["delta"], dataset=self.dataset, unit=unit)
        return done

    def _require_room(self) -> None:
        problems = []
        for account in self.ledger.accounts(self.dataset):
            if account.limit is not None:
                problems.append(
                    f"'{self.dataset}' has a limit for '{account.unit['name']}': expected none, because what was spent "
                    "elsewhere cannot be refused. Import under another name (--dataset), or before limits are set"
                )
        with self.ledger.reading() as rows:
            known = {entry.values["run"] for entry in rows.of_kind("open")}
        twice = [entry["run"] for entry in self.entries if entry["kind"] == "open" and entry["run"] in known]
        if twice:
            problems.append(f"expected runs that are new here; {len(twice)} are known already, such as {twice[0]}")
        InputError.collect(problems)

    def _open(self, entry: dict[str, Any]) -> None:
        values = {key: value for key, value in entry.items() if key not in ("kind", "prices")}
        with self.ledger.transaction() as rows:
            self.ledger.begin_unit(rows, self.dataset, units.from_dict(values["unit"]))
            prices = []
            for account in self.ledger.accounts(self.dataset):
                own = account.unit == values["unit"]
                stored = values["ways"] if own else _ways_for(entry, account.unit)
                ways = None if stored is None else [events.from_json(way) for way in stored]
                unit, delta = units.from_dict(account.unit), values["claim"]["delta"]
                request = Request(unit, ways, delta, values["seeded"], values["unpublished"], None)
                price = price_run(account, request)
                assert not isinstance(price, Refusal)
                prices.append(price if own else {**price, "ways": stored})
            self.ledger.append("open", {**values, "dataset": self.dataset, "group": None, "prices": prices})
        self.opened[values["run"]] = {**values, "prices": prices}
        self.charged[values["run"]] = []

    def _of_run(self, entry: dict[str, Any]) -> None:
        values = {key: value for key, value in entry.items() if key not in ("kind", "unit")}
        if entry["kind"] == "charge":
            self.charged[entry["run"]].append(events.from_json(entry["event"]))
        self.ledger.append(entry["kind"], {**values, "dataset": self.dataset})

    def _close(self, entry: dict[str, Any]) -> None:
        opened, charges = self.opened[entry["run"]], self.charged[entry["run"]]
        own = next(price for price in opened["prices"] if price["unit"] == opened["unit"])
        prices = []
        if own["counts"] == "plain" and not opened["branches"]:
            again = closing_price(own, [events.composed(charges)], units.from_dict(opened["unit"]))
            was = {key: own[key] for key in ("epsilon", "delta", "cost", "cost_delta")}
            prices = [{**own, **again, "was": was}]
        model = {"tensors_hash": entry["tensors_hash"]} if entry.get("tensors_hash") else {}
        values = {"run": entry["run"], "dataset": self.dataset, "prices": prices, "charges": len(charges), **model}
        self.ledger.append("close", {**values, "imported": entry["imported"]})


def _ways_for(entry: dict[str, Any], unit: dict[str, Any]) -> list[dict[str, Any]] | None:
    for price in entry.get("prices", ()):
        if price["unit"] == unit:
            ways: list[dict[str, Any]] | None = price.get("ways")
            return ways
    return None


def _last_limits(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {canonical(entry["unit"]): entry for entry in entries if entry["kind"] == "limit"}
    return list(found.values())


_SMALLEST_ROW = 200  # bytes, at least, of an entry in the file
_LARGEST = 1 << 36
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


def recover(folder: Path, copies: Sequence[Path] = (), heads: Iterable[Head] = ()) -> dict[str, Any]:
    """Replace a damaged ledger by what is left of it; `copies` are other copies of the file, or exports.

    The damaged file is kept beside it. Returns what was kept and what is lost.
    """
    with held(folder):
        keys = Keys.read(folder)
        found, sketches, known = _salvage(folder / FILE)
        for copy in copies:
            _fill(found, sketches, copy)
        chain = _longest_chain(found, keys.public)
        known = max([known, *(head.number for head in heads if head.ledger == chain[0].hash and head.is_genuine)])
        later = [entry for number, entry in sorted(found.items()) if number >= len(chain)]
        last = max([known, *(entry.number for entry in later)])
        fresh = _write(folder, keys, chain, sketches)
        kept = _set_aside(folder / FILE)
        os.replace(fresh, folder / FILE)
        flush_folder(folder)
    lost = max(0, last + 1 - len(chain))
    if lost:
        _say_what_is_lost(Ledger(folder), len(chain), last, later)
    return {"kept": len(chain), "lost": lost, "salvaged": len(later), "damaged_file": str(kept)}


def _salvage(path: Path) -> tuple[dict[int, Entry], dict[str, str], int]:
    """All entries and sketches that can still be read, and the number of the last entry that was signed."""
    found: dict[int, Entry] = {}
    sketches: dict[str, str] = {}
    known = -1
    if not path.exists():
        return found, sketches, known
    with _whole_copy(path) as copy, contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")  # hashes tell what was changed
        for number in range(copy.stat().st_size // _SMALLEST_ROW + 1):
            with contextlib.suppress(*_UNREADABLE, HushgraphError):
                for row in connection.execute(f"SELECT {COLUMNS} FROM entries WHERE number = ?", (number,)):
                    found[number] = entry_of(row, str(path))
        with contextlib.suppress(*_UNREADABLE):
            sketches = dict(connection.execute("SELECT hash, content FROM sketches").fetchall())
        with contextlib.suppress(*_UNREADABLE, TypeError):
            known = int(connection.execute("SELECT number FROM head").fetchone()[0])
    return found, sketches, known


@contextlib.contextmanager
def _whole_copy(path: Path) -> Iterator[Path]:
    """A copy of the file as long as its header says: SQLite reads nothing of one that was cut off."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        copy = Path(place) / path.name
        for ending in ("", "-journal"):  # what a crash left to be undone belongs to it
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        with open(path, "rb") as file:
            header = file.read(32)
        size = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
        if copy.stat().st_size < size < _LARGEST:
            os.truncate(copy, size)
        yield copy


def _fill(found: dict[int, Entry], sketches: dict[str, str], copy: Path) -> None:
    """Add what a copy or an export has and the damaged file has not."""
    if copy.suffix == ".jsonl":
        entries = {entry.number: entry for entry in read_export(copy, headless=True).entries}
    else:
        entries, others, _ = _salvage(copy / FILE if copy.is_dir() else copy)
        sketches |= others
    if not entries:
        raise LedgerError(f"{copy}: expected a copy of the ledger or an export; nothing in it could be read")
    for number, entry in entries.items():
        found.setdefault(number, entry)


def _longest_chain(found: dict[int, Entry], public: str) -> list[Entry]:
    chain: list[Entry] = []
    link = FIRST_LINK
    while (entry := found.get(len(chain))) is not None and entry.previous == link:
        chain.append(entry)
        link = entry.hash
    if not chain or chain[0].values.get("public_key") != public:
        raise LedgerError("nothing can be saved: the first entry is lost or was made with other keys. Name a copy")
    return chain


def _write(folder: Path, keys: Keys, chain: list[Entry], sketches: dict[str, str]) -> Path:
    """A new file with the entries as they were."""
    path = folder / f".{FILE}.recovered"
    path.unlink(missing_ok=True)
    with Store(path).writing() as rows:
        for entry in chain:
            rows.add(entry)
        for link, content in sketches.items():
            rows.add_sketch(link, content)
        for link in rows.changed_sketches():
            rows.remove_sketch(link)
        for account in fold(History(tuple(chain))).accounts.values():
            RunningTotals(rows, keys).write(account)
        last = chain[-1]
        head = Head.signed(keys, chain[0].hash, last.number, last.hash, last.time)
        rows.set_head(head.number, head.hash, head.signature)
    return path


def _set_aside(path: Path) -> Path | None:
    if not path.exists():
        return None
    kept = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    os.rename(path, kept)
    return kept


def _say_what_is_lost(ledger: Ledger, first: int, last: int, later: list[Entry]) -> None:
    with ledger.transaction():
        ledger.append("lost", {"first": first, "last": last, **ledger.occasion.who})
        for entry in later:
            ledger.append("salvaged", {"entry": entry.as_dict()})
