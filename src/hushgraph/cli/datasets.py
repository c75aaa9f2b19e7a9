"""`hushgraph datasets`: what there is to work on."""

from __future__ import annotations

import dataclasses

from hushgraph.cli.console import Json, command, show_json


@command
def datasets(as_json: Json = False) -> None:
    """List the built-in graphs, the files of HUSHGRAPH_DATA, and the public datasets that can be downloaded."""
    from hushgraph.datasets import available

    records = [dataclasses.asdict(record) for record in available()]
    if as_json:
        show_json({"datasets": records})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="datasets")
    for column in ("name", "kind", "nodes", "edges", "classes", "here", "note"):
        table.add_column(column)
    for record in records:
        sizes = ("" if record[key] is None else f"{record[key]:,}" for key in ("nodes", "edges", "classes"))
        table.add_row(
            record["name"], record["kind"], *sizes, "yes" if record["present"] else "no", record["note"] or ""
        )
    Console().print(table)
