"""Databases that are damaged, something else, or have no room: one kind of error that names the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hushgraph.collect.store import SqliteStore, Unavailable
from hushgraph.errors import InputError
from hushgraph.files.databases import database_named
from hushgraph.study.store import Store


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (sqlite3.OperationalError("database or disk is full"), "Make room on the disk"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "Name a place that can be written"),
        (sqlite3.OperationalError("unable to open database file"), "a folder that is there"),
        (sqlite3.OperationalError("database is locked"), "Wait for the process"),
        (sqlite3.OperationalError("disk I/O error"), "Try again"),
        (sqlite3.DatabaseError("file is not a database"), "damaged or no SQLite file"),
    ],
)
def test_what_sqlite_says_is_named(raised: Exception, words: str) -> None:
    with pytest.raises(InputError, match=f"the file: .*{words}"), database_named("the file"):
        raise raised


def test_a_file_of_something_else_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text('id = "campus"\n' * 100)
    with pytest.raises(InputError, match=r"task\.toml: is damaged or no SQLite file"):
        Store(path).results()
    with pytest.raises(Unavailable, match=r"task\.toml: is damaged or no SQLite file") as found:
        SqliteStore(path)
    assert found.value.exit_code == 2


def test_results_that_were_changed_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "study.sqlite")
    assert store.begin("a") == 0
    row = ("a", "i", "c", "{}", "done", "no json", "{}", "", 1.0, 1.0)
    store._run(f"INSERT INTO results VALUES ({', '.join('?' * 10)})", row)
    with pytest.raises(InputError, match=r"study\.sqlite: is damaged"):
        store.results()
