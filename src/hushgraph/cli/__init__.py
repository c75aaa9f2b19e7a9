"""The command line. Each command is a thin shell over the library; heavy imports happen when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from hushgraph import __version__
from hushgraph.cli import (
    attack,
    audit,
    collect,
    datasets,
    describe,
    doctor,
    importing,
    init,
    ledger,
    methods,
    plan,
    predict,
    release,
    report,
    study,
    train,
    ui,
    verify,
)
from hushgraph.cli.console import command
from hushgraph.cli.deferred import expect_one_command

app = typer.Typer(
    name="hushgraph",
    help="Train, audit and report on graph neural networks with differential privacy.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hushgraph {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command("init", short_help="Make the ledger of a project.")(init.init)
app.command("plan", short_help="Show what a method would release, with how much noise.")(plan.plan)
app.command("train", short_help="Train a method on a graph within a privacy budget.")(train.train)
app.command("release", short_help="Write a private replacement of a graph.")(release.release)
app.command("predict")(predict.predict)
app.command("attack")(attack.attack)
app.command("audit")(command(audit.audit))
app.command("report")(report.report)
app.add_typer(study.app, name="study")
app.command("verify")(verify.verify)
app.add_typer(ledger.app, name="ledger")
app.add_typer(collect.app, name="collect")
app.command("ui", short_help="Serve a local page: limits, runs, studies, sign-offs.")(ui.ui)
app.command("methods", short_help="List the methods, or the settings of one.")(methods.methods)
app.command("import", short_help="Import a graph from your own tables.")(importing.import_graph)
app.command("describe", short_help="Describe a graph, and what is private in it.")(describe.describe)
app.command("datasets", short_help="List the graphs that can be loaded by name.")(datasets.datasets)
app.command("doctor", short_help="Check the installation.")(doctor.doctor)


def main() -> None:
    """Entry point of the `hushgraph` command."""
    expect_one_command()
    app(prog_name="hushgraph")
