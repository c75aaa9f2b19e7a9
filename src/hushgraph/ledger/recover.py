"""What can be saved of a damaged ledger, without ever letting a charge disappear.

Entries that still follow from one another are kept as they are, with their hashes; copies and exports fill holes. Where
entries stay lost, that is written down, and every total of the ledger is "not private" from then on: nobody knows what
the lost entries charged.
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

from hushgraph.errors import HushgraphError, LedgerError
from hushgraph.ledger.accounts import fold
from hushgraph.ledger.entries import FIRST_LINK, Entry, History
from hushgraph.ledger.head import Head
from hushgraph.ledger.keys import Keys
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.lock import held
from hushgraph.ledger.running import RunningTotals
from hushgraph.ledger.store import COLUMNS, FILE, Store, entry_of
from hushgraph.ledger.transfer import read_export
from hushgraph.text import flush_folder

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
        entries = {entry.number: entry for entry in read_export(copy).entries}
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
