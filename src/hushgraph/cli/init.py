"""`hushgraph init`: make the project's ledger, and keys for the people who sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli.console import Json, command, echo, show_json, show_words


@command
def init(
    folder: Annotated[Path | None, typer.Argument(help="Where the project is; default: here.")] = None,
    name: Annotated[str | None, typer.Option("--as", help="Make a key for this person, to sign with.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="Where that key goes; default: your own configuration folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make .hushgraph with the ledger of this project's datasets; all commands below this folder use it.

    With --as, the project's ledger gets the public key of a person, who can then approve and reject runs.
    """
    from hushgraph.ledger.keys import person_key
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.project import FOLDER, Project
    from hushgraph.ledger.verify import register

    place = Project.find().folder if folder is None and name is not None else (folder or Path()) / FOLDER
    book = Ledger(place)
    new = not book.exists
    with book.transaction():
        pass
    public = None if name is None else register(book, name, key)
    place_of_key = None if name is None else str(key or person_key(name, place))
    shown = {
        "folder": str(place),
        "new": new,
        "ledger": book.head().ledger,
        "name": name,
        "public_key": public,
        "key": place_of_key,
    }
    if as_json:
        show_json(shown)
        return
    echo(f"{'made' if new else 'found'} {place}: the ledger of all datasets used from here")
    if new:
        show_words(
            "Back it up with its keys, keep it out of version control, and keep `hushgraph ledger head` elsewhere."
        )
    if public is not None:
        echo(f"{name} signs with the key {public[:16]}... in {place_of_key}, which nobody else may read")
