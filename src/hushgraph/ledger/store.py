"""The file of a ledger: one SQLite database with the entries, and what can be computed again from them.

A transaction is on the disk when it ends (rollback journal, `synchronous=EXTRA`); one that was cut short by a crash
never happened, and the next process to open the file undoes what is left of it. Connections are opened for one
transaction and closed after it, so that nothing is ever written to a file that was replaced meanwhile.

`entries` is the chain. `head` is the number and hash of its last entry, signed. `accounts` are running totals, each
with a keyed checksum; a row whose checksum does not fit is computed again from the entries. `sketches` hold what
recognizes a dataset; the entries have their hashes only, so that an export of the entries tells nothing about the data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.files.reading import damage_named, parse_json
from hushgraph.ledger.entries import Entry, check_own, text_of

FILE = "ledger.db"
FORMAT = 2
_APPLICATION = 0x68757368  # "hush"
_SCHEMA = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, dataset TEXT, run TEXT, "
    "body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE INDEX entries_of_run ON entries (run, number)",
    "CREATE INDEX entries_of_kind ON entries (kind, number)",
    "CREATE INDEX entries_of_dataset ON entries (dataset, kind, number)",
    "CREATE TABLE head (one INTEGER PRIMARY KEY, number INTEGER NOT NULL, hash TEXT NOT NULL, signature TEXT NOT NULL)",
    "CREATE TABLE accounts (dataset TEXT NOT NULL, unit TEXT NOT NULL, state TEXT NOT NULL, checksum TEXT NOT NULL, "
    "PRIMARY KEY (dataset, unit)) WITHOUT ROWID",
    "CREATE TABLE sketches (hash TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
)
COLUMNS = "number, kind, time, dataset, run, body, previous, hash"
_BUSY = 10.0


@dataclass
class Store:
    """The database at `path`, or one in memory (None)."""

    path: Path | None
    rows_read: int = 0
    _begun: bool = False
    _memory: sqlite3.Connection | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """The place, for messages."""
        return "memory" if self.path is None else str(self.path)

    @property
    def is_there(self) -> bool:
        """Whether there is a file with something in it; one whose very first transaction was cut short has nothing."""
        if self.path is None:
            return self._memory is not None
        if not self.path.exists() or self.path.stat().st_size == 0:
            return False
        self._begun = self._begun or self._has_tables()
        return self._begun

    def _has_tables(self) -> bool:
        try:
            with self._connected(create=False) as connection:
                return bool(_schema_of(connection))
        except (sqlite3.Error, UnicodeDecodeError, LedgerError):
            return True  # damaged, which is for whoever reads it to say

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        """One consistent view of the file."""
        with self._connected(create=False) as connection, self._named_errors():
            connection.execute("BEGIN")
            try:
                yield self._checked(connection)
            finally:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        """One transaction: all that is written in it is on the disk afterwards, or nothing is."""
        with self._connected(create=True) as connection, self._named_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = _schema_of(connection)
                if not found:
                    _create(connection)
                yield self._checked(connection, found or None)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def integrity_problems(self) -> list[str]:
        """What SQLite's own check of all pages and indexes finds."""
        with self._connected(create=False) as connection, self._named_errors():
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
        return [] if found == ["ok"] else found

    def _checked(self, connection: sqlite3.Connection, found: set[str] | None = None) -> Rows:
        found = _schema_of(connection) if found is None else found
        if not found:
            raise LedgerError(f"{self.where}: expected a ledger; the file is empty. Restore it from a copy")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != set(_SCHEMA) or version != FORMAT:
            raise LedgerError(
                f"{self.where}: expected a ledger of format {FORMAT}; got format {version} with other tables or "
                "triggers: the file was changed or belongs to something else"
            )
        return Rows(connection, self)

    @contextlib.contextmanager
    def _connected(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        if self.path is None:
            if self._memory is None:
                self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            yield self._memory
            return
        if create and not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        with self._named_errors():
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_BUSY
            )
        try:
            for pragma in ("journal_mode=DELETE", "synchronous=EXTRA", "cell_size_check=ON", "trusted_schema=OFF"):
                with self._named_errors():
                    connection.execute(f"PRAGMA {pragma}")
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "I/O" in str(error):
                raise LedgerError(
                    f"{self.where}: could not be written ({error}): nothing was charged and nothing is released. "
                    "Make room on the disk and try again"
                ) from error
            if any(word in str(error) for word in ("locked", "busy", "unable to open", "readonly")):
                raise LedgerError(f"{self.where}: could not be opened for this ({error}). Try again") from error
            raise _damaged(self.where, error) from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter where SQLite quotes what it found
            raise _damaged(self.where, error) from error


