"""What all runs on the dataset add up to, with the limit, and who ran what, when and why."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from hushgraph.report import words
from hushgraph.report.context import DatasetRun, DatasetState, RunContext
from hushgraph.report.sections import below, mono, pill, section
from hushgraph.text import to_the_minute

_MOST_RUNS = 200


@section(
    "dataset",
    "All runs on this dataset",
    after="budget",
    template="""
<p class="lead">{{ lead }}</p>
{% if rows %}{{ ui.table(head, rows, numeric=[3]) }}{% endif %}
{{ ui.note(note) }}
""",
)
def dataset(context: RunContext) -> dict[str, Any]:
    """The present total from the ledger; without one, the total that the certificate states."""
    state = context.dataset
    if state is None:
        lead = f"When this run ended: {words.total(context.certificate.total)}."
        note = "The ledger was not at hand when this page was written: later runs are not in this figure."
        return {"lead": lead, "head": [], "rows": [], "note": note}
    return {
        "lead": f"For the unit {state.unit}, when this page was written: {words.total(state.total)}.",
        "head": ["run", "method", "unit", "epsilon", "who", "when", "why", "sign-off"],
        "rows": [_row(one, one.run == context.certificate.run) for one in state.runs[-_MOST_RUNS:]],
        "note": " ".join(_notes(state)),
    }


def _notes(state: DatasetState) -> list[str]:
    notes, earlier = [], len(state.runs) - _MOST_RUNS
    if state.used is not None:
        notes.append(f"The runs have used epsilon {words.number(state.used)} of the limit so far.")
    if state.left_out:
        notes.append(f"Not counted: {words.counted(state.left_out, 'run')} declared unpublished.")
    if earlier > 0:
        notes.append(f"{earlier:,} earlier runs are in the ledger (hushgraph ledger show).")
    return notes


def _row(run: DatasetRun, this: bool) -> list[str | Markup]:
    name = Markup("{} {}").format(mono(run.run), pill("this run", "plain")) if this else mono(run.run)
    cost = words.number(run.epsilon) if run.private else "not private"
    at = "" if math.isinf(run.epsilon) or not run.private else f"at delta {run.delta:g}"
    return [
        name,
        below(run.method, "closed" if run.closed else "open: its whole plan counts"),
        run.unit,
        below(cost, at),
        *(_known(run)),
    ]


def _known(run: DatasetRun) -> list[str]:
    return [value or "—" for value in (run.operator, to_the_minute(run.time), run.purpose, run.signed)]
