"""The command `hushgraph report RUN_DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write; default: report.html in the folder.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="What `hushgraph audit` wrote; default: audit.json there.")] = None,
    attacks: Annotated[Path | None, typer.Option(help="What `hushgraph attack` wrote; default: attacks.json.")] = None,
    compare: Annotated[list[Path] | None, typer.Option(help="Another model to compare with; may be repeated.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger's folder, to check the certificate.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write one HTML file about a model that opens offline."""
    from hushgraph.ledger.manifest import is_charged, require_uncontradicted
    from hushgraph.ledger.project import default_ledger
    from hushgraph.report.page import write_report

    book = default_ledger(ledger)
    require_uncontradicted(run_dir, book)
    if ledger is None and is_charged(run_dir, book):
        ledger = book.folder
    path = write_report(run_dir, out, compare=compare or [], audit=audit, attacks=attacks, ledger=ledger)
    typer.echo(json.dumps({"report": str(path)}) if as_json else f"wrote {path}")
