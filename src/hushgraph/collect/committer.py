"""Group commit: reports that arrive together share one transaction.

A commit waits for the disk. Reports that come in meanwhile are collected and written by the next commit, so the number
of reports a second is not limited by the disk. Nobody is answered before the commit that holds their report.

Where the database is away or two servers are in each other's way, the batch is tried again for a while: a report that
was stored by a commit whose answer was lost is found there again, and nothing is doubled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from hushgraph.collect.observing import Metrics
from hushgraph.collect.store import Arrival, Outcome, Unavailable
from hushgraph.errors import HushgraphError

LARGEST_BATCH = 256
QUEUE_LENGTH = 4096
PATIENCE = 8.0
"""Seconds for which a batch is tried again; then its senders are told to come back."""
LONGEST_PAUSE = 0.2
log = logging.getLogger("hushgraph.collect")
_Waiting = tuple[Arrival, "asyncio.Future[Outcome]"]


class Overloaded(HushgraphError):
    """More reports are waiting than the service wants to hold in memory; the client tries again later."""


class Stores(Protocol):
    """What a committer writes to."""

    def add(self, arrivals: list[Arrival]) -> list[Outcome]:
        """Decide and store a batch."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class Committer:
    """Threads that write batches, one unless the store takes several at a time. `start` and `stop` belong to the life
    of the server.
    """

    def __init__(
        self,
        store: Stores,
        metrics: Metrics | None = None,
        *,
        writers: int = 1,
        patience: float = PATIENCE,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.metrics, self.patience, self._wait = store, metrics or Metrics(), patience, wait
        self._waiting: deque[_Waiting] = deque()
        self._changed, self._running, self._away = threading.Condition(), True, False
        self._threads = [threading.Thread(target=self._work, name="committer", daemon=True) for _ in range(writers)]

    @property
    def waiting(self) -> int:
        """How many reports wait for a commit."""
        return len(self._waiting)

    def start(self) -> None:
        """Start writing."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Write what is waiting, then end."""
        with self._changed:
            self._running = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def add(self, arrival: Arrival) -> Outcome:
        """Wait until the report is decided and, if stored, committed."""
        if len(self._waiting) >= QUEUE_LENGTH:
            raise Overloaded("the queue is full")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._waiting.append((arrival, future))
            self._changed.notify()
        return await future

    def _work(self) -> None:
        while batch := self._next_batch():
            self._write(batch)
        self.store.close()

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._running)
            return [self._waiting.popleft() for _ in range(min(LARGEST_BATCH, len(self._waiting)))]

    def _write(self, batch: list[_Waiting]) -> None:
        begun = time.monotonic()
        outcomes: Sequence[Outcome | Exception]
        try:
            outcomes = self._add([arrival for arrival, _ in batch])
            self.metrics.observe("commit_seconds", time.monotonic() - begun)
        except Exception as error:
            # Nothing of the batch is known to be stored; every sender is told to try again.
            self.metrics.count("store_errors", kind=type(error).__name__)
            outcomes = [error] * len(batch)
        answered = [(future, outcome) for (_, future), outcome in zip(batch, outcomes)]
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everybody who waited
            batch[0][1].get_loop().call_soon_threadsafe(_settle, answered)

    def _add(self, arrivals: list[Arrival]) -> list[Outcome]:
        begun, pause = time.monotonic(), 0.02
        while True:
            try:
                outcomes = self.store.add(arrivals)
                self._tell_if_changed(away=False)
                return outcomes
            except Unavailable:
                self._tell_if_changed(away=True)
                self.metrics.count("store_retries")
                if time.monotonic() + pause > begun + self.patience:
                    raise
            self._wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _tell_if_changed(self, away: bool) -> None:
        if away != self._away:
            self._away = away
            log.warning("the database does not answer; reports wait" if away else "the database answers again")


def _settle(answered: list[tuple[asyncio.Future[Outcome], Outcome | Exception]]) -> None:
    """Answer a batch in the loop, at once; some senders may have gone meanwhile."""
    for future, found in answered:
        if future.done():
            continue
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)
