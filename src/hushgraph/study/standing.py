"""How a study stands, read from its file of results alone: no study file is read, so no code of a study is run.

Whoever runs a study holds a lock and writes its progress beside the results (`Store.note`); others may look on.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named
from hushgraph.files.writing import number
from hushgraph.study.estimate import Remaining
from hushgraph.study.store import State

_TABLES = {"results", "attempts"}
_LAST = 10


@dataclass(frozen=True)
class Ending:
    """A cell that ended, in words."""

    cell: str
    state: State
    seconds: float
    finished: float
    message: str


@dataclass(frozen=True)
class Standing:
    """A study that was run into a file of results. `total` is None where the file is of an older version."""

    store: Path
    name: str
    running: bool
    counts: dict[str, int]
    updated: float
    total: int | None = None
    done: int | None = None
    bad: int = 0
    privacy: str = ""
    remaining: Remaining | None = None
    file: Path | None = None
    last: tuple[Ending, ...] = field(default=())

    @property
    def share(self) -> float:
        """How much of it has ended."""
        return 0.0 if not self.total else min(1.0, (self.done or 0) / self.total)

    @property
    def words(self) -> str:
        """How far it is, in words."""
        if self.total is None:
            return f"{sum(self.counts.values())} results"
        bad = f", {self.bad} of them not done" if self.bad else ""
        return f"{self.done} of {self.total} runs ended{bad}"

    @property
    def state(self) -> str:
        """Running, finished, or stopped in the middle."""
        if self.running:
            return "running"
        return "finished" if self.total is not None and self.done == self.total else "stopped"


def find_standings(folders: Sequence[Path], last: int = 0) -> list[Standing]:
    """All studies that have results in these folders (files `*.sqlite`), the latest first."""
    paths = dict.fromkeys(path for folder in folders for path in sorted(folder.glob("*.sqlite")))
    found = [one for path in paths for one in read_standings(path, last)]
    return sorted(found, key=lambda one: (not one.running, -one.updated))


def read_standings(path: Path, last: int = _LAST) -> list[Standing]:
    """The studies of one file of results, with the last cells that ended; none where it is another file."""
    try:
        rows = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0)
    except sqlite3.Error:
        return []
    try:
        tables = {name for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables >= _TABLES:
            return []
        with damage_named(path):
            return _read(path, rows, "progress" in tables, last)
    except (sqlite3.Error, InputError):
        return []
    finally:
        rows.close()


def _read(path: Path, rows: sqlite3.Connection, noted: bool, last: int) -> list[Standing]:
    counts = dict(rows.execute("SELECT state, count(*) FROM results GROUP BY state"))
    ((finished,),) = rows.execute("SELECT coalesce(max(finished), 0) FROM results")
    query = "SELECT cell, state, seconds, finished, message FROM results ORDER BY finished DESC LIMIT ?"
    ended = tuple(_ending(row) for row in rows.execute(query, (last,)))
    running = is_running(path)
    notes = list(rows.execute("SELECT study, facts, updated FROM progress")) if noted else []
    if not notes:
        return [Standing(path, path.stem, running, counts, finished, last=ended)] if counts else []
    latest = max(updated for _, _, updated in notes)
    return [
        _standing(path, name, json.loads(facts), updated, running and updated == latest, counts, ended)
        for name, facts, updated in notes
    ]


def _standing(
    path: Path,
    name: str,
    facts: dict[str, Any],
    updated: float,
    running: bool,
    counts: dict[str, int],
    ended: tuple[Ending, ...],
) -> Standing:
    left = Remaining(facts["likely"], facts["low"], facts["high"], facts["unknown"])
    return Standing(
        store=path,
        name=name,
        running=running,
        counts=counts,
        updated=updated,
        total=int(facts["total"]),
        done=int(facts["done"]),
        bad=int(facts["bad"]),
        privacy=str(facts["privacy"]),
        remaining=left if running else None,
        file=_beside(path, facts["file"]),
        last=ended,
    )


def _beside(store: Path, file: str | None) -> Path | None:
    """The study file, if it lies where its results do or one folder above; no other is read because a file says so."""
    found = None if file is None else Path(file)
    if found is None or found.suffix not in (".yaml", ".yml") or not found.is_file():
        return None
    return found if found.resolve().parent in (store.resolve().parent, store.resolve().parent.parent) else None


def is_running(store: Path) -> bool:
    """Whether somebody holds the lock of a file of results."""
    lock = store.with_name(f"{store.name}.lock")
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _ending(row: tuple[Any, ...]) -> Ending:
    cell, state, seconds, finished, message = row
    lines = message.strip().splitlines()
    return Ending(_cell_words(json.loads(cell)), State(state), seconds, finished, lines[-1] if lines else "")


def _cell_words(identity: dict[str, Any]) -> str:
    """What a stored cell is, from its identity."""
    named = [(identity.get(part) or {}) for part in ("dataset", "method", "unit")]
    words = [str(one.get("load") or one.get("name")) for one in named if one]
    if identity.get("epsilon") is not None:
        words.append(f"epsilon {number(identity['epsilon']):g}")
    words += [f"{name}={value}" for name, value in identity["settings"].items()]
    return ", ".join([*words, f"seed {identity['seed']}"]) or str(identity["experiment"])
