"""Where tasks, enrolled nodes and reports are kept: SQLite by default, PostgreSQL by address.

The tables hold as little as possible: tokens only as SHA-256, reports only as the noisy payload, and of the time only
the day. One report per node and task is a primary key, not a convention, so no crash or race can double a report. A
report is acknowledged only after its transaction is committed to disk. A batch is decided in the order of its keys, so
that two servers on one database wait for each other in the same order.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hushgraph.collect.task import Task
from hushgraph.errors import HushgraphError, InputError
from hushgraph.files.reading import database_named
from hushgraph.files.writing import told_if_unwritable

VERSION = 1
"""Of the tables. A store of a later one is refused; an older one is changed when it is opened."""
_VERSION, _STEP = "schema_version", "counts of "
_ROWS = 1000  # of one statement

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


class Unavailable(HushgraphError):
    """The database does not answer now, or asks to try again; nothing of the transaction was kept for sure."""

    exit_code = 2


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


class Store(ABC):
    """All questions the service asks of its database. Subclasses only know how to connect and to begin."""

    blob = "BLOB"
    placeholder = "?"
    row_lock = ""
    writers = 1
    """Batches that can be on their way into the database at a time."""

    def __init__(self) -> None:
        with self._transaction(write=True) as run:
            self._hold_migrations(run)
            for statement in SCHEMA:
                run(statement.format(blob=self.blob))
            run(
                "INSERT INTO setting(name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (_VERSION, str(VERSION)),
            )
            found = int(run("SELECT value FROM setting WHERE name = ?", (_VERSION,)).fetchone()[0])
        if found > VERSION:
            raise InputError(f"expected a store of version {VERSION}; got {found}, of a later hushgraph; update it")

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
            for first in range(0, len(token_hashes), _ROWS):
                part = token_hashes[first : first + _ROWS]
                statement = (
                    "INSERT INTO node(task_id, node_token_hash, node_index) VALUES "
                    + ", ".join(["(?, ?, ?)"] * len(part))
                    + " ON CONFLICT DO NOTHING RETURNING node_index"
                )
                values = [value for node, token_hash in part for value in (task_id, token_hash, node)]
                entered = {int(row[0]) for row in run(statement, values).fetchall()}
                if taken := sorted({node for node, _ in part} - entered):
                    raise InputError(f"expected nodes without a token; node {taken[0]} has one; enroll only new nodes")

    def reissue(self, task_id: str, token_hashes: Sequence[tuple[int, bytes]]) -> None:
        """Put new tokens in the place of those that nodes have; the old ones are unknown from then on."""
        with self._transaction(write=True) as run:
            for node_index, token_hash in token_hashes:
                found = run(
                    "UPDATE node SET node_token_hash = ? WHERE task_id = ? AND node_index = ?",
                    (token_hash, task_id, node_index),
                )
                if found.rowcount != 1:
                    raise InputError(f"expected enrolled nodes; node {node_index} is not; enroll it")

    def revoke(self, task_id: str, nodes: Sequence[int]) -> int:
        """Make the tokens of nodes unknown; how many had one. What they reported stays."""
        with self._transaction(write=True) as run:
            return sum(
                run("DELETE FROM node WHERE task_id = ? AND node_index = ?", (task_id, node)).rowcount for node in nodes
            )

    def without_token(self, task_id: str, nodes: Sequence[int]) -> list[int]:
        """Those of the nodes that have no token."""
        with self._transaction() as run:
            rows = run("SELECT node_index FROM node WHERE task_id = ?", (task_id,)).fetchall()
        enrolled = {int(row[0]) for row in rows}
        return [node for node in nodes if node not in enrolled]

    def add(self, arrivals: Sequence[Arrival]) -> list[Outcome]:
        """Decide and store a batch in one transaction; when this returns, the stored ones are on disk."""
        order = sorted(range(len(arrivals)), key=lambda at: (arrivals[at].task_id, arrivals[at].token_hash))
        outcomes: dict[int, Outcome] = {}
        with self._transaction(write=True, pipelined=True) as run:
            for task_id in sorted({arrival.task_id for arrival in arrivals}):
                places = [at for at in order if arrivals[at].task_id == task_id]
                decided = self._add_to(run, task_id, [arrivals[at] for at in places])
                outcomes |= dict(zip(places, decided))
        return [outcomes[at] for at in range(len(arrivals))]

    def _add_to(self, run: Any, task_id: str, arrivals: Sequence[Arrival]) -> list[Outcome]:
        """The batch of one task: look up all nodes, store what is new, compare the rest with what is stored."""
        tokens = sorted({arrival.token_hash for arrival in arrivals})
        state = run(f"SELECT state FROM task WHERE id = ?{self.row_lock}", (task_id,))
        rows = run(_NODES.format(marks=", ".join(["?"] * len(tokens))), [task_id, *tokens])
        is_open = (state.fetchone() or ("missing",))[0] == "open"
        nodes: dict[bytes, int] = {}
        stored: dict[int, tuple[Any, Any]] = {}
        for token, node, report_id, payload in rows.fetchall():
            nodes[bytes(token)] = node
            if report_id is not None:
                stored[node] = (report_id, payload)
        new: dict[int, Arrival] = {}
        for arrival in arrivals:
            node = nodes.get(arrival.token_hash)
            if node is not None and node not in stored and is_open and arrival.accepting:
                new.setdefault(node, arrival)
        written = self._insert(run, task_id, new)
        raced = set(new) - written  # another process was first, or the report id belongs to another node
        for node in sorted(raced):
            found = run("SELECT report_id, payload FROM report WHERE task_id = ? AND node_index = ?", (task_id, node))
            if (row := found.fetchone()) is not None:
                stored[node] = (row[0], row[1])
        stored |= {node: (new[node].report_id, new[node].payload) for node in written}
        outcomes = []
        for arrival in arrivals:
            node = nodes.get(arrival.token_hash)
            if node is None:
                outcomes.append(Outcome.UNKNOWN_NODE)
            elif node in written and new[node] is arrival:
                outcomes.append(Outcome.STORED)
            elif node in stored:
                outcomes.append(self._compare(stored[node], arrival))
            else:
                outcomes.append(Outcome.CONFLICT if node in raced else Outcome.CLOSED)
        return outcomes

    @staticmethod
    def _insert(run: Any, task_id: str, new: dict[int, Arrival]) -> set[int]:
        """Store reports of different nodes; the nodes whose report was really stored."""
        if not new:
            return set()
        rows = [(task_id, node, one.report_id, one.payload, one.day) for node, one in sorted(new.items())]
        statement = (
            "INSERT INTO report(task_id, node_index, report_id, payload, received_day) VALUES "
            + ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
            + " ON CONFLICT DO NOTHING RETURNING node_index"
        )
        return {int(row[0]) for row in run(statement, [value for row in rows for value in row]).fetchall()}

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

    def set_setting(self, name: str, value: str) -> None:
        """Store a setting in the place of an older one."""
        with self._transaction(write=True) as run:
            run(
                "INSERT INTO setting(name, value) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
                (name, value),
            )

    def token_hashes(self, task_id: str) -> list[bytes]:
        """The hashes of all tokens of a task."""
        with self._transaction() as run:
            rows = run("SELECT node_token_hash FROM node WHERE task_id = ?", (task_id,)).fetchall()
        return [bytes(row[0]) for row in rows]

    def stepped_counts(self, task_id: str, period: int) -> tuple[int, int]:
        """The counts as they were when they were first asked for in this period; all servers give the same ones."""
        with self._transaction(write=True) as run:
            row = run("SELECT value FROM setting WHERE name = ?", (_STEP + task_id,)).fetchone()
            step = None if row is None else json.loads(row[0])
            if step is None or step["period"] < period:
                enrolled = run("SELECT COUNT(*) FROM node WHERE task_id = ?", (task_id,)).fetchone()[0]
                received = run("SELECT COUNT(*) FROM report WHERE task_id = ?", (task_id,)).fetchone()[0]
                step = {"period": period, "counts": [enrolled, received]}
                run(
                    "INSERT INTO setting(name, value) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = "
                    "excluded.value",
                    (_STEP + task_id, json.dumps(step)),
                )
        return step["counts"][0], step["counts"][1]

    @staticmethod
    def _compare(stored: Sequence[Any], arrival: Arrival) -> Outcome:
        """A replay must repeat the secret report id too, so a stolen token cannot test guesses of the payload."""
        same = bytes(stored[0]) == arrival.report_id and bytes(stored[1]) == arrival.payload
        return Outcome.REPLAY if same else Outcome.CONFLICT

    @contextlib.contextmanager
    def _transaction(self, write: bool = False, pipelined: bool = False) -> Iterator[Any]:
        """Run statements on a connection and commit, or roll back and pass the error on.

        `pipelined`: a statement may be sent together with those after it, until its rows are asked for.
        """
        with self._connection() as connection, self._pipeline(connection) if pipelined else contextlib.nullcontext():

            def run(statement: str, parameters: Sequence[Any] = ()) -> Any:
                return connection.execute(statement.replace("?", self.placeholder), parameters)

            connection.execute(self._begin(write))
            try:
                yield run
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(Exception):  # the connection may be gone, and the transaction with it
                    connection.execute("ROLLBACK")
                raise

    @abstractmethod
    def _connection(self) -> contextlib.AbstractContextManager[Any]:
        """A connection that commits nothing by itself; what the database refuses for now is `Unavailable`."""

    def _pipeline(self, connection: Any) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    @abstractmethod
    def _begin(self, write: bool) -> str:
        """The statement that opens a transaction; with `write`, one that may change something."""

    def _hold_migrations(self, run: Any) -> None:  # noqa: B027
        """Let nobody else change the tables until this transaction ends."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connection of this thread."""

    def shut_down(self) -> None:
        """The end of all work with this store."""
        self.close()


