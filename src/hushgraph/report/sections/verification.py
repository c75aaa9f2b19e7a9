"""Whether what the page says was checked: the first thing to read.

Where the numbers come from.
"""

from __future__ import annotations

from typing import Any

from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.parts import below, mono
from hushgraph.report.sections import section

_STATES = {
    None: (
        "Not verified: no ledger was at hand when this page was written. It shows what the certificate states "
        "(hushgraph verify MODEL checks it).",
        "warn",
    ),
    "verified": ("Verified: the model, its certificate and the ledger agree.", "good"),
    "not verified": ("Not verified: a part of this run could not be checked.", "warn"),
    "contradicted": ("CONTRADICTED: this run is not what the ledger says. Do not rely on this page.", ""),
}


@section(
    "verification",
    "Verification",
    template="""
{{ ui.banner(words, kind) }}
{% if findings %}{{ ui.bullets(findings) }}{% endif %}
""",
)
def verification(context: RunContext) -> dict[str, Any]:
    """Verified, not verified or contradicted, with what was found."""
    words, kind = _STATES[context.verification]
    return {"words": words, "kind": kind, "findings": context.findings}


_SIZES = {
    "num_nodes": "nodes",
    "num_edges": "edge entries (as declared)",
    "num_train": "train nodes",
    "num_features": "features",
    "num_classes": "classes",
}


@section("provenance", "Provenance", after="nist", template="{{ ui.table(['', ''], rows) }}")
def provenance(context: RunContext) -> dict[str, Any]:
    """Fingerprint, method, accountant, noise, sizes and versions."""
    certificate = context.certificate
    parameters = ", ".join(f"{key} {value}" for key, value in context.parameters.items() if value is not None)
    sizes = context.plan.metadata.as_dict()
    return {
        "rows": [
            ("ledger fingerprint", mono(certificate.ledger_hash)),
            ("run", mono(certificate.run)),
            ("method", below(context.label, parameters)),
            ("accountant", words.accountant(certificate)),
            ("noise", words.randomness(certificate)),
            ("public sizes", ", ".join(f"{sizes[key]:,} {name}" for key, name in _SIZES.items() if sizes[key])),
            ("versions", words.versions(certificate)),
        ]
    }
