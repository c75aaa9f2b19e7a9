"""Files of bytes and JSON: their size is judged before they are read, and whatever is wrong is one kind of error.

Readers parse inside `damage_named`: what a value of the wrong form makes Python raise, anywhere below,
becomes an error that says which file is damaged. What the reader itself has to say (`HushgraphError`) passes through.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from hushgraph.errors import HushgraphError, InputError

LARGEST_JSON = 8 << 20
"""Bytes of a file with one JSON object; parsed it takes about ten times as much memory."""
MOST_DIGITS = 18
_DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    NotImplementedError,
    EOFError,
    RuntimeError,
    AssertionError,
    MemoryError,
)
"""What values of a wrong form make Python, numpy and torch raise."""


def read_within(path: str | os.PathLike[str], most: int, *, of: str = "a file") -> bytes:
    """The content of an ordinary file of at most `most` bytes; anything else is refused without being read."""
    with _opened(Path(path), most, of) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"expected {of} of at most {most:,} bytes; {path} grew while it was read. Try again")
    return content


def lines_within(path: str | os.PathLike[str], most: int, *, of: str = "a file") -> Iterator[bytes]:
    """The lines of an ordinary file of at most `most` bytes, with their ends; one too long for JSON is refused."""
    with _opened(Path(path), most, of) as file:
        while line := file.readline(LARGEST_JSON + 1):
            if len(line) > LARGEST_JSON:
                raise InputError(f"expected {of} with lines of at most {LARGEST_JSON:,} bytes; {path} has a longer one")
            yield line


@contextlib.contextmanager
def _opened(source: Path, most: int, of: str) -> Iterator[BinaryIO]:
    try:
        found = source.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"expected {of}; {source} is not an ordinary file. Name another")
        if found.st_size > most:
            raise InputError(f"expected {of} of at most {most:,} bytes; {source} has {found.st_size:,}. Name another")
        with open(source, "rb") as file:
            yield file
    except FileNotFoundError as error:
        what = f"{source.name} is missing" if source.parent.is_dir() else "there is no such folder"
        raise InputError(f"expected {of} in {source.parent}; {what}; check the path") from error
    except (OSError, ValueError) as error:
        if isinstance(error, HushgraphError):
            raise
        raise InputError(f"{source} is damaged or cannot be read: {error}") from error


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text. Names that appear twice, NaN, infinities and endless numbers are refused."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_no_constant,
            parse_int=_number,
            parse_float=_number,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _number(text: str) -> int | float:
    """A whole number of so many digits that it stays exact everywhere, or a finite one."""
    if text.removeprefix("-").isdigit():
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number has {len(text)} digits")
        return int(text)
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


@contextlib.contextmanager
def damage_named(where: object, error: type[HushgraphError] = InputError, *, do: str = "Restore it") -> Iterator[None]:
    """Turn what damaged values make Python raise into an `error` that names the place."""
    try:
        yield
    except HushgraphError:
        raise
    except _DAMAGE as found:
        said = " ".join(str(found).split())[:200]
        raise error(f"{where}: is damaged or was changed ({type(found).__name__}: {said}). {do}") from found


_DO = {
    "full": "Make room on the disk",
    "readonly": "Name a place that can be written",
    "unable to open": "Name a file in a folder that is there and can be written",
    "locked": "Wait for the process that uses it",
    "decode": "Restore it, or name another",
}


@contextlib.contextmanager
def database_named(path: object, error: type[HushgraphError] = InputError) -> Iterator[None]:
    """Turn what SQLite says into an `error` with the name of the file and what to do."""
    try:
        yield
    except sqlite3.OperationalError as found:
        do = next((words for word, words in _DO.items() if word in str(found)), "Try again")
        raise error(f"{path}: could not be used ({found}). {do}") from found
    except (sqlite3.DatabaseError, UnicodeDecodeError) as found:
        raise error(f"{path}: is damaged or no SQLite file ({found}). Restore it, or name another") from found


Form = type | tuple[type, ...]


def require_fields(values: Mapping[str, Any], form: Mapping[str, Form], where: object) -> None:
    """Refuse an object without these fields or with others in their place; all problems at once."""
    problems = []
    for name, kinds in form.items():
        if name not in values:
            problems.append(f"{where}: expected the field {name}; it is missing")
        elif not is_of(values[name], kinds):
            problems.append(f"{where}: expected {name} as {_named(kinds)}; got {str(values[name])[:40]!r}")
    InputError.collect(problems)


def is_of(value: Any, form: Form) -> bool:
    """Whether a value of a JSON text has a form; true and false are no numbers, whole numbers are."""
    kinds = form if isinstance(form, tuple) else (form,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))


def _named(kinds: Form) -> str:
    words = {dict: "an object", list: "a list", str: "a word", int: "a whole number", float: "a number"}
    words |= {bool: "true or false", type(None): "null"}
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return " or ".join(words.get(kind, kind.__name__) for kind in listed)


def read_json(path: str | os.PathLike[str], *, of: str = "a JSON file") -> dict[str, Any]:
    """The one JSON object in a file; where it is missing or damaged, an error that says what it is part `of`."""
    content = read_within(path, LARGEST_JSON, of=of)
    with damage_named(path):
        values = parse_json(content)
    if not isinstance(values, dict):
        raise InputError(f"expected one JSON object in {path}; got {type(values).__name__}")
    return values


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_hash(content: bytes | memoryview) -> str:
    """A hash of the tensors in a safetensors file: names, kinds, shapes and values, without what is said about them."""
    length = int.from_bytes(content[:8], "little")
    listed, values = parse_json(bytes(content[8 : 8 + length])), memoryview(content)[8 + length :]
    return hash_of_tensors(
        (name, listed[name]["dtype"], listed[name]["shape"], values[slice(*listed[name]["data_offsets"])])
        for name in sorted(set(listed) - {"__metadata__"})
    )


def hash_of_tensors(tensors: Iterable[tuple[str, str, Sequence[int], memoryview]]) -> str:
    """The same of names in order, kinds (as safetensors calls them), shapes and bytes."""
    found = hashlib.sha256()
    for name, kind, shape, values in tensors:
        found.update(json.dumps([name, kind, list(shape), values.nbytes], separators=(",", ":")).encode())
        found.update(values)
    return found.hexdigest()
