"""What plots show, as numbers: one panel for each dataset, curves with intervals, or a grid of means."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError
from hushgraph.study.export import word
from hushgraph.study.stats import Summary, summarize
from hushgraph.study.table import chosen_rows, varying
from hushgraph.study.views import View

if TYPE_CHECKING:
    from hushgraph.study.results import Results

PANELS = "dataset"
NAMES = ("method", "dataset", "unit", "experiment", "part")
"""Axes whose values are names that need no further words."""


@dataclass(frozen=True)
class Curve:
    """Means with intervals along an axis. A value at infinity (no protection) is a level that goes all across."""

    name: str
    x: tuple[float, ...]
    y: tuple[Summary, ...]
    level: Summary | None = None


@dataclass(frozen=True)
class Panel:
    """The curves of one dataset."""

    title: str
    curves: tuple[Curve, ...]

    @property
    def positions(self) -> list[float]:
        """Every place along the axis that a curve has a value at."""
        return sorted({x for curve in self.curves for x in curve.x})


@dataclass(frozen=True)
class Heat:
    """Means by two axes; None where nothing was run. A value at infinity on both (no protection) is the `level`."""

    title: str
    x: tuple[Any, ...]
    y: tuple[Any, ...]
    means: tuple[tuple[float | None, ...], ...]
    level: float | None = None

    @property
    def heading(self) -> str:
        """The title, with the figure without protection."""
        words = [self.title] if self.title else []
        return ", ".join([*words, *([] if self.level is None else [f"without protection {self.level:.3g}"])])


def panels(results: Results, view: View) -> list[Panel]:
    """The curves of a view; axes that vary and are not named become part of a curve's name."""
    rows = chosen_rows(results, view)
    apart = [axis for axis in varying(rows, view, (view.x, view.series, PANELS)) if axis != PANELS]
    found: dict[str, dict[str, dict[float, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        value, x = row.metrics.get(view.value), row.cell.axis(view.x)
        if value is None or x is None:
            continue
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise InputError(f"x: expected an axis of numbers; '{view.x}' has {x!r}. Use a table or a heat map")
        first = word(row.cell.axis(view.series))
        named = [first if view.series in NAMES else f"{view.series} {first}"]
        words = [*named, *(f"{axis} {word(row.cell.axis(axis))}" for axis in apart)]
        found[str(row.cell.axis(PANELS) or "")][", ".join(words)][float(x)].append(value)
    return [
        Panel(title, tuple(_curve(name, points) for name, points in curves.items())) for title, curves in found.items()
    ]


def _curve(name: str, points: dict[float, list[float]]) -> Curve:
    summaries = {x: found for x in sorted(points) if (found := summarize(points[x])) is not None}
    finite = {x: one for x, one in summaries.items() if math.isfinite(x)}
    return Curve(name, tuple(finite), tuple(finite.values()), summaries.get(math.inf))


def heats(results: Results, view: View) -> list[Heat]:
    """The grids of a view: one for each combination of the other axes that vary."""
    from hushgraph.study.results import distinct

    rows = chosen_rows(results, view)
    apart = varying(rows, view, (view.x, view.y))
    found: dict[str, dict[tuple[Any, Any], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        value = row.metrics.get(view.value)
        if value is not None:
            title = ", ".join(f"{axis} {word(row.cell.axis(axis))}" for axis in apart)
            found[title][row.cell.axis(view.x), row.cell.axis(view.y)].append(value)
    made = []
    for title, values in found.items():
        open_ones = [place for place in values if all(_is_infinite(one) for one in place)]
        level = _mean([value for place in open_ones for value in values.pop(place)])
        across, up = distinct(x for x, _ in values), distinct(y for _, y in values)
        means = tuple(tuple(_mean(values.get((x, y))) for x in across) for y in up)
        made.append(Heat(title, tuple(across), tuple(up), means, level))
    return made


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None
