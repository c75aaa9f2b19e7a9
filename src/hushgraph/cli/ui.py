"""`hushgraph ui`: a local page with datasets, runs, studies and sign-offs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli.console import Json, command, echo, show_json, show_words
from hushgraph.errors import InputError


@command
def ui(
    folder: Annotated[Path | None, typer.Argument(help="The ledger's folder; default: the project's.")] = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with results of studies; repeatable. Default: the project's, and studies/ in it."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Read-only: show everything, sign nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Serve a page on this machine: what is left of each limit, runs, studies as they run, sign-offs.

    Open the printed address: it holds the key, and nobody without it gets in. Ctrl-C ends it.
    """
    try:
        from hushgraph.ui.access import Access
        from hushgraph.ui.app import listen, serve
        from hushgraph.ui.shell import Desk
    except ImportError as error:
        raise InputError(f"expected the packages of the page; {error}; pip install 'hushgraph[ui]'") from error
    from hushgraph.ledger.project import FOLDER, Project

    place = folder if folder is not None else Project.find().folder
    if folder is not None and not folder.is_dir():
        raise InputError(f"expected the ledger's folder; {folder} is not there; `hushgraph init` makes one")
    home = place.absolute().parent if place.absolute().name == FOLDER else Path.cwd()
    wanted = tuple(studies) if studies else (home, home / "studies")
    if absent := [str(one) for one in studies or [] if not one.is_dir()]:
        raise InputError(f"--studies: expected folders; {', '.join(absent)} is none")
    bound = listen(port)
    access = Access(bound.getsockname()[1])
    if as_json:
        show_json({"address": access.address, "ledger": str(place), "studies": [str(one) for one in wanted]})
    else:
        show_words(f"ledger {place}; studies in {', '.join(str(one) for one in wanted)}", indent=2)
        echo(access.address)
        echo("whoever has this address gets in; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        serve(Desk(place, wanted, read_only=read_only), access, bound)
