"""Group commit: reports that arrive together share one transaction.

A commit waits for the disk. Reports that come in meanwhile are collected and written by the next commit, so the number
of reports a second is not limited by the disk. Nobody is answered before the commit that holds their report.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future

from hushgraph.collect.store import Arrival, Outcome, Store
from hushgraph.errors import HushgraphError

LARGEST_BATCH = 256
QUEUE_LENGTH = 4096


class Overloaded(HushgraphError):
    """More reports are waiting than the service wants to hold in memory; the client tries again later."""


class Committer:
    """One thread that writes batches. `start` and `stop` belong to the life of the server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: queue.Queue[tuple[Arrival, Future[Outcome]] | None] = queue.Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)

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
        try:
            outcomes = self.store.add([arrival for arrival, _ in batch])
        except Exception as error:
            # Nothing of the batch was committed; every sender is told to try again.
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes):
            future.set_result(outcome)
