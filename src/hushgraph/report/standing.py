"""How a run stands with its ledger: checked or not, and what its dataset has spent by now."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.certificate import Certificate, DatasetTotal, certify
from hushgraph.ledger.ledger import FILE, History, Ledger
from hushgraph.ledger.run import statement
from hushgraph.report.context import DatasetRun, DatasetState, RunContext

_MOVES_ON = frozenset({"total", "ledger_hash", "versions"})
"""Fields of a certificate that later runs or versions may change."""


def with_ledger(context: RunContext, ledger: str | os.PathLike[str] | None = None) -> RunContext:
    """The context with what the ledger says: the one named, or one beside the model; unchanged where there is none."""
    history = _find(context, ledger)
    if history is None:
        return context
    differing = _differences(context.certificate, certify(history, context.certificate.run))
    if differing:
        findings = tuple(f"the certificate's {name} is not what the ledger gives" for name in differing)
        return replace(context, verification="contradicted", findings=findings, dataset=_dataset(history))
    agreed = (
        "the certificate says what the ledger gives, field by field",
        "the weights were not compared with the ledger",
    )
    return replace(context, verification="not verified", findings=agreed, dataset=_dataset(history))


def _find(context: RunContext, ledger: str | os.PathLike[str] | None) -> History | None:
    folder, run = context.folder, context.certificate.run
    beside = [] if folder is None else [folder, folder / "ledger", folder.parent / "ledger"]
    for place in [Path(ledger)] if ledger is not None else beside:
        if (place / FILE).exists():
            history = Ledger(place).history()
            if run in history.runs():
                return history
    if ledger is not None:
        raise InputError(f"{ledger}: expected a ledger that holds the run {run}; found none")
    return None


def _differences(stated: Certificate, found: Certificate) -> list[str]:
    ours, theirs = stated.as_dict(), found.as_dict()
    return [name for name in theirs if name not in _MOVES_ON and ours[name] != theirs[name]]


def _dataset(history: History) -> DatasetState:
    found = statement(history)
    times = {entry.values["run"]: entry.values["time"] for entry in history.entries if entry.kind == "open"}
    unit = str(found["unit"]["name"])
    limit = found["limit"]
    return DatasetState(
        name=str(found["dataset"]),
        unit=unit,
        total=DatasetTotal(
            epsilon=float(found["total"]["epsilon"]),
            delta=float(found["total"]["delta"]),
            kind="together",
            private=not any(run["seeded"] for run in found["runs"]),
            runs=len(found["runs"]),
            limit=None if limit is None else float(limit["epsilon"]),
        ),
        runs=tuple(_run(run, unit, times[run["run"]]) for run in found["runs"]),
    )


def _run(values: dict[str, Any], unit: str, time: str) -> DatasetRun:
    method = values["method"] if values["chosen"] is None else f"{values['method']}: {values['chosen']}"
    return DatasetRun(
        run=values["run"],
        method=method,
        unit=unit,
        epsilon=float(values["epsilon"]),
        delta=float(values["delta"]),
        state=values["state"],
        private=not values["seeded"],
        time=time,
    )
