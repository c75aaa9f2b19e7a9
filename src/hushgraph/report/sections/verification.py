"""Whether what the page says was checked: the first thing to read."""

from __future__ import annotations

from typing import Any

from hushgraph.report.context import RunContext
from hushgraph.report.sections import section

_STATES = {
    None: (
        "Not verified: no ledger was at hand when this page was written. It shows what the certificate states "
        "(hushgraph verify MODEL checks it).",
        "warn",
    ),
    "verified": ("Verified: the {what}, its certificate and the ledger agree.", "good"),
    "not verified": ("Not verified: a part of this run could not be checked.", "warn"),
    "rejected": ("REJECTED by a person whose word counts. {headline}. Do not rely on this run.", ""),
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
    return {
        "words": words.format(headline=context.headline, what=context.what),
        "kind": kind,
        "findings": context.findings,
    }
