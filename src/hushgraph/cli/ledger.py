"""`hushgraph ledger`: what was spent on every dataset, by whom and why; limits, sign-offs, heads, exports."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, command, echo, show_json, show_words, tell
from hushgraph.text import counted, rounded_up, settings_in_words

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.occasion import Occasion
    from hushgraph.privacy.units import Unit

app = typer.Typer(help="What has been spent on every dataset.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path | None, typer.Argument(help="The ledger's folder; default: the project's.")]
LedgerOption = Annotated[Path | None, typer.Option(help="The ledger's folder; default: the project's.")]
DatasetName = Annotated[str | None, typer.Option(help="A dataset of the ledger, by its id or a name.")]
UnitName = Annotated[str | None, typer.Option(help="The unit, such as undirected-edge or node.")]
MaxDegree = Annotated[int | None, typer.Option(help="The degree cap of a node unit.")]
AtDelta = Annotated[float | None, typer.Option(help="Delta for the totals; default: the sum of the runs' deltas.")]
Operator = Annotated[str | None, typer.Option(help="Who does this; default: HUSHGRAPH_OPERATOR, else user@host.")]
Purpose = Annotated[str, typer.Option(help="Why.")]


@app.command()
@command
def show(
    folder: Folder = None,
    dataset: DatasetName = None,
    unit: UnitName = None,
    max_degree: MaxDegree = None,
    delta: AtDelta = None,
    last: Annotated[int, typer.Option(min=0, help="How many runs to show.")] = 20,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens offline to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Show the totals of every dataset, and the latest runs: who, when and why."""
    from hushgraph.cli.ledger import lines
    from hushgraph.files.writing import write_whole
    from hushgraph.ledger.statement import render, statement

    found = statement(_open(folder), dataset=dataset, unit=_unit(unit, max_degree), delta=delta, last=last)
    if html is not None:
        write_whole(html, render(found))
    if as_json:
        show_json(found)
    else:
        echo("\n".join(lines(found)))
        if html is not None:
            echo(f"written to {html}")


