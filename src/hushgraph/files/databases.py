"""SQLite files: what the database says of a damaged file or a full disk becomes an error that names the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from hushgraph.errors import HushgraphError, InputError

_DO = {
    "full": "Make room on the disk",
    "readonly": "Name a place that can be written",
    "unable to open": "Name a file in a folder that is there and can be written",
    "locked": "Wait for the process that uses it",
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
