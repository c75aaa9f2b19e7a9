from __future__ import annotations

import threading

import pytest

from hushgraph.collect import admin
from hushgraph.collect.postgres import PostgresStore
from hushgraph.collect.store import Arrival, Outcome, SqliteStore, open_store
from hushgraph.errors import InputError


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        yield SqliteStore(tmp_path / "collect.db")
        return
    opened = PostgresStore(request.getfixturevalue("postgres").address)
    for table in ("report", "node", "task", "setting"):
        with opened._transaction(write=True) as run:
            run(f"DELETE FROM {table}")
    yield opened
    opened.shut_down()


@pytest.fixture
def enrolled(store, task_maker):
    task = task_maker()
    admin.create_task(store, task)
    return store, task, dict(admin.enroll(store, task.id))


def arrival(task, token, report_id=b"r" * 16, payload=b"p", accepting=True):
    return Arrival(task.id, admin.token_hash(token), report_id, payload, "2026-01-01", accepting)


def test_one_report_per_node(enrolled):
    store, task, tokens = enrolled
    first = arrival(task, tokens[0])
    assert store.add([first]) == [Outcome.STORED]
    assert store.add([first, first]) == [Outcome.REPLAY, Outcome.REPLAY]
    assert store.add([arrival(task, tokens[0], payload=b"q")]) == [Outcome.CONFLICT]
    assert store.add([arrival(task, tokens[0], report_id=b"s" * 16)]) == [Outcome.CONFLICT]
    assert store.add([arrival(task, tokens[1])]) == [Outcome.CONFLICT]  # another node's report id
    assert store.add([arrival(task, "unknown", b"t" * 16)]) == [Outcome.UNKNOWN_NODE]
    assert store.reports(task.id) == [(0, b"p")]


def test_repetitions_within_one_batch(enrolled):
    store, task, tokens = enrolled
    batch = [arrival(task, tokens[0]), arrival(task, tokens[0]), arrival(task, tokens[0], payload=b"q")]
    assert store.add(batch) == [Outcome.STORED, Outcome.REPLAY, Outcome.CONFLICT]


def test_closed_tasks_take_replays_only(enrolled):
    store, task, tokens = enrolled
    store.add([arrival(task, tokens[0])])
    store.close_task(task.id)
    assert store.task(task.id).state == "closed"
    assert store.add([arrival(task, tokens[0])]) == [Outcome.REPLAY]
    assert store.add([arrival(task, tokens[1], b"s" * 16)]) == [Outcome.CLOSED]


def test_outside_its_days_nothing_new_is_taken(enrolled):
    store, task, tokens = enrolled
    assert store.add([arrival(task, tokens[0], accepting=False)]) == [Outcome.CLOSED]
    assert store.counts(task.id) == (40, 0)


def test_tasks_never_change(store, task_maker):
    store.create_task(task_maker())
    store.create_task(task_maker())
    with pytest.raises(InputError, match="never change"):
        store.create_task(task_maker(title="Other"))
    assert store.task("survey").task == task_maker()
    assert store.task("none") is None
    assert store.task_ids() == ["survey"]


def test_tokens_are_stored_hashed_and_never_replaced(enrolled):
    store, task, tokens = enrolled
    with pytest.raises(InputError, match="has one"):
        admin.enroll(store, task.id, [5])
    with store._transaction() as run:
        rows = run("SELECT node_token_hash FROM node").fetchall()
    hashes = {bytes(row[0]) for row in rows}
    assert hashes == {admin.token_hash(token) for token in tokens.values()}


def test_failed_batches_leave_nothing(enrolled):
    store, task, tokens = enrolled
    broken = Arrival(task.id, admin.token_hash(tokens[1]), b"s" * 16, None, "2026-01-01")  # payload may not be NULL
    with pytest.raises(Exception, match=r"(?i)null"):
        store.add([arrival(task, tokens[0]), broken])
    assert store.counts(task.id) == (40, 0)


def test_racing_threads_store_one_report(enrolled):
    store, task, tokens = enrolled
    outcomes = []

    def work(number):
        outcomes.extend(store.add([arrival(task, tokens[0], bytes([number]) * 16)]))
        store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.name for outcome in outcomes) == ["CONFLICT"] * 7 + ["STORED"]


def test_settings_are_set_once(store):
    assert store.set_once("name", "first")
    assert not store.set_once("name", "second")
    assert store.setting("name") == "first"
    assert store.setting("other") is None


def test_changed_tasks_in_the_database_are_noticed(tmp_path, task_maker):
    store = SqliteStore(tmp_path / "collect.db")
    store.create_task(task_maker())
    changed = task_maker(title="Changed").canonical_json()
    with store._transaction(write=True) as run:
        run("UPDATE task SET config = ?", (changed,))
    with pytest.raises(InputError, match="changed"):
        store.task("survey")


def test_addresses(tmp_path):
    assert isinstance(open_store(f"sqlite:///{tmp_path}/a.db"), SqliteStore)
    assert isinstance(open_store(str(tmp_path / "b.db")), SqliteStore)
    with pytest.raises(InputError):
        open_store("mysql://somewhere")


def test_sqlite_file_is_private_and_durable(tmp_path):
    store = SqliteStore(tmp_path / "collect.db")
    assert (tmp_path / "collect.db").stat().st_mode & 0o077 == 0
    with store._transaction() as run:
        assert run("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert run("PRAGMA synchronous").fetchone()[0] == 2