@app.command()
@command
def verify(
    folder: Folder = None,
    head: Annotated[
        list[Path] | None, typer.Option(help="A head kept elsewhere, or a folder with models; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the file, chain, costs, limits, sign-offs and heads, and recompute totals. Exit code 4: contradicted."""
    from hushgraph.ledger.checking import Status
    from hushgraph.ledger.statement import statement
    from hushgraph.ledger.verify import verify_ledger

    book = _open(folder)
    found = verify_ledger(book, head or [])
    sound = found.status is not Status.CONTRADICTED
    shown = statement(book, last=0) if sound else {}
    if as_json:
        show_json({"sound": sound, **found.as_dict(), **shown})
    else:
        for finding in found.findings:
            show_words(str(finding), indent=14)
        echo("\n".join(lines(shown)) if sound else "CONTRADICTED: the ledger is not what it was. See docs/ledger.md")
    if not sound:
        raise typer.Exit(found.exit_code)


@app.command()
@command
def limit(
    folder: Folder = None,
    epsilon: Annotated[float, typer.Option(help="The most epsilon that may be spent on the dataset.")] = ...,  # type: ignore[assignment]
    delta: Annotated[float, typer.Option(help="The delta of the limit.")] = ...,  # type: ignore[assignment]
    dataset: DatasetName = None,
    data: Annotated[
        str | None, typer.Option(help="The data itself, as for `train`: the limit holds under any name.")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed", help="With --data: keep the directions of edges.")] = False,
    continues: Annotated[str | None, typer.Option(help="With --data: the dataset that it continues.")] = None,
    separate: Annotated[
        str | None, typer.Option(help="With --data: why it is separate from those it resembles.")
    ] = None,
    unit: UnitName = None,
    max_degree: MaxDegree = None,
    filter_: Annotated[str | None, typer.Option("--filter", help="gaussian, renyi or basic; default: by rule.")] = None,
    operator: Operator = None,
    purpose: Annotated[str, typer.Option("--purpose", "--why", help="Why; needed to raise a limit.")] = "",
    as_json: Json = False,
) -> None:
    """Declare, raise or lower the limit on a dataset for a unit; runs over it are refused with exit code 3.

    A limit on a name without data binds the first data used under that name; --data binds the data itself at once.
    """
    from hushgraph.privacy.budget import Budget

    Budget(epsilon, delta)
    book = _open(folder, operator, purpose)
    if data is not None:
        dataset = _known_by_content(book, data, dataset, directed, continues, separate)
    found = book.set_limit(epsilon, delta, dataset=dataset, unit=_unit(unit, max_degree), filter=filter_)
    if as_json:
        show_json({"folder": str(book.folder), "limit": found})
        return
    what = f"'{found['dataset']}', unit '{found['unit']['name']}'"
    echo(f"limit {found['change']} for {what}: epsilon {epsilon:g} at delta {delta:g}, from now on")
    if found["pending"]:
        echo("pending: it binds the first data of that name, and no other; --data FILE binds the data itself")
    elif not found["runs"]:
        echo("nothing has been run on it yet")
    left = float(found["cap_epsilon"])
    if left <= 0.0:
        show_words(
            "nothing is left under it: all further runs on this data, under any unit, will be refused, but for those "
            "that are declared --unpublished"
        )
    elif left < epsilon:
        echo(f"earlier runs leave epsilon {left:.4g} at delta {found['cap_delta']:.3g} of it")


@app.command()
@command
def declare(
    name: Annotated[str, typer.Argument(help="The name of the group; `train --group NAME` joins it.")],
    dataset: Annotated[str, typer.Option(help="The dataset, by its id or a name.")],
    plan: Annotated[list[Path], typer.Option(help="What `hushgraph plan --json` printed; one for every run.")],
    ledger: LedgerOption = None,
    operator: Operator = None,
    purpose: Purpose = "",
    as_json: Json = False,
) -> None:
    """Declare a group of runs, with all their plans, before the first one: they compose as one plan."""
    from hushgraph.files.reading import read_json
    from hushgraph.ledger.project import default_ledger
    from hushgraph.privacy.plan import Plan

    plans = [Plan.from_dict(read_json(path)["plan"]) for path in plan]
    book = default_ledger(ledger).on(occasion_of(operator, purpose))
    found = book.declare_group(name, plans, dataset=dataset)
    if as_json:
        show_json({"folder": str(book.folder), **found})
        return
    cost = f"epsilon {rounded_up(found['epsilon'])} at delta {found['delta']:g}"
    echo(
        f"group '{name}' on '{found['dataset']}': {counted(len(plans), 'run')}, {cost} together, from the first one on"
    )


@app.command()
@command
def head(
    folder: Folder = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of printing it.")] = None,
    as_json: Json = False,
) -> None:
    """Print the signed number and hash of the last entry; keep a copy elsewhere (see `verify --head`)."""
    from hushgraph.files.writing import json_text, write_whole

    found = _open(folder).head().as_dict()
    if out is not None:
        write_whole(out, json_text(found))
    if as_json or out is None:
        show_json(found)
    else:
        echo(f"written to {out}; keep it where whoever can change the ledger cannot change it")


RunArgument = Annotated[str, typer.Argument(help="The run, or the beginning of its id.")]
Signer = Annotated[str, typer.Option("--as", help="Who signs; the key is made by `hushgraph init --as NAME`.")]
SignersKey = Annotated[Path | None, typer.Option(help="The key; default: the one in your own configuration folder.")]


@app.command()
@command
def approve(
    run: RunArgument,
    name: Signer,
    note: Annotated[str, typer.Option(help="What was reviewed.")] = "",
    key: SignersKey = None,
    ledger: LedgerOption = None,
    as_json: Json = False,
) -> None:
    """Sign that a run is approved."""
    _sign_off(ledger, run, "approved", name, note, key, as_json)


@app.command()
@command
def reject(
    run: RunArgument,
    name: Signer,
    note: Annotated[str, typer.Option(help="Why.")] = "",
    key: SignersKey = None,
    ledger: LedgerOption = None,
    as_json: Json = False,
) -> None:
    """Sign that a run is rejected."""
    _sign_off(ledger, run, "rejected", name, note, key, as_json)


def _sign_off(
    ledger: Path | None, run: str, verdict: str, name: str, note: str, key: Path | None, as_json: bool
) -> None:
    from hushgraph.ledger.verify import sign_off

    found = sign_off(_open(ledger), run, verdict, name, note, key)
    show_json(found) if as_json else echo(f"run {found['run']}: {verdict} by {name}, signed; the last word counts")


@app.command()
@command
def close(
    run: Annotated[str, typer.Argument(help="The run, or the beginning of its id.")],
    purpose: Annotated[str, typer.Option("--purpose", "--why", help="Why, such as: its process was killed.")],
    ledger: LedgerOption = None,
    operator: Operator = None,
    as_json: Json = False,
) -> None:
    """Close a run whose process is gone: from then on only its charges count, and it cannot charge again."""
    from hushgraph.ledger.abandoned import close_abandoned

    found = close_abandoned(_open(ledger, operator, purpose), run)
    show_json(found) if as_json else echo(f"run {found['run']}: closed after {counted(found['charges'], 'charge')}")


@app.command()
@command
def export(
    out: Annotated[Path, typer.Argument(help="The file to write, one JSON object a line.")],
    ledger: LedgerOption = None,
    as_json: Json = False,
) -> None:
    """Write all entries as JSON lines. They reveal nothing about the data beyond what was released."""
    from hushgraph.ledger.transfer import export as write

    count = write(_open(ledger), out)
    show_json({"entries": count, "out": str(out)}) if as_json else echo(f"{count} entries written to {out}")


@app.command("import")
@command
def import_(
    source: Annotated[Path, typer.Argument(help="A folder or file of format 1, or what `export` wrote.")],
    dataset: Annotated[str | None, typer.Option(help="The dataset they belong to here; default: as there.")] = None,
    ledger: LedgerOption = None,
    operator: Operator = None,
    purpose: Purpose = "",
    as_json: Json = False,
) -> None:
    """Import the runs of another ledger."""
    from hushgraph.ledger.transfer import import_into

    done = import_into(_open(ledger, operator, purpose), source, dataset)
    show_json(done) if as_json else echo(f"{counted(done['runs'], 'run')} entered from {source}")


@app.command()
@command
def recover(
    folder: Folder = None,
    copy: Annotated[list[Path] | None, typer.Option("--from", help="A copy of the file, or an export.")] = None,
    head: Annotated[list[Path] | None, typer.Option(help="A head kept elsewhere, or a folder with models.")] = None,
    as_json: Json = False,
) -> None:
    """Recover what is left of a damaged ledger. If entries are lost for good, no total is private any more."""
    from hushgraph.ledger.keys import find_heads
    from hushgraph.ledger.transfer import recover as carry_out

    heads = [one for place in head or [] for _, one in find_heads(place)]
    done = carry_out(_place(folder), copy or [], heads)
    if as_json:
        show_json(done)
        return
    echo(f"{done['kept']} entries kept, {done['lost']} lost; the damaged file is {done['damaged_file']}")
    if done["lost"]:
        echo("nobody knows what the lost entries charged: every total of this ledger is NOT PRIVATE from now on")


def _known_by_content(
    book: Ledger, data: str, name: str | None, directed: bool, continues: str | None, separate: str | None
) -> str:
    """The dataset of the ledger that holds this data, entered if it is new."""
    from hushgraph.cli.data import read_graph
    from hushgraph.graph.checks import check_graph
    from hushgraph.ledger.identity import arrays_of

    graph = check_graph(read_graph(data, directed=directed, quiet=True))
    return book.dataset_for(book.identify(arrays_of(graph)), name or graph.metadata.name, continues, separate)


def _place(folder: Path | None) -> Path:
    from hushgraph.ledger.project import Project

    return folder if folder is not None else Project.find().folder


def _open(folder: Path | None, operator: str | None = None, purpose: str = "") -> Ledger:
    from hushgraph.ledger.ledger import Ledger

    return Ledger(_place(folder)).on(occasion_of(operator, purpose))


def _unit(name: str | None, max_degree: int | None) -> Unit | None:
    from hushgraph.privacy import units

    if name is None:
        return None
    return units.by_name(name, **({} if max_degree is None else {"max_degree": max_degree}))


def ledger_to_charge(folder: Path | None) -> Ledger:
    """The ledger that a command charges; says so beforehand where it is the user's own, which is easily overlooked."""
    from hushgraph.ledger.project import default_ledger, user_folder

    book = default_ledger(folder)
    if folder is None and book.folder is not None and book.folder.absolute() == user_folder().absolute():
        tell(
            f"no project here: charged is your own ledger, {book.folder}. `hushgraph init` makes one for this "
            "folder; --ledger DIR, or HUSHGRAPH_LEDGER, names another"
        )
    return book


def occasion_of(operator: str | None, purpose: str, **declared: Any) -> Occasion:
    """The occasion that the options of a command describe."""
    from hushgraph.ledger.occasion import Occasion, default_operator

    return Occasion(operator=operator or default_operator(), purpose=purpose, **declared)


WIDTH = 80


def lines(found: dict[str, Any]) -> list[str]:
    """Totals of every dataset, then the runs, then what was refused."""
    shown = [line for dataset in found["datasets"] for line in _dataset(dataset)]
    if found["runs"]:
        shown += [
            "",
            f"runs (the last {len(found['runs'])} of {found['runs_in_all']}, newest last)",
            *_run_table(found),
        ]
    if found["refused"]:
        shown += ["", f"refused (the last {len(found['refused'])} of {found['refused_in_all']})"]
        shown += [line for one in found["refused"] for line in _refusal(one)]
    place = found["folder"] or "in memory"
    return [*shown, "", *_wrapped(f"ledger {place}: {found['entries']} entries, last hash {found['hash'][:16]}...")]


def _dataset(dataset: dict[str, Any]) -> list[str]:
    from hushgraph.ledger.statement import limit_words, pending_words

    others = [name for name in dataset["names"] if name != dataset["dataset"]]
    shown = _wrapped(f"dataset {dataset['dataset']}" + (f" (also called {', '.join(others)})" if others else ""))
    shown += _wrapped(pending_words(dataset), "  ")
    for total in dataset["totals"]:
        parameters = settings_in_words({key: value for key, value in total["unit"].items() if key != "name"})
        unit = total["unit"]["name"] + (f" ({parameters})" if parameters else "")
        shown += _wrapped(f"total per {unit}: {total['words']}", "  ")
        shown += _wrapped(total["reason"], "    ")
        shown += _wrapped(_limit(total["limit"]), "    ")
        for limit in total["limits"][1:]:
            shown += _wrapped(f"limit {limit_words(limit)}", "      ")
    return shown


def _limit(limit: dict[str, Any] | None) -> str:
    if limit is None:
        return "no limit declared"
    why = f": {limit['purpose']}" if limit["purpose"] else ""
    return f"limit {limit['epsilon']:g} at delta {limit['delta']:g}, set by {limit['operator']}{why}"


def _run_table(found: dict[str, Any]) -> list[str]:
    columns = "{:<9}{:<12}{:<13}{:<17}{:>8}  {:<}"
    shown = [columns.format("run", "when", "method", "unit", "epsilon", "state")]
    for run in found["runs"]:
        method = run["method"] if run["chosen"] is None else run["chosen"]
        when = run["time"][5:16].replace("T", " ")
        epsilon = rounded_up(float(run["epsilon"]))
        cells = (run["run"][:8], when, method[:12], run["unit"]["name"][:16], epsilon, _state(run))
        shown.append(columns.format(*cells))
        shown += _wrapped(_who(run), "         ")
    return shown


def _who(run: dict[str, Any]) -> str:
    from hushgraph.ledger.statement import sign_off_words

    words = f"{run['dataset']}, by {run['operator']}" + (f": {run['purpose']}" if run["purpose"] else "")
    if run["model_path"]:
        words += f"; model {run['model_path']}"
    if run["group"]:
        words += f"; group {run['group']}"
    return words + (f"; {signed}" if (signed := sign_off_words(run)) else "")


def _state(run: dict[str, Any]) -> str:
    if run["counts"] == "left out":
        return "left out"
    if run["seeded"]:
        return "NOT PRIVATE: seeded"
    if run["counts"] == "unproved":
        return "NO GUARANTEE"
    return "closed" if run["closed"] else "open (all counts)"


def _refusal(one: dict[str, Any]) -> list[str]:
    from hushgraph.ledger.limits import cause_in_words

    words = f"{one['time'][5:16].replace('T', ' ')}  {one['method']} on {one['dataset']}, by {one['operator']}: "
    asked = f"epsilon {rounded_up(float(one['epsilon']))} for '{one['unit']['name']}', {cause_in_words(one['cause'])}"
    return _wrapped(words + asked, "  ")


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
