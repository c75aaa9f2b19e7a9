"""How a run stands with its ledger: checked or not, and what its dataset has spent by now."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.certificate import DatasetTotal
from hushgraph.ledger.findings import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.ledger.project import default_ledger
from hushgraph.ledger.statement import sign_off_words, statement
from hushgraph.ledger.totals import Kind
from hushgraph.report.context import DatasetRun, DatasetState, RunContext

_MOST_RUNS = 200


def with_ledger(context: RunContext, ledger: str | os.PathLike[str] | None = None) -> RunContext:
    """The context with what the ledger says: the one named, or the project's; unchanged where there is none."""
    book = default_ledger(ledger, near=context.folder)
    usable = book.exists and not book.is_old
    if not usable and ledger is not None:
        raise InputError(f"{ledger}: expected a ledger that holds the run {context.certificate.run}; found none")
    state = _dataset(context, book) if usable else None
    if context.folder is None:
        return replace(context, dataset=state)
    found = verify_model(context.folder, book)
    findings = tuple(str(finding) for finding in found.findings)
    headline = found.headline if found.status is Status.REJECTED else found.status.value
    return replace(context, verification=found.status.value, headline=headline, findings=findings, dataset=state)


def _dataset(context: RunContext, book: Ledger) -> DatasetState | None:
    """The present state of the dataset, if the ledger knows it."""
    certificate = context.certificate
    with book.reading() as rows:
        if not rows.of_run(certificate.run):
            return None
    found = statement(book, dataset=certificate.dataset, last=_MOST_RUNS)
    total = DatasetTotal.of(book.total(certificate.dataset, certificate.unit))
    return DatasetState(
        name=certificate.dataset,
        unit=certificate.unit.name,
        total=total,
        runs=tuple(_run(run) for run in found["runs"]),
        used=total.used if total.kind in (Kind.FILTER, Kind.RAISED) else None,
        left_out=total.left_out,
    )


def _run(values: dict[str, Any]) -> DatasetRun:
    method = values["method"] if values["chosen"] is None else f"{values['method']}: {values['chosen']}"
    return DatasetRun(
        run=values["run"],
        method=method,
        unit=values["unit"]["name"],
        epsilon=float(values["epsilon"]),
        delta=float(values["delta"]),
        closed=values["closed"],
        private=not values["seeded"],
        time=values["time"],
        operator=values["operator"],
        purpose=values["purpose"],
        signed=sign_off_words(values),
    )