@dataclass
class Rows:
    """The rows of an open transaction."""

    connection: sqlite3.Connection
    store: Store

    def last(self) -> Entry | None:
        """The last entry, if there is one."""
        return next(iter(self._entries("ORDER BY number DESC LIMIT 1")), None)

    def first(self) -> Entry | None:
        """The first entry: format, public key."""
        return next(iter(self._entries("ORDER BY number LIMIT 1")), None)

    def all(self) -> list[Entry]:
        """Every entry in order."""
        return self._entries("ORDER BY number")

    def of_run(self, run: str) -> list[Entry]:
        """The entries of a run."""
        return self._entries("WHERE run = ? ORDER BY number", run)

    def of_kind(self, kind: str, last: int | None = None, dataset: str | None = None) -> list[Entry]:
        """The entries of a kind in order, only the `last` ones if given, only those of a dataset if given."""
        where = "WHERE kind = ?" if dataset is None else "WHERE kind = ? AND dataset = ?"
        words = [kind] if dataset is None else [kind, dataset]
        if last is None:
            return self._entries(f"{where} ORDER BY number", *words)
        return self._entries(f"{where} ORDER BY number DESC LIMIT {int(last)}", *words)[::-1]

    def last_number(self, kinds: Sequence[str], dataset: str) -> int:
        """The number of the last entry of any of these kinds about a dataset; 0 if there is none."""
        where = f"dataset = ? AND kind IN ({', '.join('?' * len(kinds))})"
        found = self.connection.execute(f"SELECT max(number) FROM entries WHERE {where}", (dataset, *kinds)).fetchone()
        return int(found[0] or 0)

    def count(self, kind: str, dataset: str | None = None) -> int:
        """How many entries of a kind there are, of one dataset if given."""
        where, words = ("kind = ?", (kind,)) if dataset is None else ("kind = ? AND dataset = ?", (kind, dataset))
        return int(self.connection.execute(f"SELECT count(*) FROM entries WHERE {where}", words).fetchone()[0])

    def add(self, entry: Entry) -> None:
        """Put one more entry at the end."""
        body = text_of(entry.values)
        values = (entry.number, entry.kind, entry.time, entry.dataset, entry.run, body, entry.previous, entry.hash)
        self.connection.execute(f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _entries(self, where: str, *words: Any) -> list[Entry]:
        rows = self.connection.execute(f"SELECT {COLUMNS} FROM entries {where}", words).fetchall()
        self.store.rows_read += len(rows)
        return [entry_of(row, self.store.where) for row in rows]

    # What can be computed again

    def head(self) -> tuple[int, str, str] | None:
        """The number, hash and signature of the last entry as it was written with it."""
        found = self.connection.execute("SELECT number, hash, signature FROM head").fetchall()
        if len(found) > 1:
            raise LedgerError(f"{self.store.where}: expected one head; got {len(found)}: the file was changed")
        if found and [type(one) for one in found[0]] != [int, str, str]:
            raise LedgerError(f"{self.store.where}: expected a number, a hash and a signature as head; got others")
        return found[0] if found else None

    def set_head(self, number: int, link: str, signature: str) -> None:
        """Replace the signed head."""
        self.connection.execute("DELETE FROM head")
        self.connection.execute("INSERT INTO head VALUES (1, ?, ?, ?)", (number, link, signature))

    def accounts(self, dataset: str | None = None) -> list[tuple[str, str, str, str]]:
        """Dataset, unit, state and checksum of all accounts, or of one dataset's."""
        where, words = ("", ()) if dataset is None else ("WHERE dataset = ?", (dataset,))
        query = f"SELECT dataset, unit, state, checksum FROM accounts {where} ORDER BY dataset, unit"
        found = self.connection.execute(query, words).fetchall()
        self.store.rows_read += len(found)
        return found

    def set_account(self, dataset: str, unit: str, state: str, checksum: str) -> None:
        """Replace one running total."""
        self.connection.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?)", (dataset, unit, state, checksum))

    def sketches(self) -> dict[str, str]:
        """All sketches by their hash; an error where something else than text is stored."""
        found = dict(self.connection.execute("SELECT hash, content FROM sketches").fetchall())
        if not all(isinstance(text, str) for text in found.values()):
            raise LedgerError(f"{self.store.where}: the sketch of a dataset was changed or damaged")
        return found

    def changed_sketches(self) -> set[str]:
        """The hashes of sketches whose content does not have that hash."""
        return {link for link, text in self.sketches().items() if hashlib.sha256(text.encode()).hexdigest() != link}

    def remove_sketch(self, link: str) -> None:
        """Forget a sketch."""
        self.connection.execute("DELETE FROM sketches WHERE hash = ?", (link,))

    def add_sketch(self, link: str, content: str) -> None:
        """Keep a sketch."""
        self.connection.execute("INSERT OR IGNORE INTO sketches VALUES (?, ?)", (link, content))


def _schema_of(connection: sqlite3.Connection) -> set[str]:
    return {str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _create(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute(f"PRAGMA user_version={FORMAT}")


def entry_of(row: tuple[Any, ...], where: str) -> Entry:
    """The entry of a row; an error where its parts do not fit one another or its hash.

    Its values are read anew every time: whoever got them may change them, and what is next read is what is written. A
    body that was found to be the one text of its values needs no careful parser any more.
    """
    _require_own(row, where)
    return _entry(row, json.loads(row[5]))


@lru_cache(maxsize=256)
def _require_own(row: tuple[Any, ...], where: str) -> None:
    """A run reads its own entries again with every charge: those that were checked before are not hashed again."""
    number, _, _, dataset, run, body, _, _ = row
    with damage_named(f"{where}: entry {number}", LedgerError):
        entry = _entry(row, parse_json(body))
        same = (entry.dataset, entry.run) == (dataset, run) and body == text_of(entry.values)
    if not same:
        raise LedgerError(f"{where}: entry {number} was changed after it was written")
    check_own(entry, body, where)


def _entry(row: tuple[Any, ...], values: dict[str, Any]) -> Entry:
    number, kind, time, _, _, _, previous, link = row
    return Entry(int(number), str(kind), str(time), values, str(previous), str(link))


def _damaged(where: str, error: Exception) -> LedgerError:
    return LedgerError(
        f"{where}: the file was changed or damaged ({error}). Restore it from a copy, or save what is left of it with "
        "`hushgraph ledger recover`"
    )
