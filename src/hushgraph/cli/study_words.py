"""What `hushgraph study` prints: how far a study is, its tables, its choice and its price."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hushgraph.cli.console import echo, show_json, show_table, show_words
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.study.cost import Cost
    from hushgraph.study.results import Results
    from hushgraph.study.run import Progress
    from hushgraph.study.table import Table
    from hushgraph.study.views import View

_EVERY = 0.5
_MANY = 300
"""From so many runs on, their plans are made in several processes, which take a moment to start."""


class Line:
    """One line on a terminal that says how far a study is; nothing where nobody looks."""

    def __init__(self, quiet: bool) -> None:
        self.on, self.last, self.shown = not quiet and sys.stderr.isatty(), 0.0, False

    def __call__(self, progress: Progress) -> None:
        """How far the runs are."""
        bad = f", {progress.bad} not done" if progress.bad else ""
        left = f"; {progress.remaining} left" if progress.done < progress.total else ""
        self._write(f"{progress.done} of {progress.total} runs{bad}{left}", progress.done == progress.total)

    def planned(self, done: int, total: int) -> None:
        """How far the plans are."""
        self._write(f"planned {done} of {total} kinds of runs", done == total)

    def _write(self, words: str, last: bool) -> None:
        """Write over the line, not more than twice a second."""
        now = time.monotonic()
        if self.on and (last or now - self.last >= _EVERY):
            typer.echo(f"\r\x1b[K{words}", err=True, nl=False)
            self.last, self.shown = now, True

    def end(self) -> None:
        """Leave the line."""
        if self.shown:
            echo("", err=True)


def nothing_to_show(results: Results, file: Path) -> InputError:
    """Why there is nothing to draw."""
    if results.rows:
        return InputError("plot: expected several epsilons, or plots in the file; got neither. Name an axis with --x")
    others = results.of_other_code
    known = f"; {others} were done by another version of the code: --any-code shows them" if others else ""
    return InputError(f"plot: expected finished runs; got none: hushgraph study run {file}{known}")


def show_state(results: Results) -> None:
    """How many runs are done, refused, failed and missing."""
    counts = results.counts
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    show_words(f"study {results.study.name} ({results.study.privacy}): {sum(counts.values())} runs: {words}", indent=4)
    if counts["missing"] and (others := results.of_other_code):
        show_words(
            f"{others} of the missing runs were done by another version of the code (--any-code shows them)", indent=4
        )
    echo("")


def show_views(results: Results) -> None:
    """The tables of the file, and the choice."""
    for view in views_of(results, ("table",), {}):
        show_one(results.table(view), "t")
    if results.study.choose is not None:
        _show_choice(results)


def show_one(table: Table, interval: str) -> None:
    """One table."""
    from hushgraph.study.export import caption, cells_of

    head, rows = cells_of(table, interval)
    echo(table.name)
    show_table(head, rows, range(len(table.rows), len(head)))
    show_words(caption(table, interval))
    echo("")


def _show_choice(results: Results) -> None:
    from hushgraph.study.choose import choose, price_words, require_allowed
    from hushgraph.study.export import shown, word

    assert results.study.choose is not None
    cost = cost_to_show(results)
    require_allowed(results.study, cost)
    echo(f"best by {results.study.choose.by}")
    for one in choose(results, results.study.choose):
        place = ", ".join(word(value) for value in one.place.values())
        best = ", ".join(f"{axis} {word(value)}" for axis, value in one.best.items())
        show_words(f"  {place}: {best} (of {one.tried}): test_accuracy {shown(one.summary)}", indent=4)
    for price in cost.tuning:
        show_words("  " + price_words(price, results.study.privacy), indent=4)
    echo("")


def show_dry_run(results: Results, workers: int, as_json: bool) -> None:
    """Runs and time come first: plans of many sizes take a while."""
    from hushgraph.study.estimate import Timings

    missing = results.missing
    remaining = Timings.of(results.store.timings()).remaining(missing, workers)
    if not as_json:
        show_state(results)
        show_words(f"to do: {len(missing)} runs on {max(1, workers)} processes: {remaining}", indent=4)
        show_cost(cost_to_show(results), results.study.privacy)
        return
    facts = {"runs": sum(results.counts.values()), "missing": len(missing), "seconds": vars(remaining)}
    show_json({**facts, "cost": asdict(cost_to_show(results, quiet=True))})


def cost_to_show(results: Results, quiet: bool = False) -> Cost:
    """What the study costs; a large one is planned on all cores."""
    from hushgraph.executors.base import cores
    from hushgraph.study.cost import cost_of

    line = Line(quiet)
    found = cost_of(results.study, line.planned, cores() if len(results.study.cells) > _MANY else 0)
    line.end()
    return found


def show_cost(cost: Cost, privacy: str) -> None:
    """What each kind of run costs, all of them together, and the choice."""
    from hushgraph.study.choose import price_words
    from hushgraph.text import rounded_up

    would = "would cost, with noise that is not seeded" if privacy == "research" else "cost"
    echo(f"what one run {would}")
    for one in cost.runs:
        found = f"epsilon {one.price} at delta {one.delta:g}" if one.is_known else one.price
        claimed = "" if one.claimed is None else f", where a paper would claim {one.claimed:.4g}"
        show_words(f"  {one.count} x {one.label}: {found}{claimed}", indent=6)
    if cost.together:
        echo("what all runs on a dataset cost together, fixed beforehand")
    for whole in cost.together:
        words = f"epsilon at most {rounded_up(whole.epsilon)} at delta {whole.delta:g} for {whole.runs} protected runs"
        rest = f"; nothing with the {whole.open_runs} runs without protection" if whole.open_runs else ""
        show_words(f"  {whole.dataset}, unit {whole.unit}: {words}{rest}", indent=6)
    for price in cost.tuning:
        show_words(price_words(price, privacy), indent=4)
    if privacy == "research":
        show_words("Research: nothing is charged, and no run is private.")


def views_of(results: Results, kinds: tuple[str, ...], given: dict[str, Any]) -> list[View]:
    """The views of these kinds that the file has, changed as options say; the default one where it has none."""
    from hushgraph.study.page import default_views
    from hushgraph.study.views import View

    changes = {key: one for key, one in given.items() if one is not None}
    listed = [view for view in results.study.views if view.kind in kinds]
    defaults = default_views(results)
    if not changes:
        return listed or [view for view in defaults if view.kind in kinds]
    first = next((view for view in defaults if view.kind == kinds[0]), None)
    if value := changes.get("value"):
        changes["name"] = value.replace("_", " ")
    return [replace(first or View(kinds[0], kinds[0]), **changes)]  # type: ignore[arg-type]
