"""Accuracy: against epsilon beside other runs, and class by class. All of it is an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hushgraph.ledger.certificate import Randomness
from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import pill, section
from hushgraph.report.svg import Axis, Series, line_chart

EVALUATION = "Not private: evaluation. These figures were computed on the data itself, outside the guarantee."
_COLORS = 8
_MOST_CLASSES = 40


@section(
    "accuracy",
    "Accuracy",
    after="claim",
    when=lambda context: context.what == "model",
    template="""
<p class="lead">{{ evaluation }}</p>
{{ chart }}
{{ ui.table(head, rows, numeric=[2, 3, 4, 5]) }}
{{ ui.note(other) }}
{% if classes %}
<h3>Test accuracy by class</h3>
{{ ui.note(classes.words) }}
{{ ui.table(classes.head, classes.rows, numeric=classes.numeric) }}
{{ ui.note(classes.averages) }}
{% endif %}
""",
)
def accuracy(context: RunContext) -> dict[str, Any]:
    """Accuracy of this run, against epsilon when there are others to compare with, and of every class."""
    everyone = [context, *context.others]
    ordered = sorted(everyone, key=lambda one: (one.label, one.unit.name, one.epsilon))
    return {
        "evaluation": EVALUATION,
        "chart": _chart(context),
        "head": ["run", "unit", "epsilon", "train", "validation", "test"],
        "rows": [_row(one, one is context) for one in ordered],
        "other": _other_measure(context),
        "classes": _classes(context) if context.by_class else None,
    }


def _other_measure(context: RunContext) -> str:
    """The figure of a model that predicts links; what stands in the table where it is not accuracy."""
    if context.measure != "accuracy":
        return f"A node may have several classes: the figures are {context.measure}, F1 over all decisions together."
    auc = context.metrics.get("test_auc")
    return "" if auc is None else f"Area under the ROC curve on test links: {float(auc):.1f}%."


def _row(context: RunContext, this: bool) -> list[str | Markup]:
    name = Markup("{} {}").format(context.label, pill("this run", "plain")) if this else context.label
    figures = [_percent(context.accuracy(split)) for split in ("train", "val", "test")]
    seeded = " (seeded)" if context.certificate.randomness is Randomness.SEEDED else ""
    return [name, context.unit.name, words.number(context.epsilon) + seeded, *figures]


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f}%"


# Against epsilon


def _chart(context: RunContext) -> str:
    measured = [one for one in (context, *context.others) if one.accuracy() is not None]
    on_curves = [one for one in measured if one.has_noise and one.epsilon > 0.0]
    references = [one for one in measured if one not in on_curves]
    return _plot(context, on_curves, references) if on_curves and len(measured) > 1 else ""


def _plot(this: RunContext, on_curves: Sequence[RunContext], references: Sequence[RunContext]) -> str:
    epsilons = [one.epsilon for one in on_curves]
    low, high = min(epsilons) / 1.6, max(epsilons) * 1.6
    series = [*_curves(on_curves)]
    series += [_reference(one, low, high, number) for number, one in enumerate(references, start=len(series))]
    levels = [y for one in series for y in one.y]
    bottom = max(0.0, 10 * math.floor((min(levels) - 3) / 10))
    top = min(100.0, 10 * math.ceil((max(levels) + 3) / 10))
    ticks = tuple(sorted({float(f"{value:.2g}") for value in epsilons}))
    x = Axis("epsilon (logarithmic)", low, high, log=True, ticks=ticks)
    mine = f" This run: epsilon {this.epsilon:.3g}, {this.accuracy():.1f}%." if this in on_curves else ""
    name = f"Test {this.measure} against epsilon.{mine}"
    return line_chart(x, Axis(f"test {this.measure}, %", bottom, top), series, title=name)


def _curves(runs: Sequence[RunContext]) -> list[Series]:
    """One curve for every method and unit."""
    groups: dict[tuple[str, str], list[RunContext]] = {}
    for one in runs:
        groups.setdefault((one.label, one.unit.name), []).append(one)
    return [
        _curve(f"{method}, {unit}", sorted(group, key=lambda one: one.epsilon), number)
        for number, ((method, unit), group) in enumerate(groups.items())
    ]


def _curve(name: str, runs: Sequence[RunContext], color: int) -> Series:
    figures = [one.accuracy() or 0.0 for one in runs]
    tips = [
        f"{name}\nepsilon {one.epsilon:.4g} at delta {one.delta:g}\ntest {value:.2f}%"
        for one, value in zip(runs, figures)
    ]
    return Series(name, [one.epsilon for one in runs], figures, color % _COLORS, dots=True, tips=tips)


def _reference(context: RunContext, low: float, high: float, color: int) -> Series:
    """A level to compare with: a run without privacy, or one that never reads what is protected."""
    level = context.accuracy() or 0.0
    free = "reads nothing protected" if context.certificate.is_free else "epsilon 0"
    why = "no privacy" if math.isinf(context.epsilon) else free
    name = f"{context.label}, {why}"
    tips = [f"{name}\ntest {level:.2f}%"] * 2
    return Series(name, [low, high], [level, level], color % _COLORS, dashed=True, tips=tips, label=name)


# By class


def _classes(context: RunContext) -> dict[str, Any]:
    """Accuracy of every class, most frequent first, beside that of comparable runs."""
    rows = context.by_class
    beside = [one for one in context.others if _tested(one) == _tested(context)][:4]
    left_out = max(0, len(rows) - _MOST_CLASSES)
    about = "Most frequent class first. Private training loses most on rare classes, which an average hides."
    return {
        "words": about + (f" The {left_out} rarest classes are in metrics.json." if left_out else ""),
        "head": ["class", "train nodes", "test nodes", "this run", *[_short_name(one) for one in beside]],
        "rows": [_class_row(context, row, beside) for row in rows[:_MOST_CLASSES]],
        "numeric": list(range(1, 4 + len(beside))),
        "averages": _averages(context),
    }


def _tested(context: RunContext) -> dict[int, int]:
    return {row["class"]: row["tested"] for row in context.by_class}


def _short_name(context: RunContext) -> str:
    if math.isinf(context.epsilon):
        return f"{context.label}, no privacy"
    return f"{context.label}, ε {context.epsilon:.3g}"


def _class_row(context: RunContext, row: dict[str, Any], beside: Sequence[RunContext]) -> list[str]:
    number, names = row["class"], context.class_names
    theirs = [next(one["accuracy"] for one in other.by_class if one["class"] == number) for other in beside]
    cells = [_percent(value) for value in (row["accuracy"], *theirs)]
    name = names[number] if number < len(names) else f"class {number}"
    return [name, f"{row['train']:,}", f"{row['tested']:,}", *cells]


def _averages(context: RunContext) -> str:
    """Means over classes: all, and the third with the fewest train nodes."""
    rows = context.by_class
    rare = [row["accuracy"] for row in rows[-max(1, len(rows) // 3) :] if row["accuracy"] is not None]
    parts = []
    if context.metrics.get("test_balanced_accuracy") is not None:
        parts.append(f"mean over classes {float(context.metrics['test_balanced_accuracy']):.1f}%")
    if rare:
        parts.append(f"mean over the rarest third {sum(rare) / len(rare):.1f}%")
    return f"This run: {', '.join(parts)}." if parts else ""
