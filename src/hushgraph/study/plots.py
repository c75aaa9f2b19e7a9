"""Plots as files: curves with bands and heat maps, drawn by matplotlib (the extra `study`)."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError
from hushgraph.study.curves import Curve, Heat, Panel, heats, panels
from hushgraph.study.export import NO_EVALUATION, word
from hushgraph.study.views import View

if TYPE_CHECKING:
    from hushgraph.study.results import Results

COLORS = ("#0b6e99", "#c9510c", "#2f7d32", "#8a3ffc", "#b1206b", "#7a6a00", "#4a5568", "#008a83")
_MARKS = "osD^vPX*"
_LOG_SPAN = 5.0
"""An axis whose largest value is this many times its smallest, all above zero, is logarithmic unless said otherwise."""


def draw(results: Results, view: View, out: str | os.PathLike[str]) -> Path:
    """Draw a view to a file; its ending (png, svg, pdf) says in which form."""
    target = Path(out)
    if target.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"out: expected a file that ends in .png, .svg or .pdf; got {target}")
    drawn: Sequence[Any] = heats(results, view) if view.kind == "heat" else panels(results, view)
    if not drawn:
        raise InputError(f"plot: no run has '{view.value}' yet along '{view.x}'")
    pyplot = _pyplot()
    columns = min(3, len(drawn))
    lines = math.ceil(len(drawn) / columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.6 * columns, 3.5 * lines), squeeze=False, layout="constrained"
    )
    for place, one in zip(axes.flat, drawn):
        _heat(place, one, view) if view.kind == "heat" else _panel(place, one, view)
    for place in list(axes.flat)[len(drawn) :]:
        place.axis("off")
    _legend(figure, axes)
    _note(figure, results, view, columns)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160, metadata={"Date": None} if target.suffix == ".svg" else None)
    pyplot.close(figure)
    return target


def is_log(values: Sequence[float], wanted: bool | None) -> bool:
    """Whether an axis is logarithmic."""
    if wanted is not None or not values:
        return bool(wanted)
    return min(values) > 0.0 and max(values) / min(values) >= _LOG_SPAN


def _panel(place: Any, panel: Panel, view: View) -> None:
    positions = panel.positions
    for number, curve in enumerate(panel.curves):
        _draw_curve(place, curve, COLORS[number % 8], _MARKS[number % 8])
    if is_log(positions, view.log):
        place.set_xscale("log", base=2 if max(positions) / min(positions) <= 1024 else 10)
    place.set_xticks(positions, [f"{x:g}" for x in positions])
    place.minorticks_off()
    place.set_title(panel.title, fontsize=10)
    place.set_xlabel(view.x.replace("_", " "))
    place.set_ylabel(view.value.replace("_", " "))
    place.grid(alpha=0.3)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)


def _draw_curve(place: Any, curve: Curve, color: str, mark: str) -> None:
    means = [one.mean for one in curve.y]
    if curve.x:
        place.plot(curve.x, means, color=color, marker=mark, markersize=4.5, linewidth=1.6, label=curve.name)
        lows, highs = [one.low for one in curve.y], [one.high for one in curve.y]
        place.fill_between(curve.x, lows, highs, color=color, alpha=0.16, linewidth=0)
    if curve.level is not None:
        words = f"{curve.name}, no privacy" if curve.x else curve.name
        place.axhline(curve.level.mean, color=color, linestyle="--", linewidth=1.2, label=words)


def _heat(place: Any, heat: Heat, view: View) -> None:
    grid = [[math.nan if mean is None else mean for mean in row] for row in heat.means]
    image = place.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    low, high = image.get_clim()
    for up, row in enumerate(grid):
        for across, mean in enumerate(row):
            if not math.isnan(mean):
                dark = high > low and (mean - low) / (high - low) < 0.6
                place.text(across, up, f"{mean:.3g}", ha="center", va="center", color="w" if dark else "k", fontsize=8)
    place.set_xticks(range(len(heat.x)), [word(x) for x in heat.x])
    place.set_yticks(range(len(heat.y)), [word(y) for y in heat.y])
    place.set_xlabel(view.x.replace("_", " "))
    place.set_ylabel(view.y.replace("_", " "))
    place.set_title(heat.heading or view.value.replace("_", " "), fontsize=10)


def _legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, below them, each curve once."""
    found: dict[str, Any] = {}
    for place in axes.flat:
        for handle, name in zip(*place.get_legend_handles_labels()):
            found.setdefault(name, handle)
    if found:
        columns = min(2 * axes.shape[1], len(found))
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )


def _note(figure: Any, results: Results, view: View, columns: int) -> None:
    from hushgraph.methods.evaluation import EVALUATION

    what = "means over seeds and splits" if view.kind == "heat" else "means and 95% intervals (Student's t)"
    mark = "" if view.value in NO_EVALUATION else f"; {EVALUATION}"
    words = f"{results.study.name}, {view.value.replace('_', ' ')}: {what}{mark}"
    if results.study.privacy == "research":
        words += "; research: seeded noise"
    wide = textwrap.fill(words, 62 * columns)
    figure.suptitle(wide, fontsize=7.5, color="#56616d", x=0.01, ha="left")


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("plots need matplotlib; install it: pip install 'hushgraph[study]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hushgraph"
    from matplotlib import pyplot

    return pyplot
