"""Runs of a study in a tracker, each when it has ended: what the cell is, and what the run says of its privacy.

An experiment may compute anything on private data, so nothing that it returns is sent but what it declares: metrics
named in its `released`. All others are evaluations, which only a research study, on public data, may send.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.writing import plain
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell, code_version
from hushgraph.study.results import Results
from hushgraph.study.run import Progress, Watch
from hushgraph.study.store import Result, State
from hushgraph.tracking.base import Entry, Tracker, flat

_FIGURES = ("epsilon", "delta")
_FACTS = ("run", *_FIGURES, "unit", "method", "chosen", "candidates", "epsilon_of_one_run")
"""What may be told of the facts of a run: what its certificate says, and what a private selection chose."""


def tracked(
    results: Results, trackers: Sequence[Tracker], *, evaluation: bool = False, watch: Watch | None = None
) -> Watch:
    """A watch of a study that shows every cell that ended well, then calls `watch`; a tracker that fails is left out.

    With `evaluation`, all metrics are shown, those on the data's own labels under a name that says so; a charged study
    refuses it.
    """
    _require_allowed(results.study.privacy, evaluation)
    reached = list(trackers)

    def told(progress: Progress) -> None:
        if reached and progress.last is not None and progress.last.state is State.DONE:
            cell = progress.last.cell
            result = results.store.result(cell.key(code_version(cell.experiment)))
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
    _require_allowed(cell.privacy, evaluation)
    axes: dict[str, Any] = {name: cell.axis(name) for name in cell.axes}
    facts = {name: result.facts[name] for name in _FACTS if result.facts.get(name) is not None}
    certificate = {"run": facts.get("run"), "facts": facts, "privacy": cell.privacy, "code": result.code}
    metrics = {name: value for name, value in result.metrics.items() if value is not None}
    released = {name: metrics.pop(name) for name in released_by(cell.experiment) if name in metrics}
    return Entry(
        name=f"{cell}-{result.key[:8]}",
        settings=flat({**axes, "privacy": cell.privacy, "run": facts.get("run")}),
        figures={name: float(facts[name]) for name in _FIGURES if name in facts},
        certificate=json.dumps(plain(certificate), indent=2, sort_keys=True),
        released=released,
        evaluation=metrics if evaluation else {},
    )


def released_by(experiment: str) -> tuple[str, ...]:
    """The metrics that an experiment declares to follow from what it releases; none, where it does not say."""
    return tuple(getattr(experiment_named(experiment), "released", ()))


def _require_allowed(privacy: str, evaluation: bool) -> None:
    if evaluation and privacy != "research":
        raise InputError(
            "track-evaluation: expected a research study, on public data; got a charged one, whose figures on labels "
            "no run has paid for. Leave it out: what runs release is tracked in any case"
        )
