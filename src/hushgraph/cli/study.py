"""`hushgraph study`: many runs declared in one file, done once, shown as tables and plots with intervals."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, Track, TrackEvaluation, command, echo, show_json, show_words
from hushgraph.cli.study_words import (
    Line,
    cost_to_show,
    nothing_to_show,
    show_cost,
    show_dry_run,
    show_one,
    show_state,
    show_views,
    views_of,
)

if TYPE_CHECKING:
    from hushgraph.study.results import Results

app = typer.Typer(
    help="Run many trainings declared in one file and compare them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study file.")]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The file of results; default: NAME.sqlite beside the study.")
]
AnyCode = Annotated[bool, typer.Option("--any-code", help="Also take results of other versions of the code.")]
Value = Annotated[str | None, typer.Option(help="The measure to show; default: what the file asks for.")]
Where = Annotated[list[str] | None, typer.Option(help="AXIS=VALUE: only these runs; repeatable.")]
Out = Annotated[Path | None, typer.Option(help="The file to write.")]


@app.command("run")
@command
def run(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the cost: runs, time, privacy.")] = False,
    timed: Annotated[
        bool, typer.Option("--timed", help="With --dry-run: time one run of each kind first; its result is kept.")
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|ray", help="Processes (default: one per core; 0: this one), ray, ray:N or ray@HOST:PORT."
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what was refused or failed.")] = False,
    where: Where = None,
    store: StoreOption = None,
    any_code: AnyCode = False,
    track: Track = None,
    track_evaluation: TrackEvaluation = False,
    as_json: Json = False,
) -> None:
    """Run what is missing from a study. It resumes where it was stopped or killed; nothing runs twice."""
    from hushgraph.executors.base import as_executor, cores
    from hushgraph.study.run import study, time_kinds
    from hushgraph.study.tracked import tracked
    from hushgraph.tracking.base import tracker_of

    trackers = [tracker_of(one) for one in track or []]
    results = _read(file, store, any_code)
    if dry_run:
        if timed:
            results = time_kinds(results, workers)
        show_dry_run(results, cores() if workers is None else as_executor(workers).count, as_json)
        return
    watch = Line(quiet=as_json)
    started = time.perf_counter()
    options: dict[str, Any] = {"workers": workers, "retry": retry, "where": _where(where), "any_code": any_code}
    told = tracked(results, trackers, evaluation=track_evaluation, watch=watch) if trackers else watch
    done = study(results.study, store=results.store.path, watch=told, **options)
    watch.end()
    if as_json:
        seconds = time.perf_counter() - started
        show_json({"counts": dict(done.counts), "store": str(done.store.path), "seconds": seconds})
        return
    show_state(done)
    show_views(done)


@app.command("show")
@command
def show(file: File, store: StoreOption = None, any_code: AnyCode = False, as_json: Json = False) -> None:
    """Show the progress of a study, what was refused or failed and why, and what its runs cost."""
    from hushgraph.study.store import State

    results = _read(file, store, any_code)
    bad = [(str(cell), one.state.value, one.message) for cell, one in results.ended(State.REFUSED, State.FAILED)]
    if as_json:
        facts = {"counts": dict(results.counts), "metrics": results.metrics(), "of_other_code": results.of_other_code}
        show_json({**facts, "cost": asdict(cost_to_show(results, quiet=True)), "not_done": [list(one) for one in bad]})
        return
    show_state(results)
    for label, state, message in bad:
        show_words(f"{state}: {label}: {message.strip().splitlines()[-1]}", indent=4)
    show_cost(cost_to_show(results), results.study.privacy)


@app.command("table")
@command
def table(
    file: File,
    value: Value = None,
    rows: Annotated[
        str | None, typer.Option(help="Axes of the rows, separated by commas; default: dataset,epsilon.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="The axis of the columns; default: method.")] = None,
    baseline: Annotated[str | None, typer.Option(help="The column that others are compared with, in pairs.")] = None,
    where: Where = None,
    bootstrap: Annotated[bool, typer.Option("--bootstrap", help="Bootstrap intervals instead of Student's t.")] = False,
    form: Annotated[str, typer.Option(help="text, markdown, latex or csv.")] = "text",
    out: Out = None,
    store: StoreOption = None,
    any_code: AnyCode = False,
    as_json: Json = False,
) -> None:
    """Show means with 95% intervals: the tables of the file, or the one that the options describe."""
    from hushgraph.study.export import in_form, table_as_dict

    results = _read(file, store, any_code, only_show=True)
    given: dict[str, Any] = {"value": value, "columns": columns, "baseline": baseline, "where": _where(where)}
    given["rows"] = tuple(rows.split(",")) if rows else None
    interval = "bootstrap" if bootstrap else "t"
    made = [results.table(view) for view in views_of(results, ("table",), given)]
    if as_json:
        show_json({"tables": [table_as_dict(one) for one in made]})
    elif form == "text" and out is None:
        for one in made:
            show_one(one, interval)
    else:
        _write("\n".join(in_form(one, "markdown" if form == "text" else form, interval) for one in made), out)


@app.command("plot")
@command
def plot(
    file: File,
    out: Annotated[Path, typer.Option(help="The image: .png, .svg or .pdf; several are numbered.")],
    value: Value = None,
    x: Annotated[str | None, typer.Option(help="The horizontal axis; default: epsilon.")] = None,
    y: Annotated[str | None, typer.Option(help="The vertical axis; draws a heat map of both.")] = None,
    series: Annotated[str | None, typer.Option(help="One curve for each value of this axis; default: method.")] = None,
    where: Where = None,
    store: StoreOption = None,
    any_code: AnyCode = False,
    as_json: Json = False,
) -> None:
    """Draw curves with bands, or a heat map: the plots of the file, or the one that the options describe."""
    from hushgraph.study.plots import draw

    results = _read(file, store, any_code, only_show=True)
    given = {"value": value, "x": x, "y": y, "series": series, "where": _where(where)}
    views = views_of(results, ("heat" if y else "lines", "lines", "heat"), given)
    if not views:
        raise nothing_to_show(results, file)
    names = [out] if len(views) == 1 else [out.with_stem(f"{out.stem}-{n + 1}") for n in range(len(views))]
    written = [str(draw(results, view, name)) for view, name in zip(views, names)]
    if as_json:
        show_json({"plots": written})
    else:
        echo("\n".join(f"wrote {one}" for one in written))


@app.command("report")
@command
def report(
    file: File, out: Out = None, store: StoreOption = None, any_code: AnyCode = False, as_json: Json = False
) -> None:
    """Write one HTML file about a study that opens offline."""
    from hushgraph.study.page import write_study_page

    results = _read(file, store, any_code, only_show=True)
    path = write_study_page(results, out or results.study.folder / f"{results.study.name}.html")
    if as_json:
        show_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        echo(f"wrote {path}")


@app.command("page")
@command
def page(
    file: File,
    out: Annotated[Path, typer.Option(help="The Markdown file to write; pictures go to a folder beside it.")],
    template: Annotated[
        Path | None, typer.Option(help="Text with {table NAME}, {plot NAME}; default: NAME.md.in beside the study.")
    ] = None,
    store: StoreOption = None,
    any_code: AnyCode = False,
    as_json: Json = False,
) -> None:
    """Write a Markdown page: a text of yours with the tables and plots of the study in it."""
    from hushgraph.study.document import write_document

    results = _read(file, store, any_code, only_show=True)
    written = write_document(results, template or results.study.folder / f"{results.study.name}.md.in", out)
    if as_json:
        show_json({"written": [str(path) for path in written]})
    else:
        echo("\n".join(f"wrote {path}" for path in written))


@app.command("export")
@command
def export(file: File, out: Out = None, store: StoreOption = None, any_code: AnyCode = False) -> None:
    """Write every run with its axes and all its metrics as CSV."""
    from hushgraph.study.export import runs_csv

    _write(runs_csv(_read(file, store, any_code, only_show=True)), out)


@app.command("keep")
@command
def keep(file: File, store: StoreOption = None, as_json: Json = False) -> None:
    """Write every run as text to results/NAME.jsonl beside the study; --any-code and `study page` read it."""
    from hushgraph.study.kept import keep as write

    results = _read(file, store, any_code=True, only_show=True)
    path = write(results.study, results.by_cell)
    if as_json:
        show_json({"kept": str(path), "runs": sum(results.counts.values()) - results.counts["missing"]})
    else:
        echo(f"wrote {path}")


def _read(file: Path, store: Path | None, any_code: bool = False, *, only_show: bool = False) -> Results:
    """The study and its results; where they are only shown, the data need not be here."""
    from hushgraph.study.kept import read_contents
    from hushgraph.study.results import Results
    from hushgraph.study.run import default_store
    from hushgraph.study.spec import Study
    from hushgraph.study.store import Store

    declared = Study.read(file, contents=read_contents(file.absolute().parent) if only_show else None)
    return Results(declared, Store(store or default_store(declared)), any_code)


def _where(words: list[str] | None) -> dict[str, Any] | None:
    from hushgraph.cli.console import words as pairs

    return pairs(words) if words else None


def _write(text: str, out: Path | None) -> None:
    from hushgraph.files.writing import write_whole

    if out is None:
        echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    echo(f"wrote {write_whole(out, text)}")
