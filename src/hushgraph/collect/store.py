"""Where tasks, enrolled nodes and reports are kept: SQLite by default, PostgreSQL by address.

The tables hold as little as possible: tokens only as SHA-256, reports only as the noisy payload, and of the time only
the day. One report per node and task is a primary key, not a convention, so no crash or race can double a report. A
report is acknowledged only after its transaction is committed to disk.

Group commit: reports that arrive together share one transaction.

A commit waits for the disk. Reports that come in meanwhile are collected and written by the next commit, so the number
of reports a second is not limited by the disk. Nobody is answered before the commit that holds their report.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from hushgraph.collect.task import Task
from hushgraph.errors import HushgraphError, InputError

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS task(id TEXT PRIMARY KEY, config TEXT NOT NULL, config_sha256 TEXT NOT NULL, "
    "state TEXT NOT NULL CHECK(state IN ('open', 'closed')))",
    "CREATE TABLE IF NOT EXISTS node(task_id TEXT NOT NULL REFERENCES task(id), node_token_hash {blob} NOT NULL, "
    "node_index INTEGER NOT NULL, PRIMARY KEY(task_id, node_token_hash), UNIQUE(task_id, node_index))",
    "CREATE TABLE IF NOT EXISTS report(task_id TEXT NOT NULL REFERENCES task(id), node_index INTEGER NOT NULL, "
    "report_id {blob} NOT NULL, payload {blob} NOT NULL, received_day TEXT NOT NULL, "
    "PRIMARY KEY(task_id, node_index), UNIQUE(task_id, report_id))",
    "CREATE TABLE IF NOT EXISTS setting(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class Outcome(Enum):
    """What became of a report; the value is the HTTP status that tells the client."""

    STORED = 201
    REPLAY = 200
    UNKNOWN_NODE = 403
    CONFLICT = 409
    CLOSED = 410


@dataclass(frozen=True)
class Arrival:
    """A checked report on its way into the store. `day` is the only trace of time."""

    task_id: str
    token_hash: bytes
    report_id: bytes
    payload: bytes
    day: str
    accepting: bool = True


@dataclass(frozen=True)
class TaskRecord:
    """A stored task and whether it is still open."""

    task: Task
    state: str


class Connection(Protocol):
    """The part of a database connection that is used; `sqlite3` and `psycopg` both have it."""

    def execute(self, statement: Any, parameters: Any = ...) -> Any:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close."""
        ...


