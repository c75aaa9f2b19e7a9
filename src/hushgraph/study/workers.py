"""Running cells: here, in processes of one thread each, or on a cluster.

Whoever runs the study writes down which cell begins and how it ended; a worker only computes. A cell whose worker was
lost is begun again, as another attempt.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hushgraph.errors import HushgraphError
from hushgraph.executors.base import Executor, Lost
from hushgraph.executors.processes import Processes
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell, code_version
from hushgraph.study.lab import Lab
from hushgraph.study.store import State, Store

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
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that cells need; a process has them from the one that started it."""


@dataclass(frozen=True)
class Attempt:
    """A cell that begins; `group` is the one that declared its cost, for the first attempt."""

    cell: Cell
    group: str | None


@dataclass(frozen=True)
class Outcome:
    """How a cell ended, and by which code."""

    state: State
    code: str
    metrics: dict[str, float | None]
    facts: dict[str, Any]
    message: str
    seconds: float


@dataclass(frozen=True)
class Ended:
    """A cell that ended."""

    cell: Cell
    state: State
    seconds: float


def run_cell(attempt: Attempt, duty: Duty) -> Outcome:
    """Run one cell; errors of the library and of the experiment end the cell alone."""
    settle(duty)
    cell, code = attempt.cell, code_version(attempt.cell.experiment)
    lab = Lab(cell, duty.ledger, f"study {duty.study}", attempt.group)
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
    return Outcome(state, code, metrics, lab.facts, message, seconds)


def prepare(cells: Sequence[Cell]) -> None:
    """Import what cells need, before processes are forked: it is paid once."""
    for name in dict.fromkeys(cell.experiment for cell in cells):
        experiment_named(name)
    if any(cell.dataset is not None for cell in cells):
        for name in ("torch_geometric.data", "hushgraph.datasets.loading", "hushgraph.methods.gap"):
            importlib.import_module(name)


@dataclass
class Workers:
    """Takes cells one after the other to an executor and writes down what comes back."""

    executor: Executor
    duty: Duty

    @property
    def count(self) -> int:
        """How many cells run at once."""
        return self.executor.count

    def run(self, cells: list[Cell]) -> Iterator[Ended]:
        """Run the cells and hand over each that ended, in the order in which they end."""
        if cells and isinstance(self.executor, Processes) and self.count:
            prepare(cells)
        waiting, tries = list(reversed(cells)), dict.fromkeys((cell.key("") for cell in cells), 0)

        def pull() -> Attempt | None:
            if not waiting:
                return None
            tries[waiting[-1].key("")] += 1
            return self._begun(waiting.pop())

        shared = replace(self.duty, groups={})
        for attempt, found in self.executor.each(partial(run_cell, duty=shared), pull):
            cell: Cell = attempt.cell
            if isinstance(found, Lost) and tries[cell.key("")] < _TRIES:
                waiting.append(cell)
                continue
            yield self._ended(cell, found, tries[cell.key("")])

    def _begun(self, cell: Cell) -> Attempt:
        before = Store(self.duty.store).begin(cell.key(code_version(cell.experiment)))
        return Attempt(cell, None if before else self.duty.groups.get(cell.key("")))

    def _ended(self, cell: Cell, found: Outcome | Lost, tries: int) -> Ended:
        code = code_version(cell.experiment)
        if isinstance(found, Lost):
            found = Outcome(State.FAILED, code, {}, {}, f"{found.reason}, {tries} times", 0.0)
        elif found.code != code:
            words = f"expected a worker with the code {code}; got one with {found.code}; install the same version there"
            found = Outcome(State.FAILED, code, {}, {}, words, 0.0)
        parts = {"metrics": found.metrics, "facts": found.facts, "message": found.message, "seconds": found.seconds}
        Store(self.duty.store).finish(cell, code, found.state, **parts)  # type: ignore[arg-type]
        return Ended(cell, found.state, found.seconds)


def settle(duty: Duty) -> None:
    """One thread for each process, and no warnings of ledgers that are in memory on purpose."""
    os.environ.update(duty.surroundings)
    os.environ.setdefault("OMP_NUM_THREADS", str(duty.threads))  # for libraries that are imported later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(duty.threads)
    warnings.filterwarnings("ignore", message="a ledger in memory")
    warnings.filterwarnings("ignore", message=".*parse CSR tensor support is in beta.*")
