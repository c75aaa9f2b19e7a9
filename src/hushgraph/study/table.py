"""Tables: one row for each combination of some axes, one column for each value of another, means over what is left.

What is left are repetitions (seeds, splits). An axis that varies and is in neither rows nor columns would be averaged
over in silence, so it is added to the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError, did_you_mean
from hushgraph.study.cell import REPEATS, Cell
from hushgraph.study.stats import Paired, Summary, holm, paired, summarize
from hushgraph.study.store import State
from hushgraph.study.views import MEASURE, Published, View

if TYPE_CHECKING:
    from hushgraph.study.results import Results, Row

Values = dict[tuple[Any, ...], float]
"""Values by repetition."""


@dataclass(frozen=True)
class Entry:
    """One entry of a table: the summary of its values and, where there is a baseline, the comparison with it."""

    summary: Summary
    paired: Paired | None = None
    p: float | None = None
    """The t-test's p-value, corrected after Holm for all comparisons of the table."""


@dataclass(frozen=True)
class Table:
    """`entries` by the values of the row axes and of the column; what was not run, or was `refused`, is not there."""

    name: str
    value: str
    rows: tuple[str, ...]
    columns: str
    baseline: Any
    row_keys: tuple[tuple[Any, ...], ...]
    column_keys: tuple[Any, ...]
    entries: dict[tuple[tuple[Any, ...], Any], Entry]
    privacy: str
    refused: frozenset[tuple[tuple[Any, ...], Any]] = frozenset()
    published: dict[tuple[tuple[Any, ...], Any], Published] = field(default_factory=dict)

    def __getitem__(self, place: tuple[tuple[Any, ...], Any]) -> Entry | None:
        return self.entries.get(place)


def make_table(results: Results, view: View) -> Table:
    """The table that a view asks for."""
    from hushgraph.study.results import distinct

    rows, named = chosen_rows(results, view), view.rows if view.values else (*view.rows, view.columns)
    axes = (*view.rows, *varying(rows, view, named))
    grouped: dict[tuple[tuple[Any, ...], Any], Values] = defaultdict(dict)
    for row in rows:
        for measure in view.values or (view.value,):
            value = row.metrics.get(measure)
            if value is not None:
                column = measure if view.values else row.cell.axis(view.columns)
                place = (_key(row.cell, axes), column)
                grouped[place][_key(row.cell, REPEATS)] = value
    beside = MEASURE if view.values else view.columns
    promised = _promised(view, axes, beside)
    columns = list(view.values) or distinct([*(column for _, column in grouped), *(column for _, column in promised)])
    baseline = _baseline(view, columns)
    keys = tuple(_ordered(dict.fromkeys(key for key, _ in (*grouped, *promised))))
    return Table(
        view.name,
        ", ".join(view.values) or view.value,
        axes,
        beside,
        baseline,
        keys,
        tuple(columns),
        _entries(grouped, baseline),
        results.study.privacy,
        _refused(results, view, axes),
        _published(view, axes, beside, [(key, column) for key in keys for column in columns]),
    )


def _promised(view: View, axes: Sequence[str], beside: str) -> list[tuple[tuple[Any, ...], Any]]:
    """Where a published figure says its whole place: shown also where nothing of ours was run."""
    return [
        (tuple(one.place[axis] for axis in axes), one.place[beside])
        for one in view.published
        if all(axis in one.place for axis in (*axes, beside))
    ]


def _published(
    view: View, axes: Sequence[str], beside: str, places: Sequence[tuple[tuple[Any, ...], Any]]
) -> dict[tuple[tuple[Any, ...], Any], Published]:
    """The published figure of each place that has one."""
    found = {}
    for key, column in places:
        here = {**dict(zip(axes, key)), beside: column}
        for one in view.published:
            if all(axis in here and here[axis] == value for axis, value in one.place.items()):
                found[key, column] = one
    return found


def _key(cell: Cell, axes: Sequence[str]) -> tuple[Any, ...]:
    return tuple(cell.axis(axis) for axis in axes)


def _refused(results: Results, view: View, axes: Sequence[str]) -> frozenset[tuple[tuple[Any, ...], Any]]:
    """Where in the table the library refused a run."""
    from hushgraph.study.results import matches

    cells = [cell for cell, _ in results.ended(State.REFUSED) if matches(cell, view.where)]
    measures = view.values or (None,)
    return frozenset((_key(cell, axes), one or cell.axis(view.columns)) for cell in cells for one in measures)


def chosen_rows(results: Results, view: View) -> list[Row]:
    """The rows that a view is about; an unknown measure or axis is an error."""
    axes = {axis for cell in results.study.cells for axis in cell.axes}
    InputError.collect(
        f"axis: no '{axis}' in this study; {did_you_mean(axis, axes)}" for axis in view.axes if axis not in axes
    )
    rows = results.where(view.where)
    known = list(dict.fromkeys(name for row in rows for name in row.metrics))
    unknown = [one for one in (view.values or (view.value,)) if known and one not in known]
    InputError.collect(f"value: no run has '{one}'; {did_you_mean(one, known)}" for one in unknown)
    return rows


def varying(rows: Sequence[Row], view: View, named: Sequence[str]) -> list[str]:
    """The axes that would be averaged over although they are no repetitions.

    An axis that a named one decides (a setting that differs from method to method) is not one of them.
    """
    axes = dict.fromkeys(axis for row in rows for axis in row.cell.axes if axis not in (*named, *REPEATS))
    found: list[str] = []
    for axis in axes:
        places: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
        for row in rows:
            if row.metrics.get(view.value) is not None:
                place = tuple(row.cell.axis(one) for one in (*named, *found, *REPEATS))
                places[place].add(row.cell.axis(axis))
        if any(len(values) > 1 for values in places.values()):
            found.append(axis)
    return found


def _baseline(view: View, columns: Sequence[Any]) -> Any:
    if view.baseline is None or not columns:
        return None
    for column in columns:
        if column == view.baseline or str(column) == str(view.baseline):
            return column
    raise InputError(f"baseline: no column '{view.baseline}'; {did_you_mean(str(view.baseline), map(str, columns))}")


def _ordered(keys: Any) -> list[tuple[Any, ...]]:
    """Rows in the order of the study, but numbers ascending within equal other values."""
    listed = list(keys)
    places: list[dict[Any, int]] = []
    for axis in range(len(listed[0]) if listed else 0):
        from hushgraph.study.results import distinct

        places.append({value: place for place, value in enumerate(distinct(key[axis] for key in listed))})
    return sorted(listed, key=lambda key: [places[axis][value] for axis, value in enumerate(key)])


def _entries(grouped: dict[tuple[tuple[Any, ...], Any], Values], baseline: Any) -> dict[Any, Entry]:
    found: dict[Any, Entry] = {}
    for (key, column), values in grouped.items():
        summary = summarize(list(values.values()))
        assert summary is not None
        theirs = grouped.get((key, baseline), {}) if baseline is not None and column != baseline else {}
        shared = [repeat for repeat in values if repeat in theirs]
        compared = paired([values[one] for one in shared], [theirs[one] for one in shared])
        found[key, column] = Entry(summary, compared)
    compared_ones = [place for place, entry in found.items() if entry.paired is not None]
    ps = holm([entry.paired.p_t for place in compared_ones if (entry := found[place]).paired is not None])
    for place, p in zip(compared_ones, ps):
        found[place] = replace(found[place], p=p)
    return found
