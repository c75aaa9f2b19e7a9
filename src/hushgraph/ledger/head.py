"""The head of a ledger: the number and hash of its last entry, signed. A copy kept elsewhere anchors all before it.

Whoever has a head can tell whether a ledger still holds what it held then: an older copy put back, a tail that was cut
off, a chain that was hashed again and a ledger that is gone all contradict it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.entries import Entry, History, canonical
from hushgraph.ledger.keys import Keys, is_signed
from hushgraph.ledger.store import Rows
from hushgraph.text import json_text, read_json, write_whole

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger

FILE = "ledger_head.json"


@dataclass(frozen=True)
class Head:
    """The state of the ledger whose first entry has the hash `ledger`, at one moment."""

    ledger: str
    number: int
    hash: str
    time: str
    public_key: str
    signature: str

    @classmethod
    def signed(cls, keys: Keys, ledger: str, number: int, link: str, time: str) -> Head:
        """The head of that state, signed with the ledger's key."""
        return cls(ledger, number, link, time, keys.public, keys.sign(_text(ledger, number, link)))

    @property
    def text(self) -> str:
        """What is signed."""
        return _text(self.ledger, self.number, self.hash)

    @property
    def is_genuine(self) -> bool:
        """Whether the signature fits the key that the head names."""
        return is_signed(self.text, self.signature, self.public_key)

    def as_dict(self) -> dict[str, Any]:
        """The head as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Head:
        """The inverse of `as_dict`."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"expected the head of a ledger; got the fields {sorted(values)}") from error


def _text(ledger: str, number: int, link: str) -> str:
    return canonical({"what": "hushgraph ledger head", "ledger": ledger, "number": number, "hash": link})


def write_head(folder: str | os.PathLike[str], ledger: Ledger) -> Path:
    """Put a copy of the ledger's head into a model's folder."""
    return write_whole(Path(folder) / FILE, json_text(ledger.head().as_dict()))


def read_head(path: str | os.PathLike[str]) -> Head:
    """A head from a file, or from the folder of a model."""
    place = Path(path)
    return Head.from_dict(read_json(place / FILE if place.is_dir() else place))


def find_heads(path: str | os.PathLike[str]) -> list[tuple[Path, Head]]:
    """The head in a file, or all heads in a folder and below."""
    place = Path(path)
    files = sorted(place.rglob(FILE)) if place.is_dir() else [place]
    if not files:
        raise InputError(f"expected a file {FILE} in {place} or below; got none")
    return [(file, read_head(file)) for file in files]


def contradiction(head: Head, history: History) -> str | None:
    """What a head says against a ledger, in words; None where they agree."""
    if not head.is_genuine:
        return "the head itself was changed: its signature does not fit"
    first = history.entries[0]
    if head.ledger != first.hash or head.public_key != first.values.get("public_key"):
        return (
            "the head belongs to another ledger: this one began with another entry or key (a new ledger in the old "
            "one's place, or not the right folder)"
        )
    if head.number >= len(history.entries):
        return (
            f"entries are gone: there were {head.number + 1} at {head.time}, and there are {len(history.entries)} now "
            "(an older copy was put back, or the tail was cut off)"
        )
    if history.entries[head.number].hash != head.hash:
        return f"entry {head.number} is not the one of {head.time}: the chain was written again"
    return None


def signed_last(rows: Rows) -> Entry:
    """The last entry, if it is the one that was signed."""
    first, last, head = rows.first(), rows.last(), rows.head()
    where = rows.store.where
    if first is None or last is None or head is None:
        raise LedgerError(f"{where}: expected entries and a signed head; got none: the file was changed or damaged")
    if (last.number, last.hash) != head[:2]:
        raise LedgerError(
            f"{where}: the last entry is number {last.number}, the signed head number {head[0]}: entries were removed, "
            "added or changed"
        )
    genuine = Head(first.hash, last.number, last.hash, last.time, str(first.values.get("public_key")), head[2])
    if not genuine.is_genuine:
        raise LedgerError(f"{where}: the signature of the last entry does not fit: the file was changed")
    return last
