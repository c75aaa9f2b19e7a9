from __future__ import annotations

import asyncio

import pytest

from hushgraph.collect import committer as module
from hushgraph.collect.committer import Committer, Overloaded
from hushgraph.collect.store import Outcome


class SlowStore:
    """Counts batches; the first batch waits until it is let go, so that the others must queue up."""

    def __init__(self):
        import threading

        self.batches, self.gate, self.entered = [], threading.Event(), threading.Event()

    def add(self, arrivals):
        self.entered.set()
        self.gate.wait(10)
        self.batches.append(list(arrivals))
        if "bad" in arrivals:
            raise RuntimeError("disk")
        return [Outcome.STORED] * len(arrivals)

    def close(self):
        pass


def run_all(store, items, first="first"):
    committer = Committer(store)
    committer.start()

    async def go():
        leading = asyncio.ensure_future(committer.add(first))
        while not store.entered.is_set():
            await asyncio.sleep(0.001)
        waiting = [asyncio.ensure_future(committer.add(item)) for item in items]
        await asyncio.sleep(0.01)
        store.gate.set()
        return await asyncio.gather(leading, *waiting, return_exceptions=True)

    outcomes = asyncio.run(go())
    committer.stop()
    return outcomes


def test_waiting_reports_share_one_commit_in_order():
    store = SlowStore()
    assert run_all(store, range(100)) == [Outcome.STORED] * 101
    assert store.batches == [["first"], list(range(100))]


def test_a_failed_commit_fails_everyone_in_it_and_nobody_else():
    store = SlowStore()
    outcomes = run_all(store, ["a", "bad", "b"])
    assert outcomes[0] is Outcome.STORED
    assert [type(outcome) for outcome in outcomes[1:]] == [RuntimeError] * 3


def test_batches_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_BATCH", 16)
    store = SlowStore()
    run_all(store, range(40))
    assert max(len(batch) for batch in store.batches) == 16


def test_a_full_queue_refuses_at_once(monkeypatch):
    monkeypatch.setattr(module, "QUEUE_LENGTH", 1)
    committer = Committer(SlowStore())

    async def go():
        waiting = asyncio.ensure_future(committer.add("a"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await committer.add("b")
        waiting.cancel()

    asyncio.run(go())


def test_stop_writes_what_is_waiting():
    store = SlowStore()
    store.gate.set()
    committer = Committer(store)

    async def go():
        waiting = [asyncio.ensure_future(committer.add(item)) for item in range(5)]
        await asyncio.sleep(0)
        committer.start()
        return await asyncio.gather(*waiting)

    asyncio.run(go())
    committer.stop()
    assert sum(map(len, store.batches)) == 5


def test_several_writers_work_at_a_time_and_all_of_them_stop():
    store = SlowStore()
    committer = Committer(store, writers=3)
    committer.start()

    async def go():
        waiting = []
        for item in range(3):
            waiting.append(asyncio.ensure_future(committer.add(item)))
            await asyncio.sleep(0.05)  # each is taken by another writer: the first ones wait for the gate
        while committer.waiting:
            await asyncio.sleep(0.001)
        store.gate.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(go()) == [Outcome.STORED] * 3
    committer.stop()
    assert sorted(store.batches) == [[0], [1], [2]]
    assert not any(thread.is_alive() for thread in committer._threads)
