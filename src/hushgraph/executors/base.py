"""One small interface for whoever does the work: other processes (`processes`) or a cluster (`ray`).

What is handed out are functions of a task that draw nothing at random: noise is drawn by whoever hands them out, once,
when all results are there. So a task whose worker was lost is done again, and gives the same bytes.

Executors are looked up by name; another package adds its own by an entry point in "hushgraph.executors".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hushgraph import registry
from hushgraph.errors import InputError


@dataclass(frozen=True)
class Lost:
    """In the place of a result: the worker ended before the task did, and why."""

    reason: str


@runtime_checkable
class Executor(Protocol):
    """Somebody who does tasks. It starts when it is first used, and `close` ends what it started."""

    @property
    def count(self) -> int:
        """How many tasks are done at once."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether all workers are on this machine and see its files."""
        ...

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        """`function(task, *shared)` of every task, in order; what is shared is sent to a worker once.

        The function is one of a module, and the same task always gives the same result: it may be done twice.
        """
        ...

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with its result, in the order in which they end; nothing is done twice.

        `pull()` is the next task, or None where there is none now; it is asked again whenever a task ends. A task
        whose worker was lost has a `Lost` as its result.
        """
        ...

    def close(self) -> None:
        """End what was started; the next use starts it again."""
        ...


def begin_early(executor: Executor) -> None:
    """Let an executor start its workers while there is something else to do, if it can."""
    begin = getattr(executor, "begin", None)
    if begin is not None:
        begin()


def on_every_machine(executor: Executor, function: Callable[[Any], Any], task: Any) -> None:
    """Let every machine of an executor do the task, if it has a way; an error of one is raised here."""
    everywhere = getattr(executor, "on_every_machine", None)
    if everywhere is not None:
        everywhere(function, task)


def cores() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def as_executor(given: int | str | Executor, *, private_network: bool = False) -> Executor:
    """A number of processes, the name of an executor such as "ray", "ray:4" or "ray@10.0.0.1:6379", or one as it is.

    `private_network` declares, of one at an address, that nobody else sees or changes what travels to it.
    """
    if isinstance(given, Executor):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return _made("processes", given, None)
    found = re.fullmatch(
        r"(?:(?P<name>[a-z][a-z-]*)(?::(?P<count>\d+))?(?:@(?P<address>\S+))?|(?P<only>\d+))", str(given)
    )
    if found is None or (found["name"] is not None and not registry.knows("executors", found["name"])):
        raise InputError(
            f"workers: expected a number of processes, or ray, ray:4 or ray@HOST:PORT; got {given!r}. In Python, "
            "hushgraph.Ray(...) has more settings"
        )
    count = found["only"] or found["count"]
    name, number = found["name"] or "processes", None if count is None else int(count)
    return _made(name, number, found["address"], private_network)


def _made(name: str, count: int | None, address: str | None, private_network: bool = False) -> Executor:
    kind = registry.load("executors", name)
    if address is None:
        made: Executor = kind(count)
    else:
        made = kind(count, address, **({"private_network": True} if private_network else {}))
    return made


@contextmanager
def working(given: int | str | Executor | None) -> Iterator[Executor | None]:
    """The executor that was asked for, if any; one that was made here is closed at the end."""
    if given is None:
        yield None
        return
    found = as_executor(given)
    try:
        yield found
    finally:
        if found is not given:
            found.close()
