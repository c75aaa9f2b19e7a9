"""`hushgraph report`: one file about a model, for people or for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli.console import Json, command, echo, require_model, show_json, show_words


@command
def report(
    model: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    out: Annotated[Path | None, typer.Option(help="The file; default: one in the model's folder.")] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="html, markdown, card (a model card), json or deployment (an entry for a registry)."
        ),
    ] = "html",
    audit: Annotated[Path | None, typer.Option(help="What `hushgraph audit` wrote; default: audit.json there.")] = None,
    attacks: Annotated[Path | None, typer.Option(help="What `hushgraph attack` wrote; default: attacks.json.")] = None,
    compare: Annotated[
        list[Path] | None, typer.Option(metavar="MODEL", help="Another model to compare with; repeatable.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger's folder, to check the certificate.")] = None,
    as_json: Json = False,
) -> None:
    """Write a page about a model, or another form of report.

    Exit code 4 if the model is contradicted, 6 if it was rejected.
    """
    require_model(model)
    from hushgraph.ledger.checking import EXIT_CODES, Status
    from hushgraph.report.context import read_context, with_ledger
    from hushgraph.report.page import write_page

    context = with_ledger(read_context(model, audit=audit, attacks=attacks, compare=compare or ()), ledger)
    path = write_page(context, out, form=form)
    state = Status(context.verification or Status.NOT_VERIFIED)
    if as_json:
        show_json({"report": str(path), "verification": state.value, "findings": list(context.findings)})
    else:
        echo(f"{context.headline or state.value}; wrote {path}")
        for finding in context.findings:
            show_words(f"  {finding}", indent=16)
    if state in (Status.CONTRADICTED, Status.REJECTED):
        raise typer.Exit(EXIT_CODES[state])
