"""The section on the audit: what was measured, beside what was claimed."""

from __future__ import annotations

import math
from typing import Any

from hushgraph.report import html
from hushgraph.report.svg import Bar, bar_chart

_VERDICTS = {
    "contradicted": ("CONTRADICTED: the audit proved more privacy loss than was claimed.", ""),
    "consistent": ("No contradiction found. This does not prove the claim; it failed to disprove it.", "good"),
    "nothing to audit": ("Nothing was audited.", "warn"),
}


def audit(found: dict[str, Any] | None) -> str:
    """What the audits measured, beside what was claimed."""
    if found is None:
        words = "This run was not audited. `hushgraph audit RUN_DIR` measures a lower bound on epsilon."
        return html.section("audit", "Audit", html.paragraph(words))
    words, kind = _VERDICTS[found["verdict"]]
    parts = [html.banner(words, kind)]
    if found.get("skipped"):
        parts.append("<h3>Not audited</h3>" + html.bullets(found["skipped"]))
    if found["findings"]:
        head = ["canaries on", "bound", "canaries", "claimed epsilon", "proven lower bound", "verdict"]
        parts += [_plot(found), html.table(head, [_row(one) for one in found["findings"]], numeric=(2, 3, 4))]
        note = f"Each bound holds with confidence {found['confidence']:.0%}; enumerated laws need none."
        parts.append(html.paragraph(f"{note} {found['ran_on']}", "note"))
    return html.section("audit", "Audit", *parts)


def _plot(found: dict[str, Any]) -> str:
    """The sharpest bound of every kind of canary, which comes first."""
    first: dict[str, dict[str, Any]] = {}
    for one in found["findings"]:
        if one["contradicts"] or one["name"] not in first:
            first[one["name"]] = one
    bars = [
        Bar(
            one["name"],
            float(one["lower_bound"]),
            _tip(one),
            1 if one["contradicts"] else 0,
            float(one["claimed"]),
            "claimed",
        )
        for one in first.values()
        if math.isfinite(float(one["claimed"])) and math.isfinite(float(one["lower_bound"]))
    ]
    return bar_chart(bars, title="Proven lower bound (bar) and claimed epsilon (line)", label="epsilon") if bars else ""


def _row(one: dict[str, Any]) -> list[str]:
    return [
        html.text(one["name"]),
        html.text(one["method"]),
        f"{one['canaries']:,}" if one["canaries"] else "—",
        f"{float(one['claimed']):.4g}",
        f"{float(one['lower_bound']):.4g}",
        html.pill("contradicted", "bad") if one["contradicts"] else html.pill("consistent", "good"),
    ]


def _tip(one: dict[str, Any]) -> str:
    bound, claimed = float(one["lower_bound"]), float(one["claimed"])
    return f"{one['name']}, {one['method']}\nlower bound {bound:.4g}, claimed {claimed:.4g}"
