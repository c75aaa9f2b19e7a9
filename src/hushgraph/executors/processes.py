"""Other processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.base import Lost, cores
from hushgraph.executors.shared import Place, Shared, looked_up

_LOOK = 0.2
_AHEAD = 2  # tasks of a process that wait or run: none waits for the next one to be sent
_AGAIN = 3  # how often processes are started again for one `map` when one of them was lost
_IMPORTED_ONCE = "hushgraph.graph.spread"


@dataclass
class Processes:
    """So many processes (None: one per core); 0, or 1 for `map`: this process.

    Those of `map` stay until `close`, come where the system can from a process that imported libraries once, and read
    what is shared in memory; if one is lost, all are started again and its task is done again. `each` forks this
    process where the system can. All of them end as soon as the one that started them is gone. `setup` is called in
    each of those of `each` first.
    """

    workers: int | None = None
    setup: Callable[[], object] | None = None
    _busy: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)
    _pool: ProcessPoolExecutor | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.workers is not None and (isinstance(self.workers, bool) or self.workers < 0):
            raise InputError(f"workers: expected a number of processes, 0 or more; got {self.workers!r}")

    @property
    def count(self) -> int:
        """How many tasks are done at once."""
        return cores() if self.workers is None else self.workers

    @property
    def is_here(self) -> bool:
        """True."""
        return True

    def begin(self) -> None:
        """Start the processes of `map`, and do not wait for them."""
        if self.count > 1 and self._pool is None:
            for _ in range(self.count):
                self._started().submit(os.getpid)

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        """`function(task, *shared)` of every task, in order."""
        if self.count <= 1:
            yield from (function(task, *shared) for task in tasks)
            return
        with Shared((function, *shared)) as given:
            yield from self._in_order(given.place, iter(tasks))

    def _in_order(self, place: Place, tasks: Iterator[Any]) -> Iterator[Any]:
        """The results, while the next few tasks are waiting or under way."""
        sent, losses = deque[tuple[Any, Future[Any] | None]](), 0
        while True:
            while len(sent) < _AHEAD * self.count and (task := next(tasks, place)) is not place:
                sent.append((task, self._submitted(place, task)))
            if not sent:
                return
            task, future = sent[0]
            try:
                if future is None:
                    raise BrokenProcessPool("a process ended")
                result = future.result()
            except BrokenProcessPool as error:
                losses += 1
                if losses > _AGAIN:
                    raise HushgraphError(
                        f"workers: expected an answer; a process ended before it gave one, {losses} times ({error}); "
                        "nothing was released. Give processes more memory, or take fewer of them"
                    ) from error
                self._end_pool()
                sent = deque((task, self._submitted(place, task)) for task, _ in sent)
                continue
            sent.popleft()
            yield result

    def _submitted(self, place: Place, task: Any) -> Future[Any] | None:
        """The task on its way; None where a process was lost."""
        try:
            return self._started().submit(_called, place, task)
        except BrokenProcessPool:
            return None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            can_serve = "forkserver" in multiprocessing.get_all_start_methods()
            how: Any = multiprocessing.get_context("forkserver" if can_serve else "spawn")
            if can_serve:
                how.set_forkserver_preload([_IMPORTED_ONCE])
            threads = max(cores() // self.count, 1)
            self._pool = ProcessPoolExecutor(self.count, mp_context=how, initializer=_begin, initargs=(threads,))
        return self._pool

    def _end_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with its result, in the order in which they end."""
        if self.count == 0:
            while (task := pull()) is not None:
                yield task, function(task)
            return
        try:
            self._hand_out(function, pull)
            while any(task is not None for _, task in self._busy.values()):
                for pipe in connection.wait(list(self._busy)):
                    yield self._hear(pipe)
                self._hand_out(function, pull)
        finally:
            self.close()

    def _hand_out(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> None:
        free = [pipe for pipe, (_, task) in self._busy.items() if task is None]
        while free or len(self._busy) < self.count:
            task = pull()
            if task is None:
                return
            pipe = free.pop() if free else self._start(function)
            pipe.send(task)
            self._busy[pipe] = (self._busy[pipe][0], task)

    def _start(self, function: Callable[[Any], Any]) -> Any:
        how = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
        here, there = how.Pipe()
        given = (there, function, self.setup, os.getpid())
        process = how.Process(target=_work, args=given, daemon=True)  # type: ignore[attr-defined]
        process.start()
        there.close()
        self._busy[here] = (process, None)
        return here

    def _hear(self, pipe: Any) -> tuple[Any, Any]:
        process, task = self._busy[pipe]
        try:
            result = pipe.recv()
            self._busy[pipe] = (process, None)
        except (EOFError, OSError):
            del self._busy[pipe]
            process.join()
            result = Lost(f"the process that ran it ended with exit code {process.exitcode}")
        return task, result

    def close(self) -> None:
        """End all processes."""
        self._end_pool()
        for pipe, (process, _) in self._busy.items():
            pipe.close()
            process.terminate()
            process.join()
        self._busy.clear()


def _called(place: Place, task: Any) -> Any:
    function, *shared = looked_up(place)
    return function(task, *shared)


def _begin(threads: int) -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _work(pipe: Any, function: Callable[[Any], Any], setup: Callable[[], object] | None, parent: int) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if setup is not None:
        setup()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(function(pipe.recv()))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
