"""The ledger: what has been spent on one dataset, written before anything is released.

A ledger is a folder with one append-only file of JSON lines. Each entry carries the hash of the one before it, so a
changed, removed or reordered entry shows. An append is flushed to the disk (fsync) before it returns, and mechanisms
append before they hand anything out: a crash can lose a release, never a charge.

A run is opened with its whole plan and closed when it is done. Until it is closed, all of its plan counts as spent; so
does the plan of a run that crashed. A last line torn by a crash is recognized, kept, and sealed by the next append.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from hushgraph.errors import BudgetError, InputError, LedgerError

FILE = "ledger.jsonl"
_FIRST_LINK = "0" * 64
_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One line of a ledger."""

    kind: str
    values: dict[str, Any]

    @property
    def run(self) -> str | None:
        """The run it belongs to, if any."""
        return self.values.get("run")


@dataclass(frozen=True)
class History:
    """The entries of a ledger as read, checked, with what a crash may have left behind."""

    entries: tuple[Entry, ...]
    last_hash: str
    torn: bytes = b""

    @property
    def header(self) -> dict[str, Any]:
        """The first entry: the dataset's name and the unit it is protected for."""
        return self.entries[0].values

    def of_run(self, run: str, kind: str | None = None) -> list[Entry]:
        """The entries of one run, of one kind if given."""
        return [e for e in self.entries if e.run == run and (kind is None or e.kind == kind)]

    def runs(self) -> list[str]:
        """The runs in the order they were opened."""
        return [e.values["run"] for e in self.entries if e.kind == "open"]

    def is_closed(self, run: str) -> bool:
        """Whether the run said that it was done."""
        return bool(self.of_run(run, "close"))

    def limit(self) -> dict[str, float] | None:
        """The limit on the whole dataset in force, if one was declared."""
        limits = [e.values for e in self.entries if e.kind == "limit"]
        return {"epsilon": limits[-1]["epsilon"], "delta": limits[-1]["delta"]} if limits else None

    def ways_of_run(self, run: str) -> list[list[dict[str, Any]]]:
        """What counts as spent by a run: its charges when it was closed, its whole plan otherwise.

        A run that chose its way counts as any of its ways: what it did not choose is part of what it promised.
        """
        opened = self.of_run(run, "open")[0].values
        if "ways" in opened:
            return [[way] for way in opened["ways"]]
        if self.is_closed(run):
            return [[entry.values["event"] for entry in self.of_run(run, "charge")]]
        return [[opened["event"]]]


