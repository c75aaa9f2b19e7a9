"""The chain of a ledger: entries in one file, each bound to the one before, under a lock and a signed head.

What is appended is on the disk before `append` returns, and running totals and the signed head follow in one step. A
ledger that was in use and is gone, or has other keys than it began with, is refused.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.files.writing import private_folder, write_whole
from hushgraph.ledger import old
from hushgraph.ledger.accounts import RunningTotals
from hushgraph.ledger.entries import FIRST_LINK, Entry, History, check_chain, own_version, seal
from hushgraph.ledger.keys import KEYS, Head, Keys, signed_last
from hushgraph.ledger.lock import TIMEOUT, held
from hushgraph.ledger.store import FILE, FORMAT, Rows, Store

_IN_USE = "in-use"


@dataclass
class _Core:
    """What all views of one ledger share."""

    folder: Path | None
    lock_timeout: float
    store: Store
    mutex: Any = field(default_factory=threading.RLock)
    rows: Rows | None = None
    view: Rows | None = None
    keys: Keys | None = None
    first: Entry | None = None
    last: Entry | None = None


class Chain:
    """The entries in `folder`, or in memory (None), and the only way to add one."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, lock_timeout: float = TIMEOUT) -> None:
        place = None if folder is None else Path(folder)
        if place is not None and place.exists() and not place.is_dir():
            raise LedgerError(f"a ledger is a folder; {place} is a file. Name another folder")
        self._core = _Core(place, lock_timeout, Store(None if place is None else place / FILE))

    @property
    def folder(self) -> Path | None:
        """The folder, if it is not in memory."""
        return self._core.folder

    @property
    def path(self) -> Path | None:
        """The file that holds the entries."""
        return self._core.store.path

    @property
    def exists(self) -> bool:
        """Whether anything has been written yet."""
        return self._core.store.is_there or self._was_in_use or old.is_there(self.folder)

    @property
    def in_transaction(self) -> bool:
        """Whether the caller has a transaction open on the ledger; one of another thread is waited for."""
        with self._core.mutex:
            return self._core.rows is not None

    @property
    def is_old(self) -> bool:
        """Whether the folder holds a ledger of format 1, which is only read."""
        return not self._core.store.is_there and old.is_there(self.folder)

    @property
    def store(self) -> Store:
        """The file."""
        return self._core.store

    @property
    def keys(self) -> Keys:
        """The keys of a ledger that exists."""
        if not self.in_transaction:
            self._find_keys()
        assert self._core.keys is not None
        return self._core.keys

    @property
    def rows_read(self) -> int:
        """How many rows were read from the file so far: what speed depends on."""
        return self._core.store.rows_read

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Rows]:
        """Hold the ledger: what is read stays true until the end; what is written is on the disk then, or not at all.

        Another process that wants to write waits, and is told for whom.
        """
        core = self._core
        with core.mutex:
            if core.rows is not None:
                yield core.rows
                return
            if self.is_old:
                raise old.read_only(self.folder or Path())
            assert core.view is None, "a ledger is not written while it is being read"
            with contextlib.nullcontext() if self.folder is None else held(self.folder, core.lock_timeout):
                self._find_keys()
                with core.store.writing() as rows:
                    try:
                        core.rows, core.last = rows, self._begin(rows)
                        yield rows
                    finally:
                        core.rows = None
                self._mark_in_use()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        """One consistent view of the entries."""
        core = self._core
        with core.mutex:
            found = core.rows or core.view
            if found is not None:
                yield found
                return
            if not core.store.is_there:
                raise self._missing()
            with core.store.reading() as rows:
                signed_last(rows)
                core.view = rows
                try:
                    yield rows
                finally:
                    core.view = None

    def history(self) -> History:
        """All entries, each checked to follow from the one before; an error where the file was changed or damaged."""
        with self.reading() as rows:
            entries = rows.all()
            check_chain(entries, rows.store.where)
            if rows.head() is None or (entries[-1].number, entries[-1].hash) != (rows.head() or ())[:2]:
                raise LedgerError(f"{rows.store.where}: the signed head is not that of the last entry: it was changed")
        return History(tuple(entries), self.folder is None)

    def append(self, kind: str, values: dict[str, Any]) -> str:
        """Write one entry to the disk and return its hash; running totals and the signed head follow in one step."""
        with self.transaction() as rows:
            core = self._core
            assert core.last is not None
            entry = seal(kind, values, core.last.number + 1, core.last.hash)
            self._running(rows).take_in(entry)
            rows.add(entry)
            self._sign(rows, entry)
            core.last = entry
            return entry.hash

    def head(self) -> Head:
        """The state of the ledger now, signed; keep a copy elsewhere."""
        with self.reading() as rows:
            first, last, head = rows.first(), rows.last(), rows.head()
            if first is None or last is None or head is None:
                raise self._missing()
            return Head(first.hash, last.number, last.hash, last.time, first.values["public_key"], head[2])

    def _running(self, rows: Rows) -> RunningTotals:
        assert self._core.keys is not None
        return RunningTotals(rows, self._core.keys)

    # Keys and the first entry

    def _find_keys(self) -> None:
        """Read the keys beside the file, or make them for a new ledger."""
        core = self._core
        if self.folder is None:
            core.keys = core.keys or Keys.new()
        elif core.store.is_there or self._was_in_use:
            core.keys = Keys.read(self.folder, core.keys)
        else:
            core.keys = Keys.made(private_folder(self.folder))

    def _begin(self, rows: Rows) -> Entry:
        """The last entry, after the ends of the chain were checked; a new ledger gets its first one."""
        keys, first = self._core.keys, rows.first()
        assert keys is not None
        if first is None:
            if self._was_in_use:
                raise self._missing()
            values = {"format": FORMAT, "public_key": keys.public, "secret_check": keys.secret_check}
            values["hushgraph"] = own_version()
            first = self._core.first = seal("ledger", values, 0, FIRST_LINK)
            rows.add(first)
            self._sign(rows, first)
            return first
        if (first.values.get("public_key"), first.values.get("secret_check")) != (keys.public, keys.secret_check):
            raise LedgerError(f"{rows.store.where}: the keys beside it are not those it began with. Restore them")
        self._core.first = first
        return signed_last(rows, first)

    def _sign(self, rows: Rows, entry: Entry) -> None:
        assert self._core.keys is not None
        assert self._core.first is not None
        head = Head.signed(self._core.keys, self._core.first.hash, entry.number, entry.hash, entry.time)
        rows.set_head(head.number, head.hash, head.signature)

    @property
    def _was_in_use(self) -> bool:
        return self.folder is not None and (self.folder / KEYS / _IN_USE).exists()

    def _mark_in_use(self) -> None:
        """Remember that there was a ledger here, so that an empty file in its place is not taken for a new one."""
        if self.folder is not None and not self._was_in_use:
            write_whole(self.folder / KEYS / _IN_USE, "")

    def _missing(self) -> LedgerError:
        if self._was_in_use:
            return LedgerError(
                f"the ledger in {self.folder} is gone: its keys are there, the file {FILE} is missing or empty. "
                "Restore it from a copy; a new ledger belongs into another folder"
            )
        return LedgerError(f"no ledger in {self.folder or 'memory'}: expected the file {FILE} there")