_NODES = (
    "SELECT node.node_token_hash, node.node_index, report.report_id, report.payload FROM node LEFT JOIN report "
    "ON report.task_id = node.task_id AND report.node_index = node.node_index "
    "WHERE node.task_id = ? AND node.node_token_hash IN ({marks})"
)


class SqliteStore(Store):
    """One file, write-ahead logging, full synchronization: a committed report survives a power cut."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._local = threading.local()
        with told_if_unwritable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode=0o600)
        super().__init__()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            with database_named(self.path, Unavailable):
                if getattr(self._local, "connection", None) is None:
                    self._local.connection = self._connect()
                yield self._local.connection
        except Unavailable:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        _until_free(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _begin(self, write: bool) -> str:
        return "BEGIN IMMEDIATE" if write else "BEGIN"

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _until_free(act: Any, seconds: float = 30.0) -> None:
    """SQLite does not wait for others when it changes the journal of a new file; so we do."""
    until = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def open_store(address: str) -> Store:
    """A store by address: `postgresql://...`, `sqlite:///path`, or just a path."""
    if address.startswith(("postgresql://", "postgres://")):
        from hushgraph.collect.postgres import PostgresStore

        return PostgresStore(address)
    if "://" in address and not address.startswith("sqlite:///"):
        raise InputError(f"expected a path, sqlite:///path or postgresql://...; got {address!r}; check the address")
    return SqliteStore(address.removeprefix("sqlite:///"))
