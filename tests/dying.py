"""Tasks for tests of executors, and a worker that dies while it does one. Nothing here takes long to import."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.executors.base import Executor


@dataclass
class OneDies:
    """An executor of which one worker is killed while it does the second task that it was given."""

    inner: Executor
    mark: Path

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def is_here(self) -> bool:
        return self.inner.is_here

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        numbered = ((number, task) for number, task in enumerate(tasks))
        return self.inner.map(partial(dies_once, function, str(self.mark)), numbered, *shared)

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        return self.inner.each(function, pull)

    def close(self) -> None:
        self.inner.close()


def dies_once(function: Callable[..., Any], mark: str, task: tuple[int, Any], *shared: Any) -> Any:
    """The function of the task; before the first answer to the second task, the process is killed."""
    number, own = task
    if number == 1 and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(own, *shared)


def ends_its_process(task: int) -> None:
    """No answer."""
    os._exit(9)


def refuses(task: int) -> None:
    """An error."""
    raise InputError("expected another task")


def plus(task: int, more: int = 0) -> int:
    """An answer."""
    return task + more


def counted(lab: Any, *, size: float = 1.0) -> dict[str, float | None]:
    """An experiment."""
    return {"value": size + lab.cell.seed}


def whose(task: int, *shared: Any) -> tuple[int, int]:
    """Who answers."""
    return os.getpid(), task


def summed(task: int, arrays: dict[str, Any], *others: Any) -> tuple[float, bool]:
    """What all arrays hold together, and whether one could be written to."""
    return sum(float(one.sum()) for one in arrays.values()), any(one.flags.writeable for one in arrays.values())
