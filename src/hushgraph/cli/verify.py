"""`hushgraph verify`: is a model's folder what the ledger says it is?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli.console import Json, command, echo, require_model, show_json, show_words


@command
def verify(
    model: Annotated[Path, typer.Argument(help="The folder that `train` wrote.")],
    ledger: Annotated[Path | None, typer.Option(help="The ledger's folder; default: the model's project's.")] = None,
    as_json: Json = False,
) -> None:
    """Check every file, and recompute epsilon from the ledger.

    Exit code 0 verified, 5 not verified, 6 rejected by the last signer, 4 contradicted.
    """
    require_model(model)
    from hushgraph.ledger.manifest import verify_model
    from hushgraph.ledger.project import default_ledger

    found = verify_model(model, default_ledger(ledger, near=model))
    if as_json:
        show_json({"model": str(model), **found.as_dict()})
    else:
        echo(f"{model}: {found.headline}")
        for finding in found.findings:
            show_words(f"  {finding}", indent=16)
    raise typer.Exit(found.exit_code)
