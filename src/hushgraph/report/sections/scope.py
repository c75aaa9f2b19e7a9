"""What is protected, what is not, and what was taken as public."""

from __future__ import annotations

from typing import Any

from hushgraph.report.context import RunContext
from hushgraph.report.sections import section


@section(
    "scope",
    "What is protected, and what is not",
    after="audit",
    template="""
<div class="columns">
<div><h3>Protected</h3>{{ ui.bullets(protected) }}</div>
<div><h3>Not protected</h3>{{ ui.bullets(unprotected) }}</div>
<div><h3>Taken as public</h3>{{ ui.bullets(public) }}</div>
</div>
<p class="note">Correlations are not hidden: what can be learned about somebody from other people's data can still be
learned. The guarantee is about the difference that the named unit makes.</p>
""",
)
def scope(context: RunContext) -> dict[str, Any]:
    """Three lists from the unit and the notes of the certificate."""
    certificate = context.certificate
    return {
        "protected": [context.unit.protects] if certificate.is_private else [],
        "unprotected": [str(note) for note in certificate.unprotected]
        if certificate.is_private
        else ["everything: this run has no guarantee"],
        "public": [str(note) for note in certificate.public],
    }
