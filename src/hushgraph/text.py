"""Numbers for people, values for JSON, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, LedgerError


def rounded_up(value: float, digits: int = 4) -> str:
    """The smallest number of `digits` digits not below `value`: a printed promise is never better than the proved."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(round(value / unit, 9)) * unit:.{digits}g}"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


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
    target = Path(path)
    with told_if_full(target):
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        flush_folder(target.parent)
    return target


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


def read_json(path: str | os.PathLike[str], *, of: str = "a JSON file") -> dict[str, Any]:
    """The one JSON object in a file; where it is missing or damaged, an error that says what it is part `of`."""
    source = Path(path)
    try:
        values = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"expected {of} in {source.parent}; {source.name} is missing") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{source} is damaged or cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"expected one JSON object in {source}; got {type(values).__name__}")
    return values


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
