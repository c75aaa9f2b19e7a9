"""A Markdown page about a study: the text of a template, with tables and plots where it asks for them.

A line of the template that holds one of these and nothing else is replaced:

    {table NAME}            the table of that name in the study file; what its numbers are is said once
    {plot NAME}             the plot of that name, drawn beside the page in `pictures/`
    {behind NAME | COLUMN}  where a column of a table has a lower mean than another, and by how much
    {runs}                  how many runs there are, how many are missing, and which code they are of
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hushgraph.errors import InputError, did_you_mean
from hushgraph.files.writing import write_whole
from hushgraph.study.export import caption, markdown_rows, word
from hushgraph.study.views import View

if TYPE_CHECKING:
    from hushgraph.study.results import Results

_KINDS = ("table", "plot", "behind", "runs")
_SLIGHTLY = 0.05


def write_document(results: Results, template: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write the page and its pictures, and return their paths; all that is wrong with the template is one error."""
    source, target = Path(template), Path(out)
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"template: expected a text file; got {source} ({error.strerror}); write one first") from error
    asked = [_asked(line.strip()) for line in lines]
    InputError.collect(
        problem
        for number, found in enumerate(asked, start=1)
        if found is not None and (problem := _problem(results, f"{source.name}, line {number}", *found))
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    page = _Page(results, target)
    text = [line if found is None else page.filled(*found) for line, found in zip(lines, asked)]
    return [write_whole(target, "\n".join(text).rstrip() + "\n"), *page.pictures]


def _asked(line: str) -> tuple[str, str] | None:
    """What a line asks for, and of what; None for text."""
    kind, _, words = line[1:-1].partition(" ")
    return (kind, words) if line[:1] == "{" and line[-1:] == "}" and kind in _KINDS else None


def _problem(results: Results, place: str, kind: str, words: str) -> str | None:
    if kind == "runs":
        return None
    name, *column = words.split(" | ")
    named = [view.name for view in results.study.views if _shows(view, kind)]
    if name not in named:
        return f"{place}: the study has no {_noun(kind)} '{name}'; {did_you_mean(name, named)}"
    if (kind == "behind") != (len(column) == 1):
        return f"{place}: expected {{table NAME}}, {{plot NAME}} or {{behind NAME | COLUMN}}; got '{{{kind} {words}}}'"
    return None


def _shows(view: View, kind: str) -> bool:
    return (view.kind == "table") == (kind != "plot")


def _noun(kind: str) -> str:
    return "plot" if kind == "plot" else "table"


class _Page:
    """A page as it is written: which pictures it has, and what it said of its numbers already."""

    def __init__(self, results: Results, target: Path) -> None:
        self.results, self.target = results, target
        self.pictures: list[Path] = []
        self.said: set[str] = set()

    def filled(self, kind: str, words: str) -> str:
        """What a line of the template stands for."""
        if kind == "runs":
            return _runs(self.results)
        name, *column = words.split(" | ")
        view = next(view for view in self.results.study.views if view.name == name and _shows(view, kind))
        if not self.results.where(view.where):
            return "Not run."
        if kind == "plot":
            return self._plot(view)
        return self._table(view) if kind == "table" else "\n".join(_behind(self.results, view, column[0]))

    def _table(self, view: View) -> str:
        """The rows, and what its numbers are unless an earlier table said the same."""
        table = self.results.table(view)
        words, rows = caption(table), markdown_rows(table).rstrip()
        if words in self.said:
            return rows
        self.said.add(words)
        return f"{rows}\n\n{words}"

    def _plot(self, view: View) -> str:
        from hushgraph.study.plots import draw

        letters = "".join(letter if letter.isalnum() else " " for letter in view.name.lower())
        name = "-".join([self.target.stem, *letters.split()])
        picture = draw(self.results, view, self.target.parent / "pictures" / f"{name}.svg")
        self.pictures.append(picture)
        return f"![{view.name}](pictures/{picture.name})"


def _behind(results: Results, view: View, column: str) -> Sequence[str]:
    """A sentence, and a line for every entry that is higher than that of `column` in its row, over the same seeds."""
    if column not in map(str, results.table(view).column_keys):
        return [f"`{column}` was not run."]
    table, found, pairs = results.table(replace(view, baseline=column)), [], 0
    for (key, other), entry in table.entries.items():
        if entry.paired is None:
            continue
        pairs += 1
        more, count = entry.paired.difference.mean, entry.paired.difference.count
        if more > 0.0:
            by = f"{more:.1f}" if more >= _SLIGHTLY else f"less than {_SLIGHTLY:g}"
            found.append((more, f"- {', '.join(map(word, key))}: {by} below {word(other)} ({count})"))
    lead = f"Over the same seeds `{column}` is lower in {len(found)} of {pairs} comparisons"
    if not found:
        return [f"{lead}."]
    return [
        f"{lead}, the largest first, with the number of seeds:",
        "",
        *(line for _, line in sorted(found, reverse=True)),
    ]


def _runs(results: Results) -> str:
    counts, codes = results.counts, {one.code for _, one in results.by_cell if one is not None}
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    of = "" if not codes else f" Hash of the code that ran them: {', '.join(sorted({code[:12] for code in codes}))}."
    return f"Runs of the study: {words}.{of}"
