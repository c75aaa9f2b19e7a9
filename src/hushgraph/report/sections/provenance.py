"""Where the numbers come from."""

from __future__ import annotations

from typing import Any

from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import below, mono, section
from hushgraph.text import settings_in_words

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
    parameters = settings_in_words(context.parameters)
    sizes = context.plan.metadata.as_dict()
    return {
        "rows": [
            ("ledger fingerprint", mono(certificate.ledger_hash)),
            ("run", mono(certificate.run)),
            ("method", below(context.label, parameters)),
            *([("plain training", words.minibatches(context.minibatches))] if context.minibatches else []),
            ("accountant", words.accountant(certificate)),
            ("noise", words.randomness(certificate)),
            ("public sizes", ", ".join(f"{sizes[key]:,} {name}" for key, name in _SIZES.items() if sizes[key])),
            ("versions", words.versions(certificate)),
        ]
    }
