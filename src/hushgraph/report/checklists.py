"""The two lists a reader may hold a DP claim against, filled in from the run.

* the reporting list of "How to DP-fy ML" (Ponomareva and others, 2023);
* the blocks of the evaluation pyramid of NIST SP 800-226 (2025), each handled, not handled, or outside scope.
"""

from __future__ import annotations

from dataclasses import dataclass

from hushgraph.report.record import RunRecord
from hushgraph.text import rounded_up


@dataclass(frozen=True)
class Row:
    """One line of a list; `state` is `handled`, `partly`, `not handled` or `outside`."""

    name: str
    state: str
    words: str


def reporting_list(record: RunRecord, *, ledger_checked: bool, selection: str | None = None) -> list[Row]:
    """The reporting list of "How to DP-fy ML"."""
    certificate = record.certificate
    private = record.epsilon < float("inf")
    sampling = _sampling_words(record)
    return [
        Row(
            "DP setting", "handled", "Central DP: a trusted holder of the data runs the method and releases its output."
        ),
        Row("Unit of privacy", "handled", f"{record.unit.name}: {certificate['change']}."),
        Row("Neighboring relation", "handled", f"{certificate['relation']}."),
        Row("What is released", "handled", "; ".join(certificate["released"]) or "nothing that depends on the unit"),
        Row(
            "Data accesses covered",
            "partly" if private else "not handled",
            "Training and inference on the training graph are covered. Pre-processing before the graph was handed in "
            "is not. Choosing hyperparameters by looking at several runs is not, unless all are in one ledger. "
            "Accuracy figures on this page are an evaluation and are not private.",
        ),
        Row("Accountant", "handled", f"{certificate['accountant']}."),
        Row("Assumptions of the accountant", "handled", sampling),
        Row("Formal statement", "handled", certificate["sentence"]),
        Row("Other views of the loss", "handled" if private else "not handled", _other_views(record)),
        Row(
            "Proof that the claim follows from what was done",
            "handled" if ledger_checked else "partly",
            "The certificate is computed from the ledger; "
            + (
                "this report read the ledger again and found the same epsilon."
                if ledger_checked
                else "the ledger was not at hand when this page was written. Run `hushgraph ledger verify`."
            ),
        ),
    ]


def nist_rows(record: RunRecord, *, audited: bool) -> list[Row]:
    """The blocks of the NIST SP 800-226 pyramid, from the top."""
    seeded = "seeded" in record.certificate["noise_source"]
    finite = record.epsilon < float("inf")
    return [
        Row(
            "Privacy parameters (epsilon, delta)",
            "handled" if finite else "not handled",
            f"epsilon {_number(record.epsilon)} at delta {record.delta:g}, composed over every release of the run.",
        ),
        Row("Unit of privacy", "handled", f"Typed and required: {record.unit.name}."),
        Row(
            "Composition over time",
            "handled",
            f"All runs on one ledger add up: {record.certificate['dataset_runs']} run(s), epsilon "
            f"{_number(float(record.certificate['dataset_epsilon']))} in total. Copies of the data with another ledger "
            "do not.",
        ),
        Row(
            "Algorithms and their correctness",
            "handled" if audited else "partly",
            "Sensitivities are proved, enforced on the tensor that is noised, and tested with broken variants"
            + ("; this run's mechanisms were audited." if audited else "; this run was not audited."),
        ),
        Row(
            "Randomness",
            "not handled" if seeded else "handled",
            record.certificate["noise_source"] + ".",
        ),
        Row(
            "Floating-point side channels",
            "partly",
            "Noise is drawn in double precision and sums are rounded to a grid; weights after private training are "
            "post-processing. No formal proof over floating point.",
        ),
        Row("Timing side channels", "not handled", "Run time and memory depend on the data. Do not publish them."),
        Row(
            "Trust model",
            "partly",
            "The data holder is trusted and sees everything; those who receive the output are not trusted.",
        ),
        Row("Utility and bias", "partly", "Accuracy is reported overall; differences between groups are not measured."),
        Row(
            "Access control and data security", "outside", "Storage, accounts and transport of the data and the ledger."
        ),
        Row("Data collection", "outside", "How the graph was gathered, and consent."),
    ]


def _sampling_words(record: RunRecord) -> str:
    gradients = any(" x gradient," in line for line in record.certificate["released"])
    if gradients:
        return (
            "Batches are Poisson-sampled, as the accountant assumes: the object that draws the batch is the one the "
            "accountant reads. An empty batch is a noise-only step."
        )
    return "No sampling is assumed: every release counts in full."


def _other_views(record: RunRecord) -> str:
    if record.epsilon == float("inf"):
        return "None: there is no finite bound."
    views = [
        f"epsilon {rounded_up(float(eps))} at delta {delta}" for delta, eps in record.certificate["epsilon_at"].items()
    ]
    if record.certificate.get("mu") is not None:
        views.insert(0, f"mu = {float(record.certificate['mu']):.4g} in Gaussian DP")
    return "; ".join(views) or "the curve of epsilon against delta above"


def _number(value: float) -> str:
    return rounded_up(value) if value < float("inf") else "infinite"
