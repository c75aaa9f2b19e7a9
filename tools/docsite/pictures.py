"""Pictures of methods, drawn like a score: what is read on the lines, the stages below, noise where it is added."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

PARTS = ("edges", "features", "labels")
LEFT, WIDTH, GAP, LINE, TOP, BOX = 84, 132, 14, 30, 26, 66


@dataclass(frozen=True)
class Column:
    """One stage: its name, its mechanism, how often, what it reads, and whether noise is added."""

    name: str
    mechanism: str
    count: int
    reads: frozenset[str]
    noisy: bool


def drawn(title: str, columns: list[Column], private: set[str]) -> str:
    """The picture as SVG that takes its colors from the page (docs/stylesheets/site.css)."""
    shown = _gathered(columns)
    box_top = TOP + LINE * len(PARTS) + 8
    width, height = LEFT + (WIDTH + GAP) * (len(shown) + 1), box_top + BOX + 14
    parts = [_line(number, part, part in private, width) for number, part in enumerate(PARTS)]
    for number, column in enumerate(shown):
        parts.append(_stage(column, LEFT + number * (WIDTH + GAP), box_top))
    parts.append(_result(LEFT + len(shown) * (WIDTH + GAP), box_top))
    label = escape(title)
    return (
        f'<figure class="score"><svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg><figcaption>{label}</figcaption></figure>"
    )


def _gathered(columns: list[Column]) -> list[Column]:
    """Stages in a row that differ in their number alone, as one: `network_0`, `network_1` ..."""
    gathered: list[Column] = []
    for column in columns:
        stem = column.name.rstrip("0123456789").rstrip("_-")
        last = gathered[-1] if gathered else None
        if last and (last.name, last.mechanism, last.noisy) == (stem, column.mechanism, column.noisy):
            gathered[-1] = Column(stem, last.mechanism, last.count + column.count, last.reads, last.noisy)
        else:
            gathered.append(Column(stem or column.name, column.mechanism, column.count, column.reads, column.noisy))
    return gathered


def _line(number: int, part: str, private: bool, width: int) -> str:
    y = TOP + LINE * number
    kind = "private" if private else "public"
    return (
        f'<text class="part {kind}" x="0" y="{y + 1}">{part}</text><text class="small" x="0" y="{y + 13}">{kind}</text>'
        f'<line class="{kind}" x1="{LEFT - 20}" x2="{width - WIDTH - GAP}" y1="{y}" y2="{y}"/>'
    )


def _stage(column: Column, x: int, y: int) -> str:
    middle = x + WIDTH / 2
    rows = [TOP + LINE * number for number, part in enumerate(PARTS) if part in column.reads]
    reads = "".join(f'<circle cx="{middle}" cy="{row}" r="5"/>' for row in rows)
    stem = f'<line class="stem" x1="{middle}" x2="{middle}" y1="{min(rows)}" y2="{y}"/>' if rows else ""
    times = f"{column.count} × " if column.count > 1 else ""
    kind, words = ("noisy", "+ noise, charged") if column.noisy else ("exact", "no noise: public data")
    return (
        f'{stem}{reads}<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{BOX}" rx="6"/>'
        f'<text class="name" x="{middle}" y="{y + 22}">{escape(column.name)}</text>'
        f'<text class="small middle" x="{middle}" y="{y + 39}">{times}{escape(column.mechanism)}</text>'
        f'<text class="small middle {kind}" x="{middle}" y="{y + 55}">{words}</text>'
        f'<path class="arrow" d="M{x + WIDTH + 2} {y + BOX / 2} h{GAP - 5} m-5 -4 l5 4 l-5 4"/>'
    )


def _result(x: int, y: int) -> str:
    middle = x + WIDTH / 2
    return (
        f'<rect class="result" x="{x}" y="{y}" width="{WIDTH - 2}" height="{BOX}" rx="6"/>'
        f'<text class="name" x="{middle}" y="{y + 30}">model</text>'
        f'<text class="small middle" x="{middle}" y="{y + 47}">predictions are free</text>'
    )
