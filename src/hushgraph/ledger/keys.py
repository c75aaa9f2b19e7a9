"""The keys of a ledger: one secret for fingerprints and checksums, Ed25519 keys for signatures.

Those of the ledger lie beside it, those of people in their own configuration folders: who can write the ledger cannot
sign for them. All are for their owner only. The public key of the ledger is in its first entry and those of people in
entries of their own, so that a key put in its place later does not fit what was signed before.

The head of a ledger is the number and hash of its last entry, signed. A copy kept elsewhere anchors all before it:
an older copy put back, a tail that was cut off, a chain that was hashed again and a ledger that is gone contradict it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from hushgraph.errors import InputError, LedgerError
from hushgraph.files.reading import Form, damage_named, read_json, require_fields
from hushgraph.files.writing import json_text, private_folder, write_whole
from hushgraph.ledger.entries import Entry, History, canonical
from hushgraph.ledger.store import Rows

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger

KEYS = "keys"
_SECRET, _LEDGER = "secret", "ledger"


@dataclass(frozen=True)
class Keys:
    """The secret and the signing key of one ledger."""

    secret: bytes
    signing: Ed25519PrivateKey
    pem: bytes = field(default=b"", repr=False, compare=False)
    """What the signing key was read from."""

    @classmethod
    def new(cls) -> Keys:
        """Fresh keys from the operating system's random source."""
        return cls(secrets.token_bytes(32), Ed25519PrivateKey.generate())

    @classmethod
    def made(cls, folder: Path) -> Keys:
        """The keys for a new ledger in `folder`; those that an interrupted start left behind are used again."""
        try:
            return cls.read(folder)
        except LedgerError:
            keys = cls.new()
            keys.write(folder)
            return keys

    @classmethod
    def read(cls, folder: Path, known: Keys | None = None) -> Keys:
        """The keys beside a ledger; an error that says what is missing. `known` serves again if its files are there."""
        place = folder / KEYS
        try:
            secret = bytes.fromhex((place / _SECRET).read_text().strip())
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"expected the ledger's secret in {place / _SECRET}; it is missing or damaged. Restore it from a copy: "
                "without it no dataset is recognized"
            ) from error
        if len(secret) != 32:
            raise LedgerError(f"{place / _SECRET}: expected 32 bytes; got {len(secret)}. Restore it from a copy")
        path = place / f"{_LEDGER}.pem"
        pem = _content(path)
        if known is not None and (known.secret, known.pem) == (secret, pem):
            return known
        return cls(secret, _private_key(pem, path), pem)

    def write(self, folder: Path) -> None:
        """Put the keys beside the ledger in `folder`."""
        place = private_folder(folder / KEYS)
        write_whole(place / _SECRET, self.secret.hex() + "\n")
        write_whole(place / f"{_LEDGER}.pem", _pem(self.signing))

    def derived(self, purpose: str) -> bytes:
        """A key for one purpose, from the secret."""
        return hmac.digest(self.secret, f"hushgraph {purpose}".encode(), hashlib.sha256)

    def checksum(self, text: str) -> str:
        """A keyed checksum of what can be computed again from the entries."""
        return hmac.new(self.derived("checksum"), text.encode(), hashlib.sha256).hexdigest()

    @cached_property
    def secret_check(self) -> str:
        """What tells whether the secret is still the same, and nothing about it."""
        return self.derived("check").hex()

    @cached_property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return public_of(self.signing)

    def sign(self, text: str) -> str:
        """The ledger's signature of `text`, in hexadecimal."""
        return self.signing.sign(text.encode()).hex()


def person_key(name: str, folder: Path | None = None) -> Path:
    """Where the key of a person lies by default: in that person's own configuration folder, for all ledgers.

    Keys that earlier versions put beside the ledger in `folder` are found there.
    """
    if not re.fullmatch(r"[\w.@+-]{1,64}", name) or name.startswith(".") or name == _LEDGER:
        raise InputError(f"name: expected letters, digits and . @ + - _, such as 'a.officer'; got {name!r}")
    own = Path(platformdirs.user_config_dir("hushgraph")) / KEYS / f"{name}.pem"
    beside = None if folder is None else folder / KEYS / f"{name}.pem"
    return beside if beside is not None and beside.exists() and not own.exists() else own


def make_person_key(path: Path) -> str:
    """Make the key of a person at `path`, unless it is there, and return its public half."""
    if not path.exists():
        private_folder(path.parent)
        write_whole(path, _pem(Ed25519PrivateKey.generate()))
    return public_of(read_private_key(path))


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 key from a PEM file."""
    return _private_key(_content(path), path)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _no_key(path) from error


def _no_key(path: Path) -> LedgerError:
    return LedgerError(f"expected an Ed25519 key in {path}; it is missing or damaged. Restore it")


def _private_key(pem: bytes, path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LedgerError(f"expected an Ed25519 key in {path}; got {type(key).__name__}")
    return key


def public_of(key: Ed25519PrivateKey) -> str:
    """The public half of a key, in hexadecimal."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def is_signed(text: str, signature: str, public: str) -> bool:
    """Whether `signature` of `text` was made with the key whose public half is given."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), text.encode())
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


HEAD = "ledger_head.json"
_FORM: dict[str, Form] = {"number": int, **dict.fromkeys(("ledger", "hash", "time", "public_key", "signature"), str)}


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
        require_fields(values, _FORM, "expected the head of a ledger")
        with damage_named(HEAD):
            return cls(**values)


def _text(ledger: str, number: int, link: str) -> str:
    return canonical({"what": "hushgraph ledger head", "ledger": ledger, "number": number, "hash": link})


def write_head(folder: str | os.PathLike[str], ledger: Ledger) -> Path:
    """Put a copy of the ledger's head into a model's folder."""
    return write_whole(Path(folder) / HEAD, json_text(ledger.head().as_dict()))


def read_head(path: str | os.PathLike[str]) -> Head:
    """A head from a file, or from the folder of a model."""
    place = Path(path)
    return Head.from_dict(read_json(place / HEAD if place.is_dir() else place))


def find_heads(path: str | os.PathLike[str]) -> list[tuple[Path, Head]]:
    """The head in a file, or all heads in a folder and below."""
    place = Path(path)
    files = sorted(place.rglob(HEAD)) if place.is_dir() else [place]
    if not files:
        raise InputError(f"expected a file {HEAD} in {place} or below; got none")
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


def signed_last(rows: Rows, first: Entry | None = None) -> Entry:
    """The last entry, if it is the one that was signed; `first` is the first one, where it was read before."""
    first, last, head = first or rows.first(), rows.last(), rows.head()
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
