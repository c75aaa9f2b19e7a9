"""The keys of a ledger: one secret for fingerprints and checksums, Ed25519 keys for signatures.

Those of the ledger lie beside it, those of people in their own configuration folders: who can write the ledger cannot
sign for them. All are for their owner only. The public key of the ledger is in its first entry and those of people in
entries of their own, so that a key put in its place later does not fit what was signed before.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

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
from hushgraph.ledger.lock import private_folder
from hushgraph.text import write_whole

FOLDER = "keys"
_SECRET, _LEDGER = "secret", "ledger"


@dataclass(frozen=True)
class Keys:
    """The secret and the signing key of one ledger."""

    secret: bytes
    signing: Ed25519PrivateKey

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
    def read(cls, folder: Path) -> Keys:
        """The keys beside a ledger; an error that says what is missing."""
        place = folder / FOLDER
        try:
            secret = bytes.fromhex((place / _SECRET).read_text().strip())
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"expected the ledger's secret in {place / _SECRET}; it is missing or damaged. Restore it from a copy: "
                "without it no dataset is recognized"
            ) from error
        if len(secret) != 32:
            raise LedgerError(f"{place / _SECRET}: expected 32 bytes; got {len(secret)}. Restore it from a copy")
        return cls(secret, read_private_key(place / f"{_LEDGER}.pem"))

    def write(self, folder: Path) -> None:
        """Put the keys beside the ledger in `folder`."""
        place = private_folder(folder / FOLDER)
        write_whole(place / _SECRET, self.secret.hex() + "\n")
        write_whole(place / f"{_LEDGER}.pem", _pem(self.signing))

    def derived(self, purpose: str) -> bytes:
        """A key for one purpose, from the secret."""
        return hmac.digest(self.secret, f"hushgraph {purpose}".encode(), hashlib.sha256)

    def checksum(self, text: str) -> str:
        """A keyed checksum of what can be computed again from the entries."""
        return hmac.new(self.derived("checksum"), text.encode(), hashlib.sha256).hexdigest()

    @property
    def secret_check(self) -> str:
        """What tells whether the secret is still the same, and nothing about it."""
        return self.derived("check").hex()

    @property
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
    own = Path(platformdirs.user_config_dir("hushgraph")) / FOLDER / f"{name}.pem"
    beside = None if folder is None else folder / FOLDER / f"{name}.pem"
    return beside if beside is not None and beside.exists() and not own.exists() else own


def make_person_key(path: Path) -> str:
    """Make the key of a person at `path`, unless it is there, and return its public half."""
    if not path.exists():
        private_folder(path.parent)
        write_whole(path, _pem(Ed25519PrivateKey.generate()))
    return public_of(read_private_key(path))


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 key from a PEM file."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise LedgerError(f"expected an Ed25519 key in {path}; it is missing or damaged. Restore it") from error
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
