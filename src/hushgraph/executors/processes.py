"""Other processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from hushgraph.errors import InputError
from hushgraph.executors.base import Lost, cores

_LOOK = 0.2
_AHEAD = 4  # tasks that a process gets at a time: each sending has a fixed cost
_shared: tuple[Any, ...] = ()


@dataclass
class Processes:
    """So many processes (None: one per core); 0, or 1 for `map`: this process.

    `map` starts fresh processes, `each` forks them where the system can, after libraries were imported once; such a
    process ends as soon as the one that started it is gone. `setup` is called in each of them first.
    """

    workers: int | None = None
    setup: Callable[[], object] | None = None
    _busy: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)

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

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        """`function(task, *shared)` of every task, in order."""
        if self.count <= 1:
            yield from (function(task, *shared) for task in tasks)
            return
        how = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.count, mp_context=how, initializer=_keep, initargs=shared) as pool:
            yield from pool.map(_Call(function), tasks, chunksize=_AHEAD)

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
        for pipe, (process, _) in self._busy.items():
            pipe.close()
            process.terminate()
            process.join()
        self._busy.clear()


@dataclass(frozen=True)
class _Call:
    """A function of a task, with what this process was given to share."""

    function: Callable[..., Any]

    def __call__(self, task: Any) -> Any:
        return self.function(task, *_shared)


def _keep(*shared: Any) -> None:
    global _shared
    _shared = shared


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
