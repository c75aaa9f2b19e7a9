"""Processes that run cells: one per core, each with one thread, forked after the libraries were imported once.

A worker writes its result to the store itself, and ends as soon as the process that started it is gone.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_all_start_methods, get_context
from typing import Any

from hushgraph.errors import HushgraphError
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell, code_version
from hushgraph.study.lab import Lab
from hushgraph.study.store import State, Store

_LOOK = 0.2
_TRIES = 2
"""How often a cell may take its worker down (memory, a crash in a library) before it counts as failed."""


@dataclass(frozen=True)
class Duty:
    """What all cells of a study share."""

    store: str
    study: str
    groups: Mapping[str, str] = field(default_factory=dict)
    ledger: str | None = None
    threads: int = 1


@dataclass(frozen=True)
class Ended:
    """A cell that ended."""

    cell: Cell
    state: State
    seconds: float


def run_cell(cell: Cell, duty: Duty) -> Ended:
    """Run one cell and write down how it ended; errors of the library and of the experiment end the cell alone."""
    store, code = Store(duty.store), code_version(cell.experiment)
    before = store.begin(cell.key(code))
    lab = Lab(cell, duty.ledger, f"study {duty.study}", None if before else duty.groups.get(cell.key("")))
    started = time.perf_counter()
    state, metrics, message = State.DONE, {}, ""
    try:
        found = experiment_named(cell.experiment)(lab, **cell.settings)
        metrics = {key: None if value is None else float(value) for key, value in found.items()}
    except HushgraphError as error:
        state, message = State.REFUSED, str(error)
    except Exception:
        state, message = State.FAILED, traceback.format_exc()
    seconds = 0.0 if lab.hides_time and lab.is_charged else time.perf_counter() - started
    store.finish(cell, code, state, metrics=metrics, facts=lab.facts, message=message, seconds=seconds)
    return Ended(cell, state, seconds)


def prepare(cells: Sequence[Cell]) -> None:
    """Import what cells need, before processes are forked: it is paid once."""
    for name in dict.fromkeys(cell.experiment for cell in cells):
        experiment_named(name)
    if any(cell.dataset is not None for cell in cells):
        for name in ("torch_geometric.data", "hushgraph.datasets.loading", "hushgraph.methods.gap"):
            importlib.import_module(name)


@dataclass
class Workers:
    """A number of processes that take cells one after the other. With 0, cells run in this process."""

    count: int
    duty: Duty
    _busy: dict[Any, tuple[Any, Cell | None, int]] = field(default_factory=dict)

    def run(self, cells: list[Cell]) -> Iterator[Ended]:
        """Run the cells and hand over each that ended, in the order in which they end."""
        if self.count == 0:
            for cell in cells:
                yield run_cell(cell, self.duty)
            return
        if not cells:
            return
        prepare(cells)
        waiting = [(cell, 1) for cell in reversed(cells)]
        try:
            for _ in range(min(self.count, len(cells))):
                self._start()
            self._hand_out(waiting)
            while any(cell is not None for _, cell, _ in self._busy.values()):
                for pipe in connection.wait(list(self._busy)):
                    ended = self._hear(pipe, waiting)
                    if ended is not None:
                        yield ended
                self._hand_out(waiting)
        finally:
            self._stop()

    def _start(self) -> None:
        how = get_context("fork" if "fork" in get_all_start_methods() else "spawn")
        here, there = how.Pipe()
        process = how.Process(target=_work, args=(there, self.duty, os.getpid()), daemon=True)  # type: ignore[attr-defined]
        process.start()
        there.close()
        self._busy[here] = (process, None, 0)

    def _hand_out(self, waiting: list[tuple[Cell, int]]) -> None:
        for pipe, (process, cell, _) in list(self._busy.items()):
            if cell is None and waiting:
                following, tries = waiting.pop()
                pipe.send(following)
                self._busy[pipe] = (process, following, tries)

    def _hear(self, pipe: Any, waiting: list[tuple[Cell, int]]) -> Ended | None:
        process, cell, tries = self._busy[pipe]
        try:
            ended: Ended = pipe.recv()
            self._busy[pipe] = (process, None, 0)
            return ended
        except (EOFError, OSError):
            del self._busy[pipe]
            process.join()
            self._start()
            assert cell is not None
            if tries < _TRIES:
                waiting.append((cell, tries + 1))
                return None
            words = f"the process that ran it ended with exit code {process.exitcode}, {tries} times"
            Store(self.duty.store).finish(cell, code_version(cell.experiment), State.FAILED, message=words)
            return Ended(cell, State.FAILED, 0.0)

    def _stop(self) -> None:
        for pipe, (process, _, _) in self._busy.items():
            pipe.close()
            process.terminate()
            process.join()
        self._busy.clear()


def _work(pipe: Any, duty: Duty, parent: int) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    settle(duty)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(run_cell(pipe.recv(), duty))


def settle(duty: Duty) -> None:
    """One thread for each process, and no warnings of ledgers that are in memory on purpose."""
    os.environ.setdefault("OMP_NUM_THREADS", str(duty.threads))  # for libraries that are imported later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(duty.threads)
    warnings.filterwarnings("ignore", message="a ledger in memory")
    warnings.filterwarnings("ignore", message=".*parse CSR tensor support is in beta.*")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
