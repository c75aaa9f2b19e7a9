"""Numbers for people, values for JSON, and files that are written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError


def rounded_up(value: float, digits: int = 4) -> str:
    """The smallest number of `digits` digits not below `value`: a printed promise is never better than the proved."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(round(value / unit, 9)) * unit:.{digits}g}"


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


def write_whole(path: str | os.PathLike[str], data: bytes | str, *, mode: int = 0o600) -> Path:
    """Write a file whole or not at all, and force it to the disk; readable by its owner alone unless `mode` says so."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def write_json(path: str | os.PathLike[str], values: Any) -> Path:
    """Write values as indented JSON, whole or not at all."""
    return write_whole(path, json.dumps(plain(values), indent=2, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file, with a clear error when it is missing or damaged."""
    source = Path(path)
    try:
        return json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"expected a trained model in {source.parent}; {source.name} is missing") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{source} is damaged or cannot be read: {error}") from error
