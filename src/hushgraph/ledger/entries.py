"""Entries of a ledger and the chain of hashes that binds them.

An entry has a number, a kind, a time and values. Its hash covers all of them and the hash of the entry before, so an
entry that was changed, removed, added or moved breaks the chain from there on.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.files.writing import plain

FIRST_LINK = "0" * 64


@dataclass(frozen=True)
class Entry:
    """One entry."""

    number: int
    kind: str
    time: str
    values: dict[str, Any]
    previous: str
    hash: str

    @property
    def run(self) -> str | None:
        """The run it belongs to, if any."""
        return self.values.get("run")

    @property
    def dataset(self) -> str | None:
        """The dataset it belongs to, if it names one."""
        return self.values.get("dataset")

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain JSON values, as an export holds it."""
        return dict(vars(self))


@dataclass(frozen=True)
class History:
    """The entries of a ledger up to some moment, in order, each checked to follow from the one before."""

    entries: tuple[Entry, ...]
    in_memory: bool = False

    @property
    def last_hash(self) -> str:
        """The hash of the last entry: it stands for all of them."""
        return self.entries[-1].hash if self.entries else FIRST_LINK

    @cached_property
    def _by_run(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.run is not None:
                found[entry.run].append(entry)
        return found

    def of_run(self, run: str, kind: str | None = None) -> list[Entry]:
        """The entries of one run, of one kind if given."""
        return [e for e in self._by_run.get(run, ()) if kind is None or e.kind == kind]

    def of_kind(self, kind: str) -> list[Entry]:
        """The entries of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]

    def runs(self, dataset: str | None = None) -> list[str]:
        """The runs in the order they were opened, of one dataset if given."""
        return [e.values["run"] for e in self.of_kind("open") if dataset is None or e.dataset == dataset]

    def opened(self, run: str) -> dict[str, Any]:
        """What a run was opened with."""
        found = self.of_run(run, "open")
        if len(found) != 1:
            raise LedgerError(
                f"expected one run '{run}' in the ledger; got {len(found)}: the ledger has no run '{run}'"
            )
        return found[0].values

    def is_closed(self, run: str) -> bool:
        """Whether the run said that it was done."""
        return bool(self.of_run(run, "close"))

    def until(self, link: str) -> History:
        """The history as it was when its last entry had the hash `link`."""
        for position, entry in enumerate(self.entries):
            if entry.hash == link:
                return History(self.entries[: position + 1], self.in_memory)
        raise LedgerError(f"expected an entry with the hash {link[:16]}... in the ledger; got none")


@cache
def own_version() -> str:
    """The version of this package, which is slow to ask for."""
    return version("hushgraph")


def seal(kind: str, values: dict[str, Any], number: int, previous: str) -> Entry:
    """The entry that follows `previous`, with the time of day."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    body = canonical(values)
    return Entry(number, kind, now, json.loads(body), previous, digest_of(number, kind, now, body, previous))


def canonical(values: Any) -> str:
    """The one JSON text of some values: sorted names, no spaces, infinities as words."""
    try:
        return text_of(values)
    except (TypeError, ValueError):
        return text_of(plain(values))


def text_of(values: Any) -> str:
    """The same of values that came out of JSON, or are as plain."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(number: int, kind: str, time: str, body: str, previous: str) -> str:
    """The hash of an entry: that of its canonical text, in which `body` is the text of its values."""
    head = text_of({"kind": kind, "number": number, "previous": previous, "time": time})
    return hashlib.sha256(f'{head[:-1]},"values":{body}}}'.encode()).hexdigest()


def check_own(entry: Entry, body: str, where: str) -> None:
    """Refuse an entry whose hash is not its own; `body` is the canonical text of its values."""
    if digest_of(entry.number, entry.kind, entry.time, body, entry.previous) != entry.hash:
        raise LedgerError(f"{where}: entry {entry.number} was changed after it was written (its hash does not fit it)")


def check_chain(entries: Iterable[Entry], where: str) -> None:
    """Refuse entries that do not follow from one another, from the first on; each was checked by itself."""
    number, link = 0, FIRST_LINK
    for entry in entries:
        if entry.number != number or entry.previous != link:
            raise LedgerError(
                f"{where}: entry {entry.number} does not follow entry {number - 1}: entries were changed, removed, "
                "added or moved"
            )
        number, link = number + 1, entry.hash
