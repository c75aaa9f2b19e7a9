"""The reporting list of "How to DP-fy ML" (Ponomareva and others, 2023), filled in from the run."""

from __future__ import annotations

from typing import Any

from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import Row, State, section

_PROOF: dict[str | None, tuple[State, str]] = {
    None: ("partly", "The certificate is computed from the ledger, which was not at hand when this page was written."),
    "not verified": ("partly", "The ledger was read when this page was written; not everything could be checked."),
    "verified": ("handled", "The ledger was read when this page was written and agrees with the certificate."),
    "rejected": ("not handled", "The ledger agrees with the certificate, and a person rejected the run."),
    "contradicted": ("not handled", "The ledger was read when this page was written and contradicts this run."),
}


@section(
    "reporting",
    "Reporting list",
    after="scope",
    template="""
<p class="lead">The points that “How to DP-fy ML” asks every private model to report.</p>
{{ ui.checklist(rows) }}
""",
)
def reporting(context: RunContext) -> dict[str, Any]:
    """Every point with its state."""
    return {"rows": reporting_rows(context)}


def reporting_rows(context: RunContext) -> list[Row]:
    """The rows of the list."""
    certificate, unit = context.certificate, context.unit
    released = "; ".join(words.released(certificate)) or "nothing that depends on the unit"
    stated: State = "handled" if certificate.is_private else "not handled"
    return [
        Row("DP setting", stated, words.setting(certificate)),
        Row("Unit of privacy", stated, f"{unit.name}: {unit.change}."),
        Row("Neighboring relation", stated, f"{words.relation(unit)}."),
        Row("What is released", "handled", f"{released}."),
        Row("Data accesses covered", "partly" if certificate.is_private else "not handled", _accesses(context)),
        Row("Accountant", stated, f"{words.accountant(certificate)}."),
        Row("Assumptions of the accountant", stated, words.sampling(certificate)),
        Row("Formal statement", stated, words.claim(certificate)),
        _other_views(context),
        Row("Proof that the claim follows from what was done", *_PROOF[context.verification]),
    ]


def _accesses(context: RunContext) -> str:
    if not context.certificate.is_private:
        return "None: this run has no guarantee."
    if context.what == "graph":
        return (
            "The release of the graph, and everything that is computed from it, is covered. How the graph was prepared "
            "before is not, nor is choosing a release by looking at several, unless all are in one ledger."
        )
    return (
        "Training and inference on the training graph are covered. How the graph was prepared before training is not. "
        "Choosing hyperparameters by looking at several runs is not, unless all are in one ledger. Accuracy and attack "
        "figures on this page are an evaluation and are not private."
    )


def _other_views(context: RunContext) -> Row:
    certificate = context.certificate
    views = words.profile(certificate)
    if certificate.mu is not None:
        views.insert(0, f"mu = {certificate.mu:.4g} in Gaussian DP")
    if views:
        return Row("Other views of the loss", "handled", "; ".join(views) + ".")
    if context.certificate.is_free:
        return Row("Other views of the loss", "handled", "epsilon is 0 at every delta.")
    return Row("Other views of the loss", "not handled", "None: there is no finite bound.")