class Store(ABC):
    """All questions the service asks of its database. Subclasses only know how to connect and to begin."""

    blob = "BLOB"
    placeholder = "?"
    row_lock = ""

    def __init__(self) -> None:
        self._local = threading.local()
        with self._transaction(write=True) as run:
            for statement in SCHEMA:
                run(statement.format(blob=self.blob))

    def create_task(self, task: Task) -> None:
        """Add a task; a task with that id that differs in anything is refused, the same one is left as it is."""
        with self._transaction(write=True) as run:
            found = run("SELECT config_sha256 FROM task WHERE id = ?", (task.id,)).fetchone()
            if found is not None and found[0] != task.sha256:
                raise InputError(
                    f"expected a new id; task {task.id!r} exists and differs; tasks never change, rename it"
                )
            if found is None:
                values = (task.id, task.canonical_json(), task.sha256, "open")
                run("INSERT INTO task(id, config, config_sha256, state) VALUES (?, ?, ?, ?)", values)

    def task(self, task_id: str) -> TaskRecord | None:
        """A stored task; its hash is checked on the way out."""
        with self._transaction() as run:
            row = run("SELECT config, config_sha256, state FROM task WHERE id = ?", (task_id,)).fetchone()
        if row is None:
            return None
        task = Task.from_json(row[0])
        if task.sha256 != row[1]:
            raise InputError(f"expected the stored hash of task {task_id!r}; got another; the database was changed")
        return TaskRecord(task, row[2])

    def task_ids(self) -> list[str]:
        """All tasks, in the order of their names."""
        with self._transaction() as run:
            return [row[0] for row in run("SELECT id FROM task ORDER BY id").fetchall()]

    def enroll(self, task_id: str, token_hashes: Sequence[tuple[int, bytes]]) -> None:
        """Give nodes their (hashed) tokens. A node is enrolled once: tokens are never replaced."""
        with self._transaction(write=True) as run:
            for node_index, token_hash in token_hashes:
                taken = run("SELECT 1 FROM node WHERE task_id = ? AND node_index = ?", (task_id, node_index)).fetchone()
                if taken is not None:
                    raise InputError(
                        f"expected nodes without a token; node {node_index} has one; enroll only new nodes"
                    )
                values = (task_id, token_hash, node_index)
                run("INSERT INTO node(task_id, node_token_hash, node_index) VALUES (?, ?, ?)", values)

    def add(self, arrivals: Sequence[Arrival]) -> list[Outcome]:
        """Decide and store a batch in one transaction; when this returns, the stored ones are on disk."""
        with self._transaction(write=True) as run:
            return [self._add_one(run, arrival) for arrival in arrivals]

    def close_task(self, task_id: str) -> None:
        """Accept no new reports from now on. There is no way back."""
        with self._transaction(write=True) as run:
            run("UPDATE task SET state = 'closed' WHERE id = ?", (task_id,))

    def counts(self, task_id: str) -> tuple[int, int]:
        """Exact numbers of enrolled nodes and of reports: for the operator, never shown unrounded to others."""
        with self._transaction() as run:
            enrolled = run("SELECT COUNT(*) FROM node WHERE task_id = ?", (task_id,)).fetchone()[0]
            return enrolled, run("SELECT COUNT(*) FROM report WHERE task_id = ?", (task_id,)).fetchone()[0]

    def reports(self, task_id: str) -> list[tuple[int, bytes]]:
        """All (node index, payload), by node."""
        with self._transaction() as run:
            rows = run("SELECT node_index, payload FROM report WHERE task_id = ? ORDER BY node_index", (task_id,))
            return [(int(node), bytes(payload)) for node, payload in rows.fetchall()]

    def setting(self, name: str) -> str | None:
        """A stored setting, such as the hash of the operator's token."""
        with self._transaction() as run:
            row = run("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set_once(self, name: str, value: str) -> bool:
        """Store a setting unless it exists; whether it was stored."""
        with self._transaction(write=True) as run:
            statement = "INSERT INTO setting(name, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
            return run(statement, (name, value)).rowcount == 1

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _add_one(self, run: Any, arrival: Arrival) -> Outcome:
        task_id = arrival.task_id
        found = run(
            "SELECT node_index FROM node WHERE task_id = ? AND node_token_hash = ?", (task_id, arrival.token_hash)
        ).fetchone()
        if found is None:
            return Outcome.UNKNOWN_NODE
        stored = run(
            "SELECT report_id, payload FROM report WHERE task_id = ? AND node_index = ?", (task_id, found[0])
        ).fetchone()
        if stored is not None:
            return self._compare(stored, arrival)
        state = run(f"SELECT state FROM task WHERE id = ?{self.row_lock}", (task_id,)).fetchone()
        if state[0] != "open" or not arrival.accepting:
            return Outcome.CLOSED
        values = (task_id, found[0], arrival.report_id, arrival.payload, arrival.day)
        statement = (
            "INSERT INTO report(task_id, node_index, report_id, payload, received_day) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING"
        )
        if run(statement, values).rowcount == 1:
            return Outcome.STORED
        # Another process was first, or the report id belongs to another node.
        stored = run(
            "SELECT report_id, payload FROM report WHERE task_id = ? AND node_index = ?", (task_id, found[0])
        ).fetchone()
        return Outcome.CONFLICT if stored is None else self._compare(stored, arrival)

    @staticmethod
    def _compare(stored: Sequence[Any], arrival: Arrival) -> Outcome:
        """A replay must repeat the secret report id too, so a stolen token cannot test guesses of the payload."""
        same = bytes(stored[0]) == arrival.report_id and bytes(stored[1]) == arrival.payload
        return Outcome.REPLAY if same else Outcome.CONFLICT

    @contextlib.contextmanager
    def _transaction(self, write: bool = False) -> Iterator[Any]:
        """Run statements on this thread's connection and commit, or roll back and pass the error on."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()

        def run(statement: str, parameters: Sequence[Any] = ()) -> Any:
            return connection.execute(statement.replace("?", self.placeholder), parameters)

        self._begin(connection, write)
        try:
            yield run
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @abstractmethod
    def _connect(self) -> Connection:
        """A new connection that commits nothing by itself."""

    @abstractmethod
    def _begin(self, connection: Connection, write: bool) -> None:
        """Open a transaction; with `write`, one that may change something."""


class SqliteStore(Store):
    """One file, write-ahead logging, full synchronization: a committed report survives a power cut."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        super().__init__()

    def _connect(self) -> Connection:
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _begin(self, connection: Connection, write: bool) -> None:
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")


class PostgresStore(Store):
    """A PostgreSQL database by address; needs the `psycopg` package."""

    blob = "BYTEA"
    placeholder = "%s"
    row_lock = " FOR SHARE"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__()

    def _connect(self) -> Connection:
        try:
            import psycopg
        except ImportError as error:
            raise InputError(
                "expected the package psycopg for PostgreSQL; it is missing; pip install psycopg"
            ) from error
        return psycopg.connect(self.address, autocommit=True)

    def _begin(self, connection: Connection, write: bool) -> None:
        connection.execute("BEGIN")


def open_store(address: str) -> Store:
    """A store by address: `postgresql://...`, `sqlite:///path`, or just a path."""
    if address.startswith(("postgresql://", "postgres://")):
        return PostgresStore(address)
    if "://" in address and not address.startswith("sqlite:///"):
        raise InputError(f"expected a path, sqlite:///path or postgresql://...; got {address!r}; check the address")
    return SqliteStore(address.removeprefix("sqlite:///"))


LARGEST_BATCH = 256
QUEUE_LENGTH = 4096


class Overloaded(HushgraphError):
    """More reports are waiting than the service wants to hold in memory; the client tries again later."""


class Committer:
    """One thread that writes batches. `start` and `stop` belong to the life of the server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: queue.Queue[tuple[Arrival, Future[Outcome]] | None] = queue.Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is waiting, then end."""
        self._waiting.put(None)
        self._thread.join()

    async def add(self, arrival: Arrival) -> Outcome:
        """Wait until the report is decided and, if stored, committed."""
        future: Future[Outcome] = Future()
        try:
            self._waiting.put_nowait((arrival, future))
        except queue.Full:
            raise Overloaded("the queue is full") from None
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        running = True
        while running:
            batch = [self._waiting.get()]
            while len(batch) < LARGEST_BATCH and batch[-1] is not None:
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            running = batch[-1] is not None
            self._write([item for item in batch if item is not None])
        self.store.close()

    def _write(self, batch: list[tuple[Arrival, Future[Outcome]]]) -> None:
        if not batch:
            return
        try:
            outcomes = self.store.add([arrival for arrival, _ in batch])
        except Exception as error:
            # Nothing of the batch was committed; every sender is told to try again.
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes):
            future.set_result(outcome)
