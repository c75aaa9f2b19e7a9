"""Files that are written whole or not at all, for their owner only, and values as JSON can hold them."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hushgraph.errors import InputError, LedgerError


def plain(value: Any) -> Any:
    """The value as JSON can hold it: infinities become strings, tuples become lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return value


def number(value: float | str | None) -> float | None:
    """The inverse of `plain` for one number."""
    return None if value is None else float(value)


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write a file for its owner only (0600), whole or not at all, and wait until it and its name are on the disk."""
    with written_whole(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return Path(path)


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write into that takes its name when all is on the disk; nothing is left of one that failed."""
    target = Path(path)
    with told_if_unwritable(target):
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        flush_folder(target.parent)


@contextlib.contextmanager
def nothing_half_written(folder: Path) -> Iterator[None]:
    """Make `folder` if it is not there; where what follows fails, take away what it has put there."""
    made = not folder.exists()
    with told_if_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = set(folder.iterdir())
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                for path in set(folder.iterdir()) - before:
                    path.unlink()
                if made:
                    folder.rmdir()
            raise


def require_writable(path: Path) -> None:
    """Refuse a place that could not be written later, before anything is spent on what goes there.

    Permissions do not tell all (`/proc`, names that are too long), so folders that are missing are made and removed.
    """
    target = path.absolute()
    with told_if_unwritable(path):
        place = next(one for one in (target, *target.parents) if one.exists())
    if place != target and not place.is_dir():
        raise InputError(f"expected a place for {path}; got {place} on the way there, which is a file. Name another")
    folder = place if place.is_dir() else place.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"expected a folder that can be written; {folder} is read-only. Name another place")
    try:
        _try_to_make(target, folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"expected a place that can be written; got {path} ({why}). Name another place") from error


def _try_to_make(target: Path, folder: Path) -> None:
    """Make the folders that are missing on the way to `target`, itself included, and remove them again."""
    made: list[Path] = []
    try:
        for one in reversed([target, *target.parents]):
            if not one.exists():
                one.mkdir(mode=0o700)
                made.append(one)
        if not made:
            Path(tempfile.mkdtemp(prefix=".probe.", dir=folder)).rmdir()
    finally:
        for one in reversed(made):
            with contextlib.suppress(OSError):  # another process has put something there by now
                one.rmdir()


_UNWRITABLE = {
    errno.ENOSPC: "Make room on the disk",
    errno.EDQUOT: "Make room on the disk",
    errno.EROFS: "Name a place that can be written",
    errno.EACCES: "Name a place that can be written",
    errno.EPERM: "Name a place that can be written",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EFBIG: "Make room on the disk",
}


@contextlib.contextmanager
def told_if_unwritable(path: Path) -> Iterator[None]:
    """Turn the system's word for a full or read-only disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _UNWRITABLE:
            do = _UNWRITABLE[error.errno]
            raise LedgerError(f"{path}: could not be written ({error.strerror}). {do}") from error
        raise


def flush_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_text(values: Any) -> str:
    """JSON for people to read: indented, infinity as the string "inf"."""
    return json.dumps(plain(values), indent=2, allow_nan=False) + "\n"


def write_json(path: str | os.PathLike[str], values: Any) -> Path:
    """Write values as indented JSON, whole or not at all."""
    return write_whole(path, json_text(values))


def private_folder(path: Path) -> Path:
    """Make `path` (and what is missing above it) for its owner only (0700); one that exists stays as it is."""
    if path.exists() and not path.is_dir():
        raise LedgerError(f"expected a folder; {path} is a file. Name another folder")
    with told_if_unwritable(path):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
