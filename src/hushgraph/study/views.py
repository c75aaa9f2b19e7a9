"""What to show of a study: tables, plots, and the choice of the best setting, as the file asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hushgraph.study.cell import Cell
from hushgraph.study.reader import Reader

Kind = Literal["table", "lines", "heat"]
MEASURE = "measure"
"""What a table with several `values` has in place of an axis for its columns."""


@dataclass(frozen=True)
class Published:
    """A figure of a publication and where it belongs: the values of axes, or of `measure`."""

    place: dict[str, Any]
    value: float
    half_width: float | None = None


@dataclass(frozen=True)
class View:
    """One table or plot.

    A table has `rows` and one column for each value of `columns`, or for each measure in `values`; `baseline` is the
    column that others are compared with, in pairs; `published` are figures to stand beside ours. Lines go along `x`,
    one for each value of `series`. A heat map has `x` and `y`. `where` keeps the cells whose axes have these values.
    """

    name: str
    kind: Kind
    value: str = "test_accuracy"
    values: tuple[str, ...] = ()
    rows: tuple[str, ...] = ("dataset", "epsilon")
    columns: str = "method"
    baseline: Any = None
    x: str = "epsilon"
    y: str = ""
    series: str = "method"
    log: bool | None = None
    where: dict[str, Any] = field(default_factory=dict)
    published: tuple[Published, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that it names."""
        columns = () if self.values else (self.columns,)
        placed = [axis for one in self.published for axis in one.place if axis != MEASURE]
        used = {"table": (*self.rows, *columns, *placed), "lines": (self.x, self.series), "heat": (self.x, self.y)}
        return tuple(axis for axis in (*used[self.kind], *self.where) if axis)


@dataclass(frozen=True)
class Choice:
    """The best setting is chosen: by which measure, over which axes, and what makes that allowed.

    `scores` "public" declares that the measure is computed from public data alone.
    """

    by: str
    over: tuple[str, ...]
    largest: bool = True
    scores: Literal["private", "public"] = "private"

    def concerns(self, cell: Cell) -> bool:
        """Whether a cell is one of those that are chosen among."""
        return any(cell.axis(axis) is not None for axis in self.over)


def read_choice(top: Reader) -> Choice | None:
    """The choice of a study file."""
    if "choose" not in top:
        return None
    at = Reader.of(top.values["choose"], "choose", top.problems)
    at.only(("by", "over", "largest", "scores"))
    over = tuple(str(one) for one in at.listed("over"))
    if not over:
        at.problem("over", "the axes to choose over")
    scores = at.among("scores", ("private", "public"), "private")
    largest = at.values.get("largest", True)
    if not isinstance(largest, bool):
        at.problem("largest", "true or false")
    return Choice(
        at.text("by", "val_accuracy"), over, largest is not False, "public" if scores == "public" else "private"
    )


def read_views(top: Reader) -> tuple[View, ...]:
    """The tables and plots of a study file."""
    found = [_table(Reader.of(one, f"tables[{n}]", top.problems), n) for n, one in enumerate(top.listed("tables"))]
    found += [_plot(Reader.of(one, f"plots[{n}]", top.problems), n) for n, one in enumerate(top.listed("plots"))]
    return tuple(found)


def _table(at: Reader, number: int) -> View:
    at.only(("name", "value", "values", "rows", "columns", "baseline", "published", "where"))
    values = tuple(str(one) for one in at.listed("values"))
    places = [Reader.of(one, f"{at.at('published')}[{n}]", at.problems) for n, one in enumerate(at.listed("published"))]
    return View(
        name=at.text("name", f"table {number + 1}"),
        kind="table",
        value=values[0] if values else at.text("value", "test_accuracy"),
        values=values,
        rows=tuple(str(one) for one in at.listed("rows")) or ("dataset", "epsilon"),
        columns=at.text("columns", "method"),
        baseline=_plain(at, "baseline"),
        where=_where(at),
        published=tuple(_published(place) for place in places),
    )


def _published(at: Reader) -> Published:
    place = {key: value for key, value in at.values.items() if key not in ("is", "within")}
    found, within = at.numbers("is"), at.numbers("within", above=0.0)
    if len(found) != 1:
        at.problem("is", "the published figure, one number")
    return Published(place, found[0] if found else 0.0, within[0] if within else None)


def _plot(at: Reader, number: int) -> View:
    at.only(("name", "kind", "value", "x", "y", "series", "log", "where"))
    kind = at.among("kind", ("lines", "heat"), "lines")
    if kind == "heat" and "y" not in at:
        at.problem("y", "the axis that goes up, for a heat map")
    return View(
        name=at.text("name", f"plot {number + 1}"),
        kind="heat" if kind == "heat" else "lines",
        value=at.text("value", "test_accuracy"),
        x=at.text("x", "epsilon"),
        y=at.text("y"),
        series=at.text("series", "method"),
        log=_flag(at, "log"),
        where=_where(at),
    )


def _plain(at: Reader, key: str) -> Any:
    """A word or a number, if there is one."""
    if isinstance(value := at.values.get(key), str | int | float | None):
        return value
    at.problem(key, "a word or a number")
    return None


def _flag(at: Reader, key: str) -> bool | None:
    if isinstance(value := at.values.get(key), bool | None):
        return value
    at.problem(key, "true or false")
    return None


def _where(at: Reader) -> dict[str, Any]:
    return Reader.of(at.values.get("where") or {}, at.at("where"), at.problems).values
