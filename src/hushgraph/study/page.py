"""One HTML file about a study that opens offline: tables, plots, what it costs, and every run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from hushgraph.files.writing import write_whole
from hushgraph.report.page import fill_page, render_text
from hushgraph.report.svg import Axis, Series, line_chart
from hushgraph.study.cell import code_version
from hushgraph.study.choose import choose, price_words
from hushgraph.study.cost import Cost, cost_of
from hushgraph.study.curves import Heat, Panel, heats, panels
from hushgraph.study.export import caption, cells_of, shown, word
from hushgraph.study.plots import is_log
from hushgraph.study.store import State
from hushgraph.study.views import View
from hushgraph.text import rounded_up

if TYPE_CHECKING:
    from hushgraph.study.results import Results

_TABLE = "{{ ui.table(head, rows, numeric) }}"
_LEVEL = "no privacy"
_MOST_METRICS = 8
"""Columns in the list of runs; an export has all."""
FOOTER = (
    "This file is complete in itself and fetches nothing. Figures on labels are evaluations, outside any guarantee; "
    "what all runs together cost is what counts for the data."
)


def write_study_page(results: Results, out: str | os.PathLike[str], *, cost: Cost | None = None) -> Path:
    """Write the page of a study and return its path."""
    priced = cost if cost is not None else cost_of(results.study)
    views = results.study.views or default_views(results)
    sections = [("standing", "What this is", _standing(results))]
    named: dict[str, Markup] = {}
    for view in views:  # a plot stands under the table that is called like it
        title = view.name[:1].upper() + view.name[1:]
        named[title] = named.get(title, Markup("")) + _view(results, view)
    sections += [(f"view{number}", title, body) for number, (title, body) in enumerate(named.items())]
    if results.study.choose is not None:
        sections.append(("choice", "The best settings", _choice(results, priced)))
    sections += [("cost", "What it costs", _cost(priced, results.study.privacy)), ("runs", "Runs", _runs(results))]
    lead = f"{len(results.rows)} runs, {results.study.privacy}"
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(target, fill_page(results.study.name, lead, sections, brand="hushgraph study", footer=FOOTER))


def default_views(results: Results) -> list[View]:
    """A table, and curves over epsilon where there are several."""
    known = results.metrics()
    value = "test_accuracy" if "test_accuracy" in known else (known or [""])[0]
    cells = results.study.cells
    if not value or not cells:
        return []
    columns = "method" if any(cell.method for cell in cells) else "experiment"
    made = [View(value.replace("_", " "), "table", value, rows=("dataset", "epsilon"), columns=columns)]
    if len({cell.epsilon for cell in cells}) > 1:
        made.append(View(f"{value.replace('_', ' ')} against epsilon", "lines", value, series=columns))
    return made


def _standing(results: Results) -> Markup:
    counts = results.counts
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    if results.study.privacy == "research":
        kind, text = "warn", "Research: noise was seeded, and nothing was charged to a ledger. No run here is private."
    else:
        kind, text = "plain", "Every run was charged to the ledger of its data. Figures on labels are evaluations."
    others = sum(1 for cell, one in results.by_cell if one is not None and one.code != code_version(cell.experiment))
    if others:
        words += f"; {others} of them were made by other versions of the code"
    if left := results.of_other_code:
        words += f"; {left} of the missing ones were made by other versions of the code (--any-code shows them)"
    return render_text("{{ ui.banner(text, kind) }}{{ ui.note(words) }}", text=text, kind=kind, words=words)


def _view(results: Results, view: View) -> Markup:
    if view.kind == "table":
        table = results.table(view)
        head, rows = cells_of(table)
        places = tuple(range(len(table.rows), len(head)))
        return _table(head, rows, places) + render_text("{{ ui.note(words) }}", words=caption(table))
    if view.kind == "heat":
        return Markup("").join(_heat(one, view) for one in heats(results, view))
    return Markup("").join(_panel(one, view) for one in panels(results, view) if one.positions)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int]) -> Markup:
    return render_text(_TABLE, head=list(head), rows=[list(row) for row in rows], numeric=tuple(numeric))


def _panel(panel: Panel, view: View) -> Markup:
    positions = panel.positions
    log, edge = is_log(positions, view.log), 1.12
    low, high = (positions[0] / edge, positions[-1] * edge) if log else (positions[0], positions[-1])
    if low == high:
        low, high = low - 0.5, high + 0.5
    series, values = [], []
    for number, curve in enumerate(panel.curves):
        tips = [f"{curve.name}, {view.x} {x:g}: {shown(one)}" for x, one in zip(curve.x, curve.y)]
        band = [(one.low, one.high) for one in curve.y]
        means = [one.mean for one in curve.y]
        values += [end for pair in band for end in pair]
        if curve.x:
            series.append(Series(curve.name, curve.x, means, number, dots=True, intervals=band, tips=tips))
        if curve.level is not None:
            level = curve.level.mean
            values.append(level)
            name = f"{curve.name}, {_LEVEL}" if curve.x else curve.name
            series.append(Series(name, (low, high), (level, level), number, dashed=True))
    room = 0.05 * (max(values) - min(values)) or 1.0
    across = Axis(view.x, low, high, log=log, ticks=tuple(positions))
    up = Axis(view.value.replace("_", " "), min(values) - room, max(values) + room)
    return line_chart(across, up, series, title=panel.title or view.name)


def _heat(heat: Heat, view: View) -> Markup:
    known = [mean for row in heat.means for mean in row if mean is not None]
    low, span = min(known), (max(known) - min(known)) or 1.0
    rows = [
        [word(y), *(_shaded(mean, None if mean is None else (mean - low) / span) for mean in means)]
        for y, means in zip(heat.y, heat.means)
    ]
    head = [f"{view.y} \\ {view.x}", *(word(x) for x in heat.x)]
    return Markup("<h3>{}</h3>").format(heat.heading) + _table(head, rows, range(1, len(head)))


def _shaded(mean: float | None, share: float | None) -> Markup:
    if mean is None or share is None:
        return escape("not run")
    style = f"background: color-mix(in srgb, var(--c0) {100 * share:.0f}%, transparent); padding: 2px 8px"
    return Markup('<span style="{}">{}</span>').format(style, f"{mean:.3g}")


def _choice(results: Results, cost: Cost) -> Markup:
    assert results.study.choose is not None
    rows = [
        [
            ", ".join(f"{axis} {word(value)}" for axis, value in one.place.items()),
            ", ".join(f"{axis} {word(value)}" for axis, value in one.best.items()),
            str(one.tried),
            f"{one.score:.4g}",
            shown(one.summary),
        ]
        for one in choose(results, results.study.choose)
    ]
    head = ["where", "best", "tried", results.study.choose.by, "test_accuracy there"]
    prices = [price_words(one, results.study.privacy) for one in cost.tuning]
    return _table(head, rows, (2, 3, 4)) + render_text("{{ ui.bullets(prices) }}", prices=prices)


def _cost(cost: Cost, privacy: str) -> Markup:
    together = [
        [one.dataset, one.unit, str(one.runs), rounded_up(one.epsilon), f"{one.delta:g}", str(one.open_runs)]
        for one in cost.together
    ]
    each = [
        [
            one.label,
            one.dataset,
            str(one.count),
            one.price,
            "—" if one.claimed is None else f"{one.claimed:.4g}",
        ]
        for one in cost.runs
    ]
    would = "would cost with noise that is not seeded" if privacy == "research" else "cost"
    head = ["dataset", "unit", "protected runs", "epsilon together", "delta", "runs without protection"]
    first = _table(head, together, (2, 3, 4, 5))
    words = f"What all runs on a dataset {would}, composed as one plan fixed beforehand; below, each kind of run alone."
    note = render_text("{{ ui.note(words) }}", words=words)
    columns = 5 if any(one.claimed is not None for one in cost.runs) else 4
    kinds = ["run", "dataset", "runs", "epsilon", "a paper would claim"][:columns]
    return (
        note
        + first
        + folded(f"Each kind of run ({len(each)})", _table(kinds, [row[:columns] for row in each], (2, 3, 4)))
    )


def folded(title: str, body: Markup) -> Markup:
    """What is opened by whoever wants it; paper goes without."""
    return Markup("<details><summary>{}</summary>{}</details>").format(title, body)


def _runs(results: Results) -> Markup:
    metrics = results.metrics()[:_MOST_METRICS]
    rows = [[str(row.cell), *(_figure(row.metrics.get(name)) for name in metrics)] for row in results.rows]
    found = _table(["run", *metrics], rows, range(1, len(metrics) + 1))
    found = folded(f"All {len(rows)} runs, each with its first {len(metrics)} measures", found) if rows else Markup("")
    bad = [
        [str(cell), one.state.value, one.message.strip().splitlines()[-1]]
        for cell, one in results.ended(State.REFUSED, State.FAILED)
    ]
    return found + (_table(["not done", "state", "why"], bad, ()) if bad else Markup(""))


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
