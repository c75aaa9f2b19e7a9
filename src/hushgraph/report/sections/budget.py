"""Where the privacy loss comes from: every stage with its noise and what it would cost alone."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from hushgraph.report import words
from hushgraph.report.context import RunContext, StageCost
from hushgraph.report.sections import below, section
from hushgraph.report.svg import Bar, bar_chart
from hushgraph.text import settings_in_words

_HEAD = ["stage", "mechanism", "releases", "noise scale", "sensitivity", "epsilon alone"]


@section(
    "budget",
    "Budget by stage",
    after="accuracy",
    template="""
<p class="lead">{{ lead }}</p>
{{ chart }}
{% if rows %}{{ ui.table(head, rows, numeric=[2, 3, 4, 5]) }}{% endif %}
{% if lines %}{{ ui.bullets(lines) }}{% endif %}
{{ ui.note(free) }}
""",
)
def budget(context: RunContext) -> dict[str, Any]:
    """A bar and a row per stage; the certificate's lines where nothing has a finite cost."""
    costs = context.stages
    bars = [Bar(cost.charge.stage, cost.epsilon, _tip(cost), number) for number, cost in enumerate(costs)]
    title, label = "Epsilon of each stage, if it were the only one", f"epsilon at delta {context.delta:g}"
    return {
        "lead": _lead(context),
        "chart": bar_chart(bars, title=title, label=label) if bars else "",
        "head": _HEAD,
        "rows": [_row(cost) for cost in costs],
        "lines": [] if costs else words.released(context.certificate),
        "free": _free(context),
    }


def _lead(context: RunContext) -> str:
    if math.isinf(context.epsilon):
        return "This run protects nothing. What was read or released:"
    if not context.stages:
        return "Nothing that depends on the protected unit was released."
    together = f"Together the stages cost epsilon {words.number(context.epsilon)}."
    if sum(cost.epsilon for cost in context.stages) > 1.01 * context.epsilon:
        return f"{together} Stages compose better than they add, so the bars sum to more than the total."
    return together


def _row(cost: StageCost) -> list[str | Markup]:
    charge = cost.charge
    noised = charge.law not in ("randomizer", "selection")
    return [
        charge.stage,
        below(charge.mechanism, _parameters(cost)),
        f"{charge.count}",
        f"{charge.scale:.4g}" if noised else "—",
        words.number(charge.sensitivity) if noised and math.isfinite(charge.sensitivity) else "—",
        words.number(cost.epsilon),
    ]


def _parameters(cost: StageCost) -> str:
    """The public parameters of the mechanism."""
    values = cost.stage.mechanism.as_dict()
    shown = {key: _named(value) for key, value in values.items() if key != "name" and value not in (None, False)}
    return settings_in_words(shown)


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return str(value.get("name", "..."))
    if isinstance(value, list):
        plans = [one["method"] for one in value if isinstance(one, dict) and "method" in one]
        return f"{len(plans)}: {', '.join(dict.fromkeys(plans))}" if plans else "one per column"
    return f"{value:.4g}" if isinstance(value, float) else value


def _tip(cost: StageCost) -> str:
    return f"{words.charge_line(cost.charge)}\nepsilon alone {words.number(cost.epsilon)}"


def _free(context: RunContext) -> str:
    """The stages that need no noise."""
    free = [stage.name for stage in context.plan if stage.is_free(context.unit)]
    return f"Without noise and without cost, because all they read is public: {words.listed(free)}." if free else ""
