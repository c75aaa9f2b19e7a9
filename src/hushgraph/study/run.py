"""Run a study: what is missing, once, on all cores, with the time that is left.

`hushgraph.study("study.yaml")` is this, and so is `hushgraph study run study.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgraph.datasets.catalog import DATA_VARIABLE
from hushgraph.errors import InputError
from hushgraph.executors.base import Executor, cores, working
from hushgraph.ledger.project import IN_MEMORY, PLACE
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell
from hushgraph.study.choose import require_allowed
from hushgraph.study.cost import cost_of
from hushgraph.study.declare import declare
from hushgraph.study.estimate import Remaining, Timings
from hushgraph.study.results import Results, matches
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store, StoreLock
from hushgraph.study.workers import Duty, Ended, Workers


@dataclass(frozen=True)
class Progress:
    """How far a study is, after a cell ended (`last` None: before the first)."""

    done: int
    total: int
    bad: int
    remaining: Remaining
    last: Ended | None = None

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        left = {"likely": self.remaining.likely, "low": self.remaining.low, "high": self.remaining.high}
        counts = {"done": self.done, "total": self.total, "bad": self.bad}
        return {**counts, **left, "unknown": self.remaining.unknown}


Watch = Callable[[Progress], None]


def study(
    source: str | os.PathLike[str] | Study | Mapping[str, Any] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    workers: int | str | Executor | None = None,
    retry: bool = False,
    where: Mapping[str, Any] | None = None,
    any_code: bool = False,
    watch: Watch | None = None,
    **values: Any,
) -> Results:
    """Do what is missing of a study and return its results.

    `source` is a study file, a `Study`, or the values of one; without it the values are given by name:
    `study(privacy="research", datasets=["campus"], methods=["gap"], epsilons=[1, 4], seeds=3)`. Results go to `store`
    (default: NAME.sqlite beside the file). `workers` is how many processes run cells (default: one per core; 0: this
    one), or "ray", or a `hushgraph.Ray`. `retry` runs cells again that were refused or failed; `where` keeps only
    cells whose axes have these values; with `any_code`, a cell that another version of the code has done is not done
    again.
    """
    declared = read_study(source, values)
    kept = Store(store if store is not None else default_store(declared))
    require_known_cost(declared)
    if declared.choose is not None and declared.privacy == "charged":
        require_allowed(declared, cost_of(declared))
    with StoreLock(kept.path), _ledger_of(declared), _executor_for(declared, workers) as executor:
        results = Results(declared, kept, any_code)
        groups = declare(results) if declared.privacy == "charged" else {}
        duty = Duty(str(kept.path), declared.name, groups, declared.ledger, surroundings=_surroundings())
        _run(results, Workers(executor, duty), retry, where or {}, _noting(declared, kept, watch))
    return Results(declared, kept, any_code)


def time_kinds(results: Results, workers: int | str | Executor | None = None) -> Results:
    """Run the first cell of each kind of which no time is known, and keep what comes out; never in a charged study."""
    if results.study.privacy == "charged":
        raise InputError(
            "timed: expected a research study; a dry run of a charged one charges nothing, so runs nothing"
        )
    known = Timings.of(results.store.timings())
    first: dict[tuple[Any, ...], Cell] = {}
    for cell in results.missing:
        if not known.of_cell(cell):
            first.setdefault(known.kind(cell), cell)
    chosen = _executor_for(results.study, workers)
    with StoreLock(results.store.path), _ledger_of(results.study), chosen as executor:
        duty = Duty(str(results.store.path), results.study.name, surroundings=_surroundings())
        for _ in Workers(executor, duty).run(list(first.values())):
            pass
    return Results(results.study, results.store)


def read_study(source: Any, values: Mapping[str, Any]) -> Study:
    """A study from a file, from values, or as it is."""
    if isinstance(source, Study):
        return source
    if source is None or isinstance(source, Mapping):
        return Study.from_dict({**(source or {}), **values})
    if values:
        raise InputError(f"expected a study file or the values of a study; got both: {', '.join(values)}")
    return Study.read(source)


def default_store(declared: Study) -> Path:
    """The file of results that belongs to a study."""
    return declared.folder / f"{declared.name}.sqlite"


def require_known_cost(declared: Study) -> None:
    """Refuse a charged study of which not every run can say what it will cost."""
    names = {part.experiment for part in declared.parts}
    silent = sorted(name for name in names if not hasattr(experiment_named(name), "plans"))
    if declared.privacy == "charged" and silent:
        raise InputError(
            f"privacy: charged: expected experiments that state their cost (`plans`); got {', '.join(silent)}. Declare "
            "the study as research, on public data, or let the experiment say what it releases"
        )


def _run(results: Results, workers: Workers, retry: bool, where: Mapping[str, Any], watch: Watch) -> None:
    todo = list(results.missing)
    if retry:
        todo += [cell for cell, _ in results.ended(State.REFUSED, State.FAILED)]
    counts = results.counts
    total = sum(counts.values())
    done = total - len(todo)  # what `where` leaves out is not done either
    todo = [cell for cell in todo if matches(cell, where)]
    bad = 0 if retry else counts["refused"] + counts["failed"]
    timings, left = Timings.of(results.store.timings()), {cell.key(""): cell for cell in todo}
    watch(Progress(done, total, bad, timings.remaining(todo, workers.count)))
    for one in workers.run(_ordered(todo)):
        left.pop(one.cell.key(""), None)
        timings.add(one.cell, one.seconds)
        done, bad = done + 1, bad + (one.state is not State.DONE)
        watch(Progress(done, total, bad, timings.remaining(list(left.values()), workers.count), one))


def _noting(declared: Study, store: Store, watch: Watch | None) -> Watch:
    """Writes every step down beside the results, then tells whoever watches."""
    facts = {"privacy": declared.privacy, "file": None if declared.file is None else str(declared.file)}

    def note(progress: Progress) -> None:
        store.note(declared.name, {**facts, **progress.as_dict()})
        if watch is not None:
            watch(progress)

    return note


def _ordered(cells: list[Cell]) -> list[Cell]:
    """Round by round of seeds, and in a round graph by graph, so that a worker keeps the graph it has."""
    places = {str(cell.axis("dataset")): place for place, cell in reversed(list(enumerate(cells)))}
    return sorted(cells, key=lambda cell: (cell.seed, cell.split_seed, places[str(cell.axis("dataset"))]))


@contextmanager
def _executor_for(declared: Study, workers: int | str | Executor | None) -> Iterator[Executor]:
    with working(cores() if workers is None else workers) as executor:
        assert executor is not None
        if declared.privacy == "charged" and not executor.is_here:
            raise InputError(
                "workers: expected workers on this machine for a charged study, whose runs all write to one ledger; "
                "got a cluster. Charged runs are few: leave workers out. On a cluster, declare research on public data"
            )
        yield executor


def _surroundings() -> dict[str, str]:
    """What experiments on other machines find things by."""
    return {name: os.environ[name] for name in (PLACE, DATA_VARIABLE) if name in os.environ}


@contextmanager
def _ledger_of(declared: Study) -> Iterator[None]:
    """A research study charges no ledger that lasts, also where an experiment names none."""
    before = os.environ.get(PLACE)
    if declared.privacy == "research":
        os.environ[PLACE] = IN_MEMORY
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(PLACE, None)
        else:
            os.environ[PLACE] = before