class Ledger:
    """The ledger in `folder`, or one in memory (`folder=None`) that composes nothing beyond this process."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, lock_timeout: float = -1.0) -> None:
        self.folder = None if folder is None else Path(folder)
        self._lines: list[bytes] = []
        self._lock_timeout = lock_timeout
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise LedgerError(f"a ledger is a folder; {self.folder} is a file. Name another folder")

    @property
    def path(self) -> Path | None:
        """The file that holds the entries."""
        return None if self.folder is None else self.folder / FILE

    @property
    def exists(self) -> bool:
        """Whether anything has been written yet."""
        return bool(self._lines) if self.path is None else self.path.exists()

    def history(self) -> History:
        """All entries, verified; raises LedgerError where the file was changed or damaged."""
        if not self.exists:
            raise LedgerError(f"no ledger in {self.folder}: expected the file {FILE} there")
        raw = b"".join(self._lines) if self.path is None else self.path.read_bytes()
        return _read(raw, str(self.folder or "memory"))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the ledger's lock; another process waits here."""
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", timeout=self._lock_timeout):
            yield

    def create(self, dataset: str, unit: dict[str, Any]) -> None:
        """Start the ledger of `dataset`; a no-op when it exists for the same dataset and unit, an error otherwise."""
        with self.transaction():
            if self.exists:
                _require_same(self.history().header, dataset, unit)
                return
            header = {"version": _VERSION, "dataset": dataset, "unit": unit}
            line, _ = _seal("ledger", header, _FIRST_LINK, 0)
            if self.path is None:
                self._lines.append(line)
            else:
                _write_new(self.path, line)

    def append(self, kind: str, values: dict[str, Any]) -> str:
        """Write one entry to the disk and return its hash. The caller holds `transaction` if it read first."""
        history = self.history()
        lines = []
        number, link = len(history.entries), history.last_hash
        if history.torn:
            sealed = {"torn_sha256": hashlib.sha256(history.torn).hexdigest(), "torn_bytes": len(history.torn)}
            line, link = _seal("recovered", sealed, link, number)
            lines += [b"\n", line]
            number += 1
        line, link = _seal(kind, values, link, number)
        lines.append(line)
        self._write(b"".join(lines))
        return link

    def set_limit(self, epsilon: float, delta: float) -> None:
        """Declare the limit on the whole dataset; later runs over it are refused."""
        with self.transaction():
            self.append("limit", {"epsilon": epsilon, "delta": delta})

    def _write(self, data: bytes) -> None:
        if self.path is None:
            self._lines.append(data)
            return
        with open(self.path, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def new_run_id() -> str:
    """A random name for a run."""
    return secrets.token_hex(8)


def _read(raw: bytes, where: str) -> History:
    *lines, torn = raw.split(b"\n")
    entries: list[Entry] = []
    link, pending = _FIRST_LINK, b""
    for number, line in enumerate(lines, start=1):
        entry = _parse(line)
        if entry is None:
            if pending or not entries:
                raise LedgerError(f"{where}: line {number} is not a ledger entry; the file was damaged")
            pending = line
            continue
        if pending:
            expected = hashlib.sha256(pending).hexdigest()
            if entry.kind != "recovered" or entry.values.get("torn_sha256") != expected:
                raise LedgerError(f"{where}: line {number - 1} was changed or damaged")
            pending = b""
        link = _check_link(entry, link, len(entries), f"{where}: line {number}")
        entries.append(entry)
    if pending:
        raise LedgerError(f"{where}: the last line was changed or damaged")
    if not entries or entries[0].kind != "ledger":
        raise LedgerError(f"{where}: expected a ledger's first entry; the file was damaged")
    if entries[0].values["version"] != _VERSION:
        raise LedgerError(f"{where}: written by another version ({entries[0].values['version']})")
    return History(tuple(entries), link, torn)


def _parse(line: bytes) -> Entry | None:
    try:
        values = json.loads(line)
        return Entry(values["kind"], values)
    except (ValueError, KeyError, TypeError):
        return None


def _check_link(entry: Entry, link: str, number: int, where: str) -> str:
    values = {k: v for k, v in entry.values.items() if k != "hash"}
    if values.get("previous") != link or values.get("number") != number:
        raise LedgerError(f"{where} does not follow the line before it: entries were removed, added or reordered")
    if _digest(values) != entry.values.get("hash"):
        raise LedgerError(f"{where} was changed after it was written")
    return str(entry.values["hash"])


def _seal(kind: str, values: dict[str, Any], link: str, number: int) -> tuple[bytes, str]:
    reserved = {"kind", "number", "time", "previous", "hash"} & set(values)
    if reserved:
        raise InputError(f"a ledger entry may not set {sorted(reserved)}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    sealed = {"kind": kind, "number": number, "time": now, **values, "previous": link}
    digest = _digest(sealed)
    return _canonical({**sealed, "hash": digest}) + b"\n", digest


def _canonical(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=True).encode()


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(values)).hexdigest()


def _require_same(header: dict[str, Any], dataset: str, unit: dict[str, Any]) -> None:
    if header["dataset"] != dataset:
        raise LedgerError(
            f"this ledger belongs to the dataset '{header['dataset']}'; got '{dataset}'. Use another folder"
        )
    if header["unit"] != unit:
        raise LedgerError(
            f"this ledger protects the unit {header['unit']}; got {unit}. Costs for different units do not add up: "
            "use the same unit, or start another ledger folder and add the two by hand"
        )


def _write_new(path: Path, line: bytes) -> None:
    """Create the file whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def over_limit(requested: float, spent: float, limit: dict[str, float]) -> BudgetError:
    """The refusal, with the numbers a person needs to decide."""
    return BudgetError(
        f"refused: the dataset's limit is epsilon {limit['epsilon']:g} at delta {limit['delta']:g}; spent "
        f"{spent:.4g}, and {requested:.4g} with this run. Nothing was read. Use a smaller epsilon, or raise the limit"
    )
