"""Results in one SQLite file, each written as soon as it is there, whole or not at all.

Every result has a checksum, so that damage to the file is noticed before it is in a table; results that were stored
before there were any are taken as they are. Every process has a connection of its own. Whoever runs a study holds a
lock beside the file; processes that it forked keep the lock until they end, so a study that was killed and started
again waits for the last of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named, database_named
from hushgraph.files.writing import number, plain, told_if_unwritable
from hushgraph.study.cell import Cell, digest

_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY, identity TEXT NOT NULL, code TEXT NOT NULL, cell TEXT NOT NULL, state TEXT NOT NULL,
    metrics TEXT NOT NULL, facts TEXT NOT NULL, message TEXT NOT NULL, seconds REAL NOT NULL, finished REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts (key TEXT NOT NULL, started REAL NOT NULL, process INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS checks (key TEXT PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS progress (study TEXT PRIMARY KEY, facts TEXT NOT NULL, updated REAL NOT NULL);
CREATE INDEX IF NOT EXISTS results_by_identity ON results (identity);
CREATE INDEX IF NOT EXISTS attempts_by_key ON attempts (key);
"""
_CHECKED = 1  # the version of a store in which every result has a checksum
_WAIT = 60.0
_AGAIN = 0.02


class State(StrEnum):
    """How a cell ended: with a result, refused by the library (a run that has no proof, say), or by a bug."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """What is known of a cell that ended. `facts` are what a run says of its privacy."""

    key: str
    code: str
    state: State
    metrics: dict[str, float | None]
    facts: dict[str, Any]
    message: str
    seconds: float
    finished: float


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to a log of writes. SQLite does not wait for another process that does so at the same moment."""
    until = time.monotonic() + _WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as found:
            if "locked" not in str(found) or time.monotonic() > until:
                raise
            time.sleep(_AGAIN)


class Store:
    """A file of results."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._own: tuple[int, sqlite3.Connection] | None = None

    @property
    def _rows(self) -> sqlite3.Connection:
        """The connection of this process; one that was inherited by a fork is left alone."""
        if self._own is None or self._own[0] != os.getpid():
            with told_if_unwritable(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous=FULL")
            if not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                connection.execute(f"PRAGMA user_version={_CHECKED}")
            connection.executescript(_TABLES)
            self._own = (os.getpid(), connection)
        return self._own[1]

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with database_named(self.path):
            return self._rows.execute(statement, values).fetchall()

    def begin(self, key: str) -> int:
        """Write down that a cell is about to be run; how often it was begun before."""
        ((before,),) = self._run("SELECT count(*) FROM attempts WHERE key = ?", (key,))
        self._run("INSERT INTO attempts VALUES (?, ?, ?)", (key, time.time(), os.getpid()))
        return int(before)

    def finish(
        self,
        cell: Cell,
        code: str,
        state: State,
        *,
        metrics: dict[str, float | None] | None = None,
        facts: dict[str, Any] | None = None,
        message: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Write down how a cell ended; what ended well is never replaced."""
        texts = [json.dumps(plain(one or {}), sort_keys=True) for one in (cell.identity(), metrics, facts)]
        start = (cell.key(code), digest(cell.identity()), code, texts[0], state.value, texts[1], texts[2])
        row = (*start, message, float(seconds), time.time())
        with database_named(self.path), self._together():
            if not self._run("SELECT 1 FROM results WHERE key = ? AND state = 'done'", row[:1]):
                self._run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                self._run("INSERT OR REPLACE INTO checks VALUES (?, ?)", (row[0], digest(row)))

    @contextlib.contextmanager
    def _together(self, how: str = "IMMEDIATE") -> Iterator[None]:
        """What is written within is there whole or not at all, and what is read is of one moment."""
        self._run(f"BEGIN {how}")
        try:
            yield
        except BaseException:
            self._rows.rollback()
            raise
        self._run("COMMIT")

    def _checked(self) -> list[Any]:
        """All rows, each compared with its checksum, in the order of their end."""
        with damage_named(self.path):
            with self._together("DEFERRED"):  # another process may write a result and its checksum between two reads
                rows = self._run("SELECT * FROM results ORDER BY finished")
                checks = dict(self._run("SELECT key, sha256 FROM checks"))
                ((version,),) = self._run("PRAGMA user_version")
            for row in rows:
                expected = checks.pop(row[0], None if version >= _CHECKED else digest(row))
                if expected != digest(row):
                    raise ValueError(f"the checksum of the result {str(row[0])[:12]} is another one")
            if checks:
                raise ValueError(f"a result was lost: {len(checks)} checksums are of none")
        return rows

    def note(self, study: str, facts: dict[str, Any]) -> None:
        """Write down how far a study is, for whoever looks on from another process."""
        text = json.dumps(plain(facts), sort_keys=True)
        self._run("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", (study, text, time.time()))

    def result(self, key: str) -> Result | None:
        """The result under a key."""
        return self.results([key]).get(key)

    def results(self, keys: Iterable[str] | None = None) -> dict[str, Result]:
        """The results under these keys (default: all), by key."""
        if not self.path.exists():
            return {}
        with damage_named(self.path):
            found = {row[0]: _read(row) for row in self._checked()}
        return found if keys is None else {key: found[key] for key in dict.fromkeys(keys) if key in found}

    def of_other_code(self, cells: Iterable[Cell]) -> dict[str, Result]:
        """The newest good result of each cell whatever code made it, by the cell's identity; or that it was refused."""
        if not self.path.exists():
            return {}
        wanted = {digest(cell.identity()) for cell in cells}
        rows = [row for row in self._checked() if row[1] in wanted]
        with damage_named(self.path):
            found = [(row[1], _read(row)) for row in rows]
        return {
            identity: one
            for state in (State.REFUSED, State.DONE)  # the last one stays
            for identity, one in found
            if one.state is state
        }

    def timings(self) -> list[tuple[dict[str, Any], float]]:
        """The cell and the seconds of every result, for estimates."""
        if not self.path.exists():
            return []
        rows = [row for row in self._checked() if row[4] == State.DONE]
        with damage_named(self.path):
            return [(json.loads(row[3]), row[8]) for row in rows]

    def begun(self) -> dict[str, int]:
        """How often every cell was begun, by key."""
        if not self.path.exists():
            return {}
        with damage_named(self.path):
            if self._run("PRAGMA integrity_check(1)") != [("ok",)]:  # compares the list with its index
                raise ValueError("the list of attempts is not what it was")
            return dict(self._run("SELECT key, count(*) FROM attempts GROUP BY key"))


def _read(row: Any) -> Result:
    key, _, code, _, state, metrics, facts, message, seconds, finished = row
    read = {name: number(value) for name, value in json.loads(metrics).items()}
    return Result(key, code, State(state), read, json.loads(facts), message, seconds, finished)


class StoreLock:
    """Held by whoever runs a study on a store, and by the processes forked from it."""

    def __init__(self, store: Path, wait: float = 5.0) -> None:
        self.path, self.wait = store.with_name(f"{store.name}.lock"), wait

    def __enter__(self) -> StoreLock:
        import fcntl

        with told_if_unwritable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w")
        until = time.monotonic() + self.wait
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except OSError:
                if time.monotonic() > until:
                    raise InputError(f"{self.path}: another process is running this study; wait for it") from None
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._file.close()
