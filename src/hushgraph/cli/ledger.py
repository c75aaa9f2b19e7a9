"""`hushgraph ledger`: read, verify and limit what has been spent on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph.cli.console import Json, command, show_json
from hushgraph.text import rounded_up

app = typer.Typer(help="What has been spent on a dataset.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(help="The ledger's folder.")]
AtDelta = Annotated[float | None, typer.Option(help="Delta for the totals; default: that of the last run.")]


@app.command()
@command
def show(folder: Folder, delta: AtDelta = None, as_json: Json = False) -> None:
    """Show every run with its price, and the total of the dataset."""
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.run import statement

    found = statement(Ledger(folder).history(), delta)
    if as_json:
        show_json(found)
    else:
        _show(found)


@app.command()
@command
def verify(folder: Folder, delta: AtDelta = None, as_json: Json = False) -> None:
    """Check the chain of hashes and every charge, and recompute epsilon from the file alone."""
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.run import check_history, statement

    history = Ledger(folder).history()
    check_history(history)
    found = {"verified": True, "entries": len(history.entries), "hash": history.last_hash, **statement(history, delta)}
    if as_json:
        show_json(found)
        return
    typer.echo(f"verified: {found['entries']} entries, each follows from the one before; last hash {found['hash']}")
    _show(found)


@app.command()
@command
def limit(
    folder: Folder,
    epsilon: Annotated[float, typer.Option(help="Most that may ever be spent on this dataset.")],
    delta: Annotated[float, typer.Option(help="At this delta.")],
    dataset: Annotated[str | None, typer.Option(help="For a new ledger: the dataset's name.")] = None,
    unit: Annotated[str | None, typer.Option(help="For a new ledger: the unit.")] = None,
    max_degree: Annotated[int | None, typer.Option(help="For a new ledger of a node unit.")] = None,
    as_json: Json = False,
) -> None:
    """Declare (or change) the limit on the whole dataset; runs over it are refused with exit code 3."""
    from hushgraph.errors import InputError
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.privacy import units
    from hushgraph.privacy.budget import Budget

    Budget(epsilon, delta)
    book = Ledger(folder)
    if not book.exists:
        if dataset is None or unit is None:
            raise InputError("a new ledger needs --dataset and --unit; or name the folder of an existing one")
        parameters = {} if max_degree is None else {"max_degree": max_degree}
        book.create(dataset, units.by_name(unit, **parameters).as_dict())
    book.set_limit(epsilon, delta)
    if as_json:
        show_json({"folder": str(folder), "limit": {"epsilon": epsilon, "delta": delta}})
    else:
        typer.echo(f"limit set: epsilon {epsilon:g} at delta {delta:g}, from now on")


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"ledger of '{found['dataset']}', unit '{found['unit']['name']}'")
    for column in ("run", "method", "state", "charges", "epsilon", "at delta"):
        table.add_column(column)
    for run in found["runs"]:
        epsilon, charges = rounded_up(float(run["epsilon"])), str(run["charges"])
        method = run["method"] if run["chosen"] is None else f"{run['method']}: {run['chosen']}"
        table.add_row(run["run"], method, run["state"], charges, epsilon, f"{run['delta']:g}")
    console = Console()
    console.print(table)
    total = found["total"]
    limit = found["limit"]
    declared = "no limit declared" if limit is None else f"limit {limit['epsilon']:g} at delta {limit['delta']:g}"
    console.print(
        f"total: epsilon {rounded_up(float(total['epsilon']))} at delta {total['delta']:g}; {declared}", highlight=False
    )
    if found["torn_bytes"]:
        console.print(
            f"a crash left {found['torn_bytes']} bytes of a last line; its run counts as spent", highlight=False
        )
