"""The section on accuracy: against epsilon beside other runs, and class by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hushgraph.report import html
from hushgraph.report.record import RunRecord
from hushgraph.report.svg import Axis, Series, line_chart

EVALUATION = "Not private: evaluation. These figures were computed on the data itself, outside the guarantee."
_COLORS = 8
_MOST_CLASSES = 40


def accuracy(record: RunRecord, others: Sequence[RunRecord]) -> str:
    """Accuracy of this run, against epsilon when there are others to compare with, and of every class."""
    everyone = [record, *others]
    ordered = sorted(everyone, key=lambda one: (one.method, one.unit.name, one.epsilon))
    head = ["run", "unit", "epsilon", "train", "validation", "test"]
    shown = [html.table(head, [_row(one, one is record) for one in ordered], numeric=(2, 3, 4, 5))]
    on_curves = [one for one in everyone if _has_epsilon(one) and one.accuracy() is not None]
    references = [one for one in everyone if not _has_epsilon(one) and one.accuracy() is not None]
    if on_curves and len(on_curves) + len(references) > 1:
        shown.insert(0, _plot(record, on_curves, references))
    return html.section("accuracy", "Accuracy against epsilon", *shown, _classes(record, others), lead=EVALUATION)


def _has_epsilon(record: RunRecord) -> bool:
    """Whether the run has a place on an axis of epsilon: neither free of charge nor without a guarantee."""
    return math.isfinite(record.epsilon) and record.epsilon > 0


def _row(record: RunRecord, this: bool) -> list[str]:
    figures = [record.accuracy(split) for split in ("train", "val", "test")]
    name = html.text(record.method) + (" " + html.pill("this run", "plain") if this else "")
    return [name, html.text(record.unit.name), html.number(record.epsilon), *[_percent(value) for value in figures]]


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f}%"


def _plot(this: RunRecord, on_curves: Sequence[RunRecord], references: Sequence[RunRecord]) -> str:
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
    return line_chart(x, Axis("test accuracy, %", bottom, top), series, title=f"Test accuracy against epsilon.{mine}")


def _curves(runs: Sequence[RunRecord]) -> list[Series]:
    """One curve for every method and unit."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for one in runs:
        groups.setdefault((one.method, one.unit.name), []).append(one)
    return [
        _curve(f"{method}, {unit}", sorted(group, key=lambda one: one.epsilon), number)
        for number, ((method, unit), group) in enumerate(groups.items())
    ]


def _curve(name: str, runs: Sequence[RunRecord], color: int) -> Series:
    figures = [one.accuracy() or 0.0 for one in runs]
    tips = [
        f"{name}\nepsilon {one.epsilon:.4g} at delta {one.delta:g}\ntest {value:.2f}%"
        for one, value in zip(runs, figures)
    ]
    return Series(name, [one.epsilon for one in runs], figures, color % _COLORS, dots=True, tips=tips)


def _reference(record: RunRecord, low: float, high: float, color: int) -> Series:
    """A level to compare with: a run without privacy, or one that never reads what is protected."""
    level = record.accuracy() or 0.0
    why = "no privacy" if math.isinf(record.epsilon) else "reads nothing protected"
    name = f"{record.method}, {why}"
    tips = [f"{name}\ntest {level:.2f}%"] * 2
    return Series(name, [low, high], [level, level], color % _COLORS, dashed=True, tips=tips, label=name)


def _classes(record: RunRecord, others: Sequence[RunRecord]) -> str:
    """Accuracy of every class, most frequent first, beside that of comparable runs; nothing where it was not kept."""
    rows: list[dict[str, Any]] = record.metrics.get("test_by_class") or []
    if not rows:
        return ""
    beside = [one for one in others if _same_classes(one, rows)][:4]
    table = html.table(
        ["class", "train nodes", "test nodes", "this run", *[_short_name(one) for one in beside]],
        [_class_row(row, beside) for row in rows[:_MOST_CLASSES]],
        numeric=range(1, 4 + len(beside)),
    )
    left_out = len(rows) - _MOST_CLASSES
    words = "Most frequent class first. Private training loses most on rare classes, which an average hides."
    if left_out > 0:
        words += f" The {left_out} rarest classes are in metrics.json."
    return f"<h3>Test accuracy by class</h3>{html.paragraph(words, 'note')}{table}{_averages(record, rows)}"


def _same_classes(record: RunRecord, rows: Sequence[dict[str, Any]]) -> bool:
    theirs = record.metrics.get("test_by_class") or []
    return {row["class"]: row["tested"] for row in theirs} == {row["class"]: row["tested"] for row in rows}


def _short_name(record: RunRecord) -> str:
    if math.isinf(record.epsilon):
        return f"{record.method}, no privacy"
    return f"{record.method}, ε {record.epsilon:.3g}"


def _class_row(row: dict[str, Any], beside: Sequence[RunRecord]) -> list[str]:
    name = row.get("name", f"class {row['class']}")
    theirs = [
        next(one["accuracy"] for one in record.metrics["test_by_class"] if one["class"] == row["class"])
        for record in beside
    ]
    cells = [_percent(value) for value in (row["accuracy"], *theirs)]
    return [html.text(name), f"{row['train']:,}", f"{row['tested']:,}", *cells]


def _averages(record: RunRecord, rows: Sequence[dict[str, Any]]) -> str:
    """Means over classes: all, and the third with the fewest train nodes."""
    rare = [row["accuracy"] for row in rows[-max(1, len(rows) // 3) :] if row["accuracy"] is not None]
    parts = []
    if record.metrics.get("test_balanced_accuracy") is not None:
        parts.append(f"mean over classes {float(record.metrics['test_balanced_accuracy']):.1f}%")
    if rare:
        parts.append(f"mean over the rarest third {sum(rare) / len(rare):.1f}%")
    return html.paragraph(("This run: " + ", ".join(parts) + ".") if parts else "", "note")
