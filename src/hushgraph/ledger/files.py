"""Files and folders with private meaning: for their owner only, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.text import plain

_BLOCK = 1 << 20


def private_folder(path: Path) -> Path:
    """Make `path` (and what is missing above it) for its owner only (0700); one that exists stays as it is."""
    if path.exists() and not path.is_dir():
        raise LedgerError(f"expected a folder; {path} is a file. Name another folder")
    with told_if_full(path):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_private(path: Path, content: bytes | str) -> Path:
    """Write `path` for its owner only (0600), whole or not at all, and wait until it is on the disk."""
    with told_if_full(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        flush_folder(path.parent)
    return path


@contextlib.contextmanager
def told_if_full(path: Path) -> Iterator[None]:
    """Turn the system's word for a full disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LedgerError(f"{path}: could not be written ({error.strerror}). Make room on the disk") from error
        raise


def flush_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_text(values: dict[str, Any]) -> str:
    """JSON for people to read: indented, infinity as the string "inf"."""
    return json.dumps(plain(values), indent=2, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The one JSON object in a file; an error that names the file where it is missing or damaged."""
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"expected the file {path}; it is missing") from error
    except (OSError, ValueError) as error:
        raise InputError(f"expected a readable JSON file; {path} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"expected one JSON object in {path}; got {type(values).__name__}")
    return values


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
