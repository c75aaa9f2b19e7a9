"""The blocks of the evaluation pyramid of NIST SP 800-226 (2025), filled in from the run."""

from __future__ import annotations

from typing import Any

from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import Row, State, section

_NUMBERS = {
    "gaussian": "Sums are brought to whole multiples of a grid and noised on that grid (docs/proofs/noise.md).",
    "discrete-laplace": "Counts are whole numbers with whole-number noise (docs/proofs/count.md).",
    "randomized-response": "A pair of nodes is linked or not, by an exact coin (docs/proofs/graph-release.md).",
    "noisy-top": "Pairs of nodes are compared by whole numbers (docs/proofs/graph-release.md).",
    "exponential": "Scores are whole multiples of a grid (docs/proofs/dendrogram.md).",
    "randomizer": "A report is one of finitely many values (docs/proofs/local-features.md).",
}
_TRAINING = (
    "Training relies on each row being computed alone: the same kernel and shape give the same numbers whatever the "
    "other rows are (docs/proofs/gradient.md)."
)


@section(
    "nist",
    "NIST SP 800-226",
    after="reporting",
    template="""
<p class="lead">The blocks of the evaluation pyramid, from the top: what this run handles, and what it leaves to
others.</p>
{{ ui.checklist(rows) }}
""",
)
def nist(context: RunContext) -> dict[str, Any]:
    """Every block with its state."""
    return {"rows": nist_rows(context)}


def nist_rows(context: RunContext) -> list[Row]:
    """The rows of the list."""
    certificate = context.certificate
    stated: State = "handled" if certificate.is_private else "not handled"
    epsilon = f"epsilon {words.number(context.epsilon)} at delta {context.delta:g}"
    return [
        Row("Privacy parameters (epsilon, delta)", stated, f"{epsilon}, over every release of the run."),
        Row("Unit of privacy", stated, f"Stated with every epsilon: {context.unit.name}."),
        Row("Composition over time", "handled", _composition(context)),
        _algorithms(context),
        Row("Randomness", stated, f"{words.randomness(certificate)}."),
        _numbers(context),
        Row("Timing side channels", "not handled", "Run time and memory depend on the data. Do not publish them."),
        Row("Trust model", "partly" if certificate.is_private else "not handled", words.trust(certificate)),
        _utility(context),
        Row("Access control and data security", "outside", "Storage, accounts and transport of data and ledger."),
        Row("Data collection", "outside", "How the graph was gathered, and consent."),
    ]


def _composition(context: RunContext) -> str:
    total = words.total(context.total)
    return f"All runs in one ledger add up: {total}. Runs on a copy of the data with another ledger are not seen."


def _algorithms(context: RunContext) -> Row:
    name, proved = "Algorithms and their correctness", "Bounds are proved, enforced on the numbers that are noised, "
    if not context.certificate.is_private:
        return Row(name, "not handled", "This run has no guarantee.")
    verdict = None if context.audit is None else context.audit["verdict"]
    if verdict == "contradicted":
        return Row(name, "not handled", "An audit contradicted this run: see the section on the audit.")
    audited = verdict == "consistent"
    ending = "this run's mechanisms were audited." if audited else "this run was not audited."
    return Row(name, "handled" if audited else "partly", f"{proved}and tested with broken variants; {ending}")


def _numbers(context: RunContext) -> Row:
    """What is known about the numbers that the machine really adds, by the laws of the noise."""
    name = "Floating-point side channels"
    noised = [charge for charge in context.certificate.charges if charge.scale > 0.0]
    if not noised:
        none = context.certificate.is_free
        return Row(name, "handled" if none else "not handled", "No noise was drawn in this run.")
    known = [_NUMBERS[law] for law in dict.fromkeys(charge.law for charge in noised) if law in _NUMBERS]
    trains = any(context.stage(charge.stage).mechanism.trains for charge in noised)
    state: State = "partly" if trains or not known else "handled"
    found = " ".join([*known, *([_TRAINING] if trains else [])])
    return Row(name, state, found or "Nothing is known about this noise.")


def _utility(context: RunContext) -> Row:
    if context.by_class:
        found = "Accuracy is reported overall and for every class; other groups are not compared."
        return Row("Utility and bias", "partly", found)
    if context.accuracy() is not None:
        return Row(
            "Utility and bias",
            "partly",
            f"{context.measure.capitalize()} is reported overall; groups are not compared.",
        )
    return Row("Utility and bias", "not handled", "No accuracy was measured; groups are not compared.")
