"""The file of results: what was changed in it is noticed before it is in a table."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import InputError
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store

STUDY = {"privacy": "research", "datasets": ["campus"], "methods": ["gap"], "epsilons": [1, 2], "seeds": 2}
CELLS = Study.from_dict(STUDY).cells


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = Store(tmp_path / "small.sqlite")
    for number, cell in enumerate(CELLS):
        store.begin(cell.key("1"))
        store.finish(cell, "1", State.DONE, metrics={"test_accuracy": number / 4, "loss": float("nan")}, seconds=0.1)
    return store.path


def changed(path: Path, statement: str) -> Store:
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement).rowcount != 0
    return Store(path)


def test_results_come_back(path: Path) -> None:
    found = Store(path).results()
    assert [one.metrics["test_accuracy"] for one in found.values()] == [0.0, 0.25, 0.5, 0.75]
    assert len(Store(path).timings()) == len(Store(path).of_other_code(CELLS)) == len(Store(path).begun()) == 4


def test_a_new_store_waits_for_whoever_makes_it_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "small.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE own (value)")
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO own VALUES (1)")
    threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
    assert Store(path).results() == {}


def test_a_result_that_another_process_writes_meanwhile_is_not_missed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row and its checksum are written together; a reader that asked for them in turn saw one without the other."""
    store, other, whole = Store(path), Store(path), Store._run
    late = CELLS[0].key("2")

    def run(self: Store, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        found = whole(self, statement, values)
        if self is store and statement.startswith("SELECT * FROM results"):
            other.finish(CELLS[0], "2", State.DONE)
        return found

    monkeypatch.setattr(Store, "_run", run)
    assert late not in store.results()
    assert late in other.results()


def test_what_ended_well_is_never_replaced(path: Path) -> None:
    Store(path).finish(CELLS[1], "1", State.FAILED, message="no")
    assert Store(path).results()[CELLS[1].key("1")].state is State.DONE


def test_what_failed_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite")
    store.finish(CELLS[0], "1", State.FAILED, message="no")
    store.finish(CELLS[0], "1", State.DONE, metrics={"test_accuracy": 1.0})
    assert store.results()[CELLS[0].key("1")].metrics == {"test_accuracy": 1.0}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE results SET metrics = replace(metrics, '0.25', '0.95')",
        "UPDATE results SET seconds = 7 WHERE rowid = 1",
        "UPDATE results SET key = 'other' WHERE rowid = 1",
        "DELETE FROM results WHERE rowid = 1",
        "DELETE FROM checks WHERE rowid = 1",
        "UPDATE results SET metrics = '[' WHERE rowid = 1",
    ],
)
def test_a_change_is_noticed(path: Path, statement: str) -> None:
    with pytest.raises(InputError, match="is damaged or was changed"):
        changed(path, statement).results()


def test_a_store_from_before_there_were_checksums_is_read(path: Path) -> None:
    changed(path, "DELETE FROM checks")
    store = changed(path, "PRAGMA user_version = 0")
    assert len(store.results()) == 4
    store.finish(CELLS[0], "2", State.DONE, metrics={"test_accuracy": 1.0})
    assert len(store.results()) == 5
    with pytest.raises(InputError, match="checksum of the result"):
        changed(path, "UPDATE results SET message = 'other' WHERE code = '2'").results()
