"""Plots as inline SVG, drawn by hand: no library, no network, nothing that a browser has to fetch.

Colors come from the page's style sheet (classes `c0` to `c7`), so a plot follows light and dark mode. A mark with a
`data-tip` shows its values when the pointer is on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 16, 52
_BAR_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, from where to where, and on which scale."""

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    percent: bool = False

    def place(self, value: float, begin: float, end: float) -> float:
        """The position of `value` between `begin` and `end`, cut off at both."""
        clipped = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(clipped / self.low) / math.log(self.high / self.low)
        else:
            share = (clipped - self.low) / (self.high - self.low)
        return begin + share * (end - begin)

    def marks(self) -> tuple[float, ...]:
        """Where the ticks are."""
        if self.ticks:
            return self.ticks
        return _decades(self.low, self.high) if self.log else _round_steps(self.low, self.high)

    def word(self, value: float) -> str:
        """The label of a tick."""
        return f"{100 * value:g}%" if self.percent else f"{value:g}"


@dataclass(frozen=True)
class Series:
    """A named curve or set of points. `intervals` gives a low and a high for each point.

    `label` is written on the plot, at the curve's left end.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0
    dashed: bool = False
    line: bool = True
    dots: bool = False
    intervals: Sequence[tuple[float, float]] = field(default=())
    tips: Sequence[str] = field(default=())
    label: str = ""


@dataclass(frozen=True)
class Bar:
    """One horizontal bar, with an optional mark (a limit) on the same scale."""

    name: str
    value: float
    tip: str = ""
    color: int = 0
    mark: float | None = None
    mark_name: str = ""


def line_chart(
    x: Axis, y: Axis, series: Sequence[Series], *, title: str, width: int = 760, height: int = 400
) -> Markup:
    """A figure with curves and points, and a legend whose entries switch a series on and off."""
    frame = _Frame(x, y, width, height)
    drawn = "".join(
        f'<g class="series c{one.color % 8}" data-series="{number}">{frame.series(one)}</g>'
        for number, one in enumerate(series)
    )
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{frame.grid()}{drawn}</svg>'
    return Markup(f'<figure class="plot"><figcaption>{escape(title)}</figcaption>{svg}{_legend(series)}</figure>')


def bar_chart(bars: Sequence[Bar], *, title: str, label: str, width: int = 580) -> Markup:
    """A figure with horizontal bars from zero."""
    row, left, right = 58, 12, 130
    height = row * len(bars) + 48
    highest = max([*(bar.value for bar in bars), *(bar.mark or 0.0 for bar in bars)], default=0.0) or 1.0
    axis = Axis(label, 0.0, highest * 1.02)
    parts = []
    bottom = row * len(bars) + 8
    for tick in axis.marks():
        place = axis.place(tick, left, width - right)
        parts.append(f'<line class="grid" x1="{place:.1f}" y1="4" x2="{place:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{axis.word(tick)}</text>'
        )
    middle = (left + width - right) / 2
    parts.append(f'<text class="axis" x="{middle:.1f}" y="{bottom + 34}" text-anchor="middle">{escape(label)}</text>')
    parts += [_bar(bar, axis, 8 + row * number, left, width - right) for number, bar in enumerate(bars)]
    opening = f'<svg class="bars" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    svg = f"{opening}{''.join(parts)}</svg>"
    return Markup(f'<figure class="plot"><figcaption>{escape(title)}</figcaption>{svg}</figure>')


def _bar(bar: Bar, axis: Axis, top: float, left: float, right: float) -> str:
    """A name of any length, and the bar below it."""
    end, bar_top = axis.place(bar.value, left, right), top + 20
    mark = ""
    beside = end
    if bar.mark is not None:
        place = axis.place(bar.mark, left, right)
        beside = max(beside, place)
        mark = (
            f'<line class="mark" x1="{place:.1f}" y1="{bar_top - 3:.1f}" x2="{place:.1f}" y2="{bar_top + 25:.1f}" '
            f'data-tip="{escape(bar.mark_name)} {bar.mark:.4g}"/>'
        )
    return (
        f'<g class="c{bar.color % 8}">{_text("name", left, top + 13, bar.name, "start")}'
        f'<rect class="bar" tabindex="0" x="{left}" y="{bar_top:.1f}" width="{max(end - left, 1.5):.1f}" height="22" '
        f'rx="3" data-tip="{escape(bar.tip or f"{bar.name}: {bar.value:.4g}")}"/>{mark}'
        f"{_text('value', beside + 8, bar_top + 16, _bar_words(bar), 'start')}</g>"
    )


def _bar_words(bar: Bar) -> str:
    return f"{bar.value:.3g}" if bar.mark is None else f"{bar.value:.3g} of {bar.mark:.3g}"


class _Frame:
    """The drawing area between the axes."""

    def __init__(self, x: Axis, y: Axis, width: int, height: int) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height
        self.labels: list[float] = []

    def point(self, x: float, y: float) -> tuple[float, float]:
        across = self.x.place(x, _LEFT, self.width - _RIGHT)
        return across, self.y.place(y, self.height - _BOTTOM, _TOP)

    def grid(self) -> str:
        bottom, right, parts = self.height - _BOTTOM, self.width - _RIGHT, []
        for tick in self.x.marks():
            across, _ = self.point(tick, self.y.low)
            parts.append(f'<line class="grid" x1="{across:.1f}" y1="{_TOP}" x2="{across:.1f}" y2="{bottom}"/>')
            parts.append(_text("tick", across, bottom + 18, self.x.word(tick), "middle"))
        for tick in self.y.marks():
            _, down = self.point(self.x.low, tick)
            parts.append(f'<line class="grid" x1="{_LEFT}" y1="{down:.1f}" x2="{right}" y2="{down:.1f}"/>')
            parts.append(_text("tick", _LEFT - 8, down + 4, self.y.word(tick), "end"))
        parts.append(_text("axis", (_LEFT + right) / 2, self.height - 12, self.x.label, "middle"))
        turned = f'transform="rotate(-90)" x="{-(_TOP + bottom) / 2:.1f}" y="16" text-anchor="middle"'
        parts.append(f'<text class="axis" {turned}>{escape(self.y.label)}</text>')
        return "".join(parts)

    def label(self, words: str, across: float, down: float) -> str:
        """Words above a line; below it where other words are already."""
        place = next((y for y in (down - 7, down + 17) if all(abs(y - other) > 15 for other in self.labels)), down - 7)
        self.labels.append(place)
        return _text("mine", across + 6, place, words, "start")

    def series(self, one: Series) -> str:
        points = [self.point(x, y) for x, y in zip(one.x, one.y, strict=True)]
        parts = []
        if one.line and len(points) > 1:
            path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
            kind = "curve dashed" if one.dashed else "curve"
            parts.append(f'<polyline class="{kind}" points="{path}"/>')
        if one.label:
            parts.append(self.label(one.label, *points[0]))
        for value, (low, high) in zip(one.x, one.intervals):
            across, lower = self.point(value, low)
            _, upper = self.point(value, high)
            parts.append(
                f'<line class="whisker" x1="{across:.1f}" y1="{lower:.1f}" x2="{across:.1f}" y2="{upper:.1f}"/>'
            )
        for number, (across, down) in enumerate(points):
            tip = (
                one.tips[number] if number < len(one.tips) else f"{one.name}: {one.x[number]:.4g}, {one.y[number]:.4g}"
            )
            if one.dots:
                parts.append(f'<circle class="dot" tabindex="0" {_circle(across, down, 5.5, tip)}/>')
            elif one.tips:
                parts.append(f'<circle class="hot" {_circle(across, down, 7, tip)}/>')
        return "".join(parts)


def _circle(across: float, down: float, radius: float, tip: str) -> str:
    return f'cx="{across:.1f}" cy="{down:.1f}" r="{radius:g}" data-tip="{escape(tip)}"'


def _text(kind: str, x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" class="c{one.color % 8}" data-toggle="{number}" aria-pressed="true">'
        f'<span class="swatch{" dashed" if one.dashed else ""}"></span>{escape(one.name)}</button>'
        for number, one in enumerate(series)
    )
    return f'<div class="legend">{buttons}</div>'


def _decades(low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return tuple(10.0**power for power in range(first, last + 1))


def _round_steps(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / _BAR_TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(first, int(high / step + 1e-9) + 1))
