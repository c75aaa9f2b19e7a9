"""Files of others: judged before they are read, refused with one kind of error."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from hushgraph.collect.store import SqliteStore, Unavailable
from hushgraph.errors import InputError, LedgerError
from hushgraph.files.reading import damage_named, database_named, lines_within, parse_json, read_within, require_fields
from hushgraph.study.store import Store


def test_the_size_is_judged_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a terabyte that takes no room
    with pytest.raises(InputError, match=r"of at most 100 bytes; .*large\.json has 1,099,511,627,776"):
        read_within(path, 100, of="a JSON file")


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "not an ordinary file"), ("", "not an ordinary file"), ("none", "none is missing")):
        with pytest.raises(InputError, match=words):
            read_within(tmp_path / name, 100, of="a file")
    with pytest.raises(InputError, match="cannot be read"):
        read_within("a\x00b", 100)


def test_lines_come_one_by_one_and_have_a_longest(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo")
    assert list(lines_within(path, 100)) == [b"one\n", b"two"]
    with open(path, "ab") as file:
        file.truncate(1 << 32)  # a line without an end
    lines = lines_within(path, 1 << 40, of="an export")
    assert next(lines) == b"one\n"
    with pytest.raises(InputError, match=r"lines of at most 8,388,608 bytes; .*has a longer one"):
        next(lines)


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', "NaN", "[Infinity]", "1e999", "9" * 5000, "[" * 100_000, "\xff", "", '"\ud800']
)
def test_json_is_read_strictly(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text.encode("latin-1", "replace"))


def test_json_that_is_fine_is_read() -> None:
    assert parse_json(b'{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}


def test_damage_is_named_and_errors_of_the_project_pass_through() -> None:
    for raised in (KeyError("x"), TypeError("no"), RecursionError(), ZeroDivisionError(), RuntimeError("shape")):
        with (
            pytest.raises(LedgerError, match="the place: is damaged or was changed"),
            damage_named("the place", LedgerError),
        ):
            raise raised
    with pytest.raises(InputError, match=r"^own words$"), damage_named("the place", LedgerError):
        raise InputError("own words")
    with pytest.raises(KeyboardInterrupt), damage_named("the place"):
        raise KeyboardInterrupt


def test_all_wrong_fields_are_listed_at_once() -> None:
    with pytest.raises(InputError, match=r"(?s)3 problems.*the field a.*b as a whole number.*c as a word or null"):
        require_fields({"b": True, "c": 3, "d": 1}, {"a": int, "b": int, "c": (str, type(None)), "d": float}, "file")


# Databases


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
