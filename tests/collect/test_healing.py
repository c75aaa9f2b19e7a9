"""Databases that restart, servers that share one, and stores that are opened together."""

from __future__ import annotations

import asyncio
import secrets
import threading

import pytest

from hushgraph.collect import admin
from hushgraph.collect.committer import Committer
from hushgraph.collect.observing import Metrics
from hushgraph.collect.postgres import PostgresStore
from hushgraph.collect.store import VERSION, Arrival, Outcome, SqliteStore, Store, Unavailable
from hushgraph.errors import InputError


def arrivals_of(task, tokens):
    return [
        Arrival(task.id, admin.token_hash(token), secrets.token_bytes(16), b'{"x":[],"y":1}', "2026-03-01")
        for token in tokens.values()
    ]


def emptied(server) -> PostgresStore:
    store = PostgresStore(server.address)
    with store._transaction(write=True) as run:
        for table in ("report", "node", "task", "setting"):
            run(f"DROP TABLE {table}")
    store.shut_down()
    return PostgresStore(server.address)


def test_a_restart_of_the_database_is_survived(postgres, task_maker):
    store, task = emptied(postgres), task_maker()
    admin.create_task(store, task)
    batch = arrivals_of(task, dict(admin.enroll(store, task.id)))
    assert store.add(batch[:3]) == [Outcome.STORED] * 3
    for mode, part in (("fast", batch[3:6]), ("immediate", batch[6:9])):
        postgres.stop(mode)
        with pytest.raises(Unavailable, match="PostgreSQL"):
            store.add(part)
        postgres.start()
        metrics = Metrics()
        committer = Committer(store, metrics, patience=60.0)
        assert committer._add(part) == [Outcome.STORED] * 3
    assert len(store.reports(task.id)) == 9
    store.shut_down()


def test_two_servers_that_write_the_same_reports_do_not_lock_each_other_out(postgres, task_maker):
    first, task = emptied(postgres), task_maker(nodes=200)
    second = PostgresStore(postgres.address)
    admin.create_task(first, task)
    batch = arrivals_of(task, dict(admin.enroll(first, task.id)))
    outcomes: dict[int, list[Outcome]] = {}

    def work(number: int, store: Store, mine: list[Arrival]) -> None:
        outcomes[number] = [one for at in range(0, 200, 50) for one in store.add(mine[at : at + 50])]

    orders = (batch, batch[::-1], batch[100:] + batch[:100], batch[::2] + batch[1::2])
    threads = [
        threading.Thread(target=work, args=(number, (first, second)[number % 2], list(mine)))
        for number, mine in enumerate(orders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [one for found in outcomes.values() for one in found]
    assert len(everything) == 800
    assert everything.count(Outcome.STORED) == 200
    assert everything.count(Outcome.REPLAY) == 600
    first.shut_down()
    second.shut_down()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_stores_that_are_opened_together_on_an_empty_database_all_open(kind, tmp_path, request):
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        store = emptied(server)
        with store._transaction(write=True) as run:
            for table in ("report", "node", "task", "setting"):
                run(f"DROP TABLE {table}")
        store.shut_down()
    opened, failed = [], []

    def work() -> None:
        try:
            opened.append(PostgresStore(server.address) if kind == "postgres" else SqliteStore(tmp_path / "new.db"))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(opened) == 6
    for store in opened:
        store.shut_down()


def test_a_store_of_a_later_version_is_refused(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    with store._transaction(write=True) as run:
        run("UPDATE setting SET value = ? WHERE name = ?", (str(VERSION + 1), "schema_version"))
    with pytest.raises(InputError, match="of a later hushgraph; update it"):
        SqliteStore(tmp_path / "a.db")


class Flaky:
    """Fails a few times, as a database that restarts does."""

    def __init__(self, times: int) -> None:
        self.times, self.calls = times, 0

    def add(self, arrivals):
        self.calls += 1
        if self.calls <= self.times:
            raise Unavailable("away")
        return [Outcome.STORED] * len(arrivals)

    def close(self) -> None:
        pass


def test_a_batch_is_tried_again_and_given_up_in_the_end():
    paused: list[float] = []
    metrics = Metrics()

    async def outcome_of(committer, cancelled=False):
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if cancelled:
            future.cancel()
        committer._write([("report", future)])
        return (await asyncio.gather(future, return_exceptions=True))[0]

    found = asyncio.run(outcome_of(Committer(Flaky(4), metrics, wait=paused.append)))
    assert found is Outcome.STORED
    assert len(paused) == 4
    assert "hushgraph_store_retries_total 4" in metrics.text()
    found = asyncio.run(outcome_of(Committer(Flaky(100), metrics, patience=0.0, wait=paused.append)))
    assert isinstance(found, Unavailable)
    found = asyncio.run(outcome_of(Committer(Flaky(0)), cancelled=True))  # nobody waits any more: no error
    assert isinstance(found, asyncio.CancelledError)


def test_a_database_that_is_away_is_503_and_not_ready(world, monkeypatch):
    def away(self, *_):
        raise Unavailable("away")

    assert world.web.get("/readyz").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "task_ids", away)
        patch.setattr(Committer, "_add", away)
        assert world.web.get("/readyz").status_code == 503
        assert world.web.get("/healthz").status_code == 200
        answer = world.post(world.body(0))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert world.post(world.body(0)).status_code == 201


@pytest.mark.parametrize("name", ["%00", "a%00b", "..%2f..", "%ff", "x" * 300, "UPPER"])
def test_names_that_no_task_has_are_404(world, name):
    for end in ("", "/status"):
        assert world.web.get(f"/v1/tasks/{name}{end}").status_code == 404
    assert world.web.post(f"/v1/tasks/{name}/reports", content=b"{}").status_code == 404


def test_counts_change_once_in_a_period(world, monkeypatch):
    now = [7200.0]
    monkeypatch.setattr(admin.time, "time", lambda: now[0])
    for node in range(12):
        world.post(world.body(node))
    assert world.web.get("/v1/tasks/survey/status").json()["reports_at_least"] == 10
    for node in range(12, 25):
        world.post(world.body(node))
    assert world.web.get("/v1/tasks/survey/status").json()["reports_at_least"] == 10
    now[0] += 3600.0
    assert world.web.get("/v1/tasks/survey/status").json()["reports_at_least"] == 20


def test_figures_are_for_the_operator_and_name_nobody(world):
    body = world.body(0)
    world.post(body)
    assert world.web.get("/metrics").status_code == 401
    text = world.web.get("/metrics", headers=world.as_operator()).text
    assert 'hushgraph_requests_total{status="201",to="reports"} 1' in text
    assert "hushgraph_commit_seconds_count 1" in text
    assert body["node_token"] not in text
    assert body["report_id"] not in text
