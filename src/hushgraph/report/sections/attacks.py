"""What attacks achieved, with their curves at low false-positive rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hushgraph.privacy.tradeoff import detection_curve
from hushgraph.report.context import RunContext
from hushgraph.report.sections import below, section
from hushgraph.report.svg import Axis, Series, line_chart

EVALUATION = (
    "Not private: evaluation. An attack is judged with the private data itself, outside the guarantee. Not checked: "
    "these figures are no part of the signed model, and their file can be edited."
)
_HEAD = ["attack", "target", "AUC", "TPR at 1% FPR", "TPR at 0.1% FPR", "balanced accuracy"]
_LINE = (
    "The line of the guarantee bounds what one unit adds to an attacker's knowledge, all else known. A curve above it "
    "does not contradict the claim where the attack also uses what holds without that unit, for example that nodes "
    "that are alike are more often connected (docs/threats.md)."
)
_MEASURES = {"euclidean": "Euclidean distance", "ssim": "1 - SSIM"}
_INSIDE = "data:image/png;base64,"


@section(
    "attacks",
    "Attacks",
    after="dataset",
    template="""
{% if not found %}<p>No attack was run against this {{ what }}{{ " (hushgraph attack)" if what == "model" }}.</p>
{% else %}<p class="lead">{{ evaluation }}</p>{% endif %}
{% if rows %}{{ chart }}{{ ui.note(line) }}{{ ui.table(head, rows, numeric=[2, 3, 4, 5]) }}{% endif %}
{% for one in others %}
<h3>{{ one.title }}</h3>
{{ ui.table(["figure", "value"], one.figures, numeric=[1]) }}
{% for table in one.tables %}
<details><summary>{{ table.title }}</summary>{{ ui.table(table.head, table.rows, numeric=table.numeric) }}</details>
{% endfor %}
{% endfor %}
{% if pictures or grids %}<div class="pictures">
{% for name, source in pictures %}
<figure><figcaption>{{ name }}</figcaption><img alt="{{ name }}" src="{{ source }}" width="640"></figure>
{% endfor %}
{% for title, strips in grids %}
<figure class="strips"><figcaption>{{ title }}, from left to right</figcaption>
{% for name, source in strips %}
<div>{{ name }}</div><img alt="{{ title }}, {{ name }}" src="{{ source }}" width="640">
{% endfor %}
</figure>
{% endfor %}</div>{% endif %}
{% if assumptions %}<h3>What each attacker is given</h3>{{ ui.table(["attack", "assumes"], assumptions) }}{% endif %}
<p class="note">An attack that fails proves nothing: a better one may exist. The guarantee is the certificate, not this
section.</p>
""",
)
def attacks(context: RunContext) -> dict[str, Any]:
    """Curves and figures of attacks that score guesses; figures and pictures of the others."""
    found = context.attacks
    scored = [one for one in found if one.get("roc")]
    return {
        "found": found,
        "what": context.what,
        "evaluation": EVALUATION,
        "chart": _roc(context, scored),
        "line": _LINE if _limits(context) else "",
        "head": _HEAD,
        "rows": [_row(one) for one in scored],
        "others": [_other(one) for one in found if not one.get("roc")],
        "pictures": [pair for one in found for pair in _inside(one.get("pictures", {}))],
        "grids": [grid for one in found for grid in _grids(one)],
        "assumptions": list({one["name"]: one["assumes"] for one in found if one.get("assumes")}.items()),
    }


def _row(one: dict[str, Any]) -> list[str | Markup]:
    return [
        one["name"],
        one["target"],
        below(f"{one['auc']:.3f}", f"[{one['auc_low']:.3f}, {one['auc_high']:.3f}]"),
        *[_rate(one["tpr_at"].get(rate)) for rate in ("0.01", "0.001")],
        f"{one['balanced_accuracy']:.3f}",
    ]


def _rate(value: dict[str, float] | None) -> str | Markup:
    if value is None:
        return "too few"
    return below(f"{100 * value['value']:.2f}%", f"[{100 * value['low']:.2f}, {100 * value['high']:.2f}]")


def _roc(context: RunContext, scored: Sequence[dict[str, Any]]) -> str:
    series = []
    for number, one in enumerate(scored):
        pairs = [(x, y) for x, y in zip(one["roc"]["fpr"], one["roc"]["tpr"]) if x > 0 and y > 0]
        label = f"{one['name']} on {one['target']}"
        tips = [f"{label}\nFPR {100 * x:.3g}%, TPR {100 * y:.3g}%" for x, y in pairs]
        series.append(Series(label, [x for x, _ in pairs], [y for _, y in pairs], number, tips=tips))
    series.append(Series("guessing", [1e-4, 1.0], [1e-4, 1.0], 6, dashed=True))
    if limits := _limits(context):
        label = f"most that the guarantee allows about one {context.unit.name}"
        series.append(Series(label, [x for x, _ in limits], [y for _, y in limits], 5, dashed=True))
    across = Axis("false-positive rate (logarithmic)", 1e-4, 1.0, log=True, percent=True)
    up = Axis("true-positive rate (logarithmic)", 1e-4, 1.0, log=True, percent=True)
    return line_chart(across, up, series, title="Attack curves at low false-positive rates", height=440)


def _limits(context: RunContext) -> list[tuple[float, float]]:
    """The highest true-positive rate that the loss allows at each false-positive rate, for any test of one unit."""
    loss = context.loss
    if loss is None or not context.certificate.is_private:
        return []
    rates = [10 ** (-4 + k / 10) for k in range(41)]
    return list(zip(rates, detection_curve(loss, rates)))


def _other(one: dict[str, Any]) -> dict[str, Any]:
    """Figures of an attack without scores, and distances of reconstructions by class."""
    return {
        "title": f"{one['name']} on {one['target']}",
        "figures": [(key, _figure(value)) for key, value in one.get("figures", {}).items()],
        "tables": [_distances(metric, by_name) for metric, by_name in one.get("distances", {}).items()],
    }


def _distances(metric: str, by_name: dict[str, Sequence[float]]) -> dict[str, Any]:
    columns = zip(*by_name.values(), strict=True)
    return {
        "title": f"{_MEASURES.get(metric, metric)} to the nearest training image, by class",
        "head": ["class", *by_name],
        "rows": [[str(label), *[f"{value:.2f}" for value in values]] for label, values in enumerate(columns)],
        "numeric": list(range(1, 1 + len(by_name))),
    }


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _grids(one: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Strips of images under each other, one class in each column."""
    return [(f"{one['target']}: {title}", _inside(strips)) for title, strips in one.get("grids", {}).items()]


def _inside(pictures: dict[str, Any]) -> list[tuple[str, str]]:
    """The pictures that the page can hold: it fetches nothing."""
    return [(name, source) for name, source in pictures.items() if str(source).startswith(_INSIDE)]
