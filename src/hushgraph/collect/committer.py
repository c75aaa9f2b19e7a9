"""Group commit: reports that arrive together share one transaction.

A commit waits for the disk. Reports that come in meanwhile are collected and written by the next commit, so the number
of reports a second is not limited by the disk. Nobody is answered before the commit that holds their report.

Where the database is away or two servers are in each other's way, the batch is tried again for a while: a report that
was stored by a commit whose answer was lost is found there again, and nothing is doubled.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from hushgraph.collect.observing import Metrics
from hushgraph.collect.store import Arrival, Outcome, Unavailable
from hushgraph.errors import HushgraphError

LARGEST_BATCH = 256
QUEUE_LENGTH = 4096
PATIENCE = 8.0
"""Seconds for which a batch is tried again; then its senders are told to come back."""


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
    """One thread that writes batches. `start` and `stop` belong to the life of the server."""

    def __init__(
        self,
        store: Stores,
        metrics: Metrics | None = None,
        *,
        patience: float = PATIENCE,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.metrics, self.patience, self._wait = store, metrics or Metrics(), patience, wait
        self._waiting: queue.Queue[tuple[Arrival, Future[Outcome]] | None] = queue.Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)

    @property
    def waiting(self) -> int:
        """How many reports wait for a commit."""
        return self._waiting.qsize()

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is waiting, then end."""
        self._waiting.put(None)
        self._thread.join()

    async def add(self, arrival: Arrival) -> Outcome:
        """Wait until the report is decided and, if stored, committed."""
        future: Future[Outcome] = Future()
        try:
            self._waiting.put_nowait((arrival, future))
        except queue.Full:
            raise Overloaded("the queue is full") from None
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        running = True
        while running:
            batch = [self._waiting.get()]
            while len(batch) < LARGEST_BATCH and batch[-1] is not None:
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            running = batch[-1] is not None
            self._write([item for item in batch if item is not None])
        self.store.close()

    def _write(self, batch: list[tuple[Arrival, Future[Outcome]]]) -> None:
        if not batch:
            return
        begun = time.monotonic()
        try:
            outcomes = self._add([arrival for arrival, _ in batch])
        except Exception as error:
            # Nothing of the batch is known to be stored; every sender is told to try again.
            self.metrics.count("store_errors", kind=type(error).__name__)
            for _, future in batch:
                _settle(future, error)
            return
        self.metrics.observe("commit_seconds", time.monotonic() - begun)
        for (_, future), outcome in zip(batch, outcomes):
            _settle(future, outcome)

    def _add(self, arrivals: list[Arrival]) -> list[Outcome]:
        until, pause = time.monotonic() + self.patience, 0.02
        while True:
            try:
                return self.store.add(arrivals)
            except Unavailable:
                self.metrics.count("store_retries")
                if time.monotonic() + pause > until:
                    raise
            self._wait(pause)
            pause = min(0.5, 2 * pause)


def _settle(future: Future[Outcome], found: Outcome | Exception) -> None:
    """Answer, unless the sender has gone meanwhile."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
