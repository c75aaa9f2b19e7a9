"""`hushgraph datasets`: what there is to work on."""

from __future__ import annotations

import dataclasses
from typing import Any

from hushgraph.cli.console import Json, command, echo, show_json, show_table, show_words

_KINDS = {"built-in": "built in", "file": "files of HUSHGRAPH_DATA", "download": "public, downloaded on first use"}


@command
def datasets(as_json: Json = False) -> None:
    """List the built-in graphs, the files of HUSHGRAPH_DATA, and the public datasets that can be downloaded."""
    from hushgraph.datasets import available

    records = [dataclasses.asdict(record) for record in available()]
    if as_json:
        show_json({"datasets": records})
        return
    for kind in dict.fromkeys(record["kind"] for record in records):
        _show(_KINDS.get(kind, kind), [record for record in records if record["kind"] == kind])


def _show(title: str, records: list[dict[str, Any]]) -> None:
    """One kind of dataset: a table, and below it what is worth knowing about single ones."""
    echo(title + "\n")
    rows = [[record["name"], *_sizes(record), "yes" if record["present"] else "no"] for record in records]
    show_table(["name", "nodes", "edges", "classes", "here"], rows, numeric=(1, 2, 3))
    notes = [record for record in records if record["note"]]
    for record in notes:
        show_words(f"  {record['name']}: {record['note']}", indent=4)
    if notes:
        echo("")


def _sizes(record: dict[str, Any]) -> list[str]:
    return ["" if record[key] is None else f"{record[key]:,}" for key in ("nodes", "edges", "classes")]
