"""Runs of a study in a tracker, each when it has ended: what the cell is, and what the run says of its privacy."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.writing import plain
from hushgraph.study.cell import Cell, code_version
from hushgraph.study.run import Progress, Watch
from hushgraph.study.store import Result, State, Store
from hushgraph.tracking.base import Entry, Tracker, flat

_FIGURES = ("epsilon", "delta")


def tracked(
    store: Store, trackers: Sequence[Tracker], *, evaluation: bool = False, watch: Watch | None = None
) -> Watch:
    """A watch of a study that shows every cell that ended well, then calls `watch`; a tracker that fails is left out.

    Metrics of a cell are figures on the data's own labels: they are shown with `evaluation` only, and named for it.
    """

    reached = list(trackers)

    def told(progress: Progress) -> None:
        if reached and progress.last is not None and progress.last.state is State.DONE:
            cell = progress.last.cell
            result = store.result(cell.key(code_version(cell.experiment)))
            if result is not None:
                entry = entry_of_cell(cell, result, evaluation=evaluation)
                for tracker in list(reached):
                    try:
                        tracker.log(entry)
                    except InputError as error:
                        reached.remove(tracker)
                        warnings.warn(f"{error}. The study goes on, and is no longer tracked there", stacklevel=2)
        if watch is not None:
            watch(progress)

    return told


def entry_of_cell(cell: Cell, result: Result, *, evaluation: bool = False) -> Entry:
    """What may be tracked of a cell that ended."""
    axes: dict[str, Any] = {name: cell.axis(name) for name in cell.axes}
    facts = result.facts
    certificate = {"run": facts.get("run"), "facts": facts, "privacy": cell.privacy, "code": result.code}
    return Entry(
        name=f"{cell}-{result.key[:8]}",
        settings=flat({**axes, "privacy": cell.privacy, "run": facts.get("run")}),
        figures={name: float(facts[name]) for name in _FIGURES if facts.get(name) is not None},
        certificate=json.dumps(plain(certificate), indent=2, sort_keys=True),
        evaluation={name: value for name, value in result.metrics.items() if value is not None} if evaluation else {},
    )
