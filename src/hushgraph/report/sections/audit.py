"""What the audit measured, beside what was claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hushgraph.audit.result import SEEDED
from hushgraph.ledger.certificate import Randomness
from hushgraph.report.context import RunContext
from hushgraph.report.sections import pill, section
from hushgraph.report.svg import Bar, bar_chart

_VERDICTS = {
    None: ("This run was not audited (hushgraph audit MODEL measures a lower bound on epsilon).", "plain"),
    "contradicted": ("CONTRADICTED: the audit proved more privacy loss than was claimed.", ""),
    "consistent": ("No contradiction found. This does not prove the claim; it failed to disprove it.", "good"),
    "nothing to audit": ("Nothing was audited.", "warn"),
}
_SOURCE = (
    "Not checked: what an audit found is no part of the signed model, and its file can be edited. hushgraph audit "
    "MODEL measures it again."
)
_HEAD = ["canaries on", "bound", "canaries", "claimed epsilon", "proven lower bound", "verdict"]


@section(
    "audit",
    "Audit",
    after="attacks",
    template="""
{{ ui.banner(words, kind) }}
{% if source %}{{ ui.note(source) }}{% endif %}
{% if skipped %}<h3>Not audited</h3>{{ ui.bullets(skipped) }}{% endif %}
{% if rows %}
{{ chart }}
{{ ui.table(head, rows, numeric=[2, 3, 4]) }}
{{ ui.note(note) }}
{% endif %}
""",
)
def audit(context: RunContext) -> dict[str, Any]:
    """The verdict, what was left out, and a bar and a row per finding."""
    found = context.audit or {}
    words, kind = _VERDICTS[found.get("verdict")]
    if found and context.certificate.randomness is Randomness.SEEDED:
        words, kind = f"{SEEDED} {words}", ""
    findings = found.get("findings", [])
    if found.get("run") not in (None, context.certificate.run):
        words, kind = f"This audit is that of another run, {found['run']}.", "warn"
    return {
        "source": _SOURCE if found else "",
        "words": words,
        "kind": kind,
        "skipped": [one if isinstance(one, str) else one["sentence"] for one in found.get("skipped", [])],
        "chart": _chart(findings),
        "head": _HEAD,
        "rows": [_row(one) for one in findings],
        "note": _note(found) if findings else "",
    }


def _note(found: dict[str, Any]) -> str:
    share, findings = 1.0 - found["confidence"], found["findings"]
    confidence = f"Each measured bound holds with confidence {found['confidence']:.0%}"
    above = any(float(one["lower_bound"]) > float(one["claimed"]) and not one["contradicts"] for one in findings)
    chance = f" One is above the claim, as {share:.0%} of such bounds may be: by itself it contradicts nothing."
    exact = "one computed from the exact law needs no confidence level."
    return f"{confidence}; {exact}{chance if above else ''} {found['ran_on']}"


def _chart(findings: Sequence[dict[str, Any]]) -> str:
    """The sharpest bound of every kind of canary, which comes first."""
    first: dict[str, dict[str, Any]] = {}
    for one in findings:
        if one["contradicts"] or one["name"] not in first:
            first[one["name"]] = one
    bars = [_bar(one) for one in first.values() if _is_finite(one)]
    return bar_chart(bars, title="Proven lower bound (bar) and claimed epsilon (line)", label="epsilon") if bars else ""


def _bar(one: dict[str, Any]) -> Bar:
    bound, claimed = float(one["lower_bound"]), float(one["claimed"])
    tip = f"{one['name']}, {one['method']}\nlower bound {bound:.4g}, claimed {claimed:.4g}"
    return Bar(one["name"], bound, tip, 1 if one["contradicts"] else 0, claimed, "claimed")


def _is_finite(one: dict[str, Any]) -> bool:
    return math.isfinite(float(one["claimed"])) and math.isfinite(float(one["lower_bound"]))


def _row(one: dict[str, Any]) -> list[str | Markup]:
    return [
        one["name"],
        one["method"],
        f"{one['canaries']:,}" if one["canaries"] else "—",
        f"{float(one['claimed']):.4g}",
        f"{float(one['lower_bound']):.4g}",
        pill("contradicted", "bad") if one["contradicts"] else pill("consistent", "good"),
    ]
