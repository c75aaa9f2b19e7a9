"""Tables and runs as text: for a terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError, did_you_mean
from hushgraph.methods.evaluation import EVALUATION
from hushgraph.study.stats import Summary

if TYPE_CHECKING:
    from hushgraph.study.results import Results
    from hushgraph.study.table import Entry, Table
    from hushgraph.study.views import Published

SIGNIFICANT = 0.05
NO_EVALUATION = ("proved_epsilon", "claimed_epsilon", "audit_epsilon", "audit_contradicted")
"""Metrics that follow from plans, or from data made for an audit; all others looked at the data."""
_NUMBERS = (
    *("count", "mean", "t_half_width", "bootstrap_low", "bootstrap_high"),
    *("difference", "difference_half_width", "won", "lost", "p_t", "p_wilcoxon", "p_holm"),
)
_PUBLISHED = ("published", "published_half_width")
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$", "{": r"\{", "}": r"\}"}


def shown(summary: Summary, interval: str = "t") -> str:
    """A mean with its interval and the number of values: 78.5 ± 0.4 (5)."""
    digits = 0 if abs(summary.mean) >= 1000 else 1 if abs(summary.mean) >= 10 else 3
    mean = f"{summary.mean:,.{digits}f}"
    if summary.half_width is None or summary.bootstrap is None:
        return f"{mean} (1)"
    if interval == "bootstrap":
        low, high = summary.bootstrap
        return f"{mean} [{low:,.{digits}f}, {high:,.{digits}f}] ({summary.count})"
    return f"{mean} ± {summary.half_width:,.{digits}f} ({summary.count})"


def cells_of(table: Table, interval: str = "t") -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table as words; a star marks a difference from the baseline."""
    head = [*table.rows, *(_column(table.columns, column) for column in table.column_keys)]
    rows = []
    for key in table.row_keys:
        entries = [_cell(table, key, column, interval) for column in table.column_keys]
        rows.append([*(word(one) for one in key), *entries])
    return head, rows


def _column(axis: str, value: Any) -> str:
    """The head of a column: a number needs to be told what it is one of."""
    return f"{axis} {word(value)}" if isinstance(value, int | float) and not isinstance(value, bool) else word(value)


def _cell(table: Table, key: tuple[Any, ...], column: Any, interval: str) -> str:
    entry, theirs = table[key, column], table.published.get((key, column))
    beside = "" if theirs is None else f" / {_figure(theirs)}"
    if entry is None:
        return ("refused" if (key, column) in table.refused else "not run") + beside
    star = "*" if entry.p is not None and entry.p < SIGNIFICANT else ""
    return shown(entry.summary, interval) + star + beside


def _figure(theirs: Published) -> str:
    """A published figure, as it was published."""
    return f"{theirs.value:g}" if theirs.half_width is None else f"{theirs.value:g} ± {theirs.half_width:g}"


def word(value: Any) -> str:
    """A value of an axis for people."""
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def caption(table: Table, interval: str = "t") -> str:
    """What the numbers of a table are."""
    kind = "percentiles of 1,000 bootstrap means" if interval == "bootstrap" else "Student's t"
    mark = "" if all(one in NO_EVALUATION for one in table.value.split(", ")) else f"; {EVALUATION}"
    words = f"{table.value}: mean, 95% interval ({kind}), number of runs{mark}."
    if table.baseline is not None:
        words += (
            f" *: differs from {word(table.baseline)}, runs compared in pairs (t-test, p < {SIGNIFICANT:g} after "
            "Holm's correction for all comparisons of the table)."
        )
    if table.published:
        words += " After a slash: the published figure, with its interval where one was given."
    if table.privacy == "research":
        words += " Research: the noise was seeded, so none of these runs is private."
    return words


def markdown(table: Table, interval: str = "t") -> str:
    """The table in Markdown, with its caption below."""
    return f"{markdown_rows(table, interval)}\n{caption(table, interval)}\n"


def markdown_rows(table: Table, interval: str = "t") -> str:
    """The table in Markdown without a caption."""
    head, rows = cells_of(table, interval)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: Table, interval: str = "t") -> str:
    """The table in LaTeX (booktabs)."""
    head, rows = cells_of(table, interval)
    body = [" & ".join(map(_escaped, row)) + r" \\" for row in rows]
    lines = [
        r"\begin{tabular}{" + "l" * len(table.rows) + "r" * len(table.column_keys) + "}",
        r"\toprule",
        " & ".join(map(_escaped, head)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "% " + caption(table, interval) + "\n" + "\n".join(lines) + "\n"


def _escaped(words: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in words)


def table_csv(table: Table, interval: str = "t") -> str:
    """Every number of a table, one line for each entry."""
    head = [*table.rows, table.columns, "value", *_NUMBERS, *_PUBLISHED]
    lines: list[list[Any]] = []
    for key in table.row_keys:
        for column in table.column_keys:
            entry = table[key, column]
            if entry is not None:
                lines.append([*key, column, table.value, *_numbers(entry), *_published(table, key, column)])
    return _csv(head, lines)


def _numbers(entry: Entry) -> list[Any]:
    one, pair = entry.summary, entry.paired
    found: list[Any] = [one.count, one.mean, one.half_width, *(one.bootstrap or (None, None))]
    if pair is None:
        return [*found, *[None] * 7]
    gap = pair.difference
    return [*found, gap.mean, gap.half_width, pair.won, pair.lost, pair.p_t, pair.p_wilcoxon, entry.p]


def _published(table: Table, key: tuple[Any, ...], column: Any) -> list[float | None]:
    theirs = table.published.get((key, column))
    return [None, None] if theirs is None else [theirs.value, theirs.half_width]


def runs_csv(results: Results) -> str:
    """Every run that is done: its axes and all its metrics."""
    rows, metrics = results.rows, results.metrics()
    axes = list(dict.fromkeys(axis for row in rows for axis in row.cell.axes))
    lines = [[*(row.cell.axis(one) for one in axes), *(row.metrics.get(one) for one in metrics)] for row in rows]
    return _csv([*axes, *metrics], lines)


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if one is None else one for one in line] for line in lines])
    return text.getvalue()


FORMS: dict[str, Callable[[Table, str], str]] = {"markdown": markdown, "latex": latex, "csv": table_csv}


def in_form(table: Table, form: str, interval: str = "t") -> str:
    """The table in one of the forms."""
    if form not in FORMS:
        raise InputError(f"form: got '{form}'; {did_you_mean(form, FORMS)}")
    return FORMS[form](table, interval)


def table_as_dict(table: Table) -> dict[str, Any]:
    """The table as plain values."""
    entries = [
        {
            **dict(zip(table.rows, key)),
            table.columns: column,
            **dict(zip(_NUMBERS, _numbers(entry))),
            **dict(zip(_PUBLISHED, _published(table, key, column))),
        }
        for key in table.row_keys
        for column in table.column_keys
        if (entry := table[key, column]) is not None
    ]
    words = {"name": table.name, "value": table.value, "rows": list(table.rows), "columns": table.columns}
    return {**words, "baseline": table.baseline, "entries": entries, "note": caption(table)}
