"""`hushgraph methods`: what there is to train, and the settings of one method."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import typer

from hushgraph.cli.console import Json, command, show_json


@command
def methods(
    name: Annotated[str | None, typer.Argument(help="A method; its settings (for --set) are shown.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or the settings of one with their defaults."""
    from hushgraph.registry import METHODS, method_class

    if name is None:
        records = [_record(method_class(known)) for known in METHODS]
        show_json({"methods": records}) if as_json else _show_all(records)
        return
    kind = method_class(name)
    settings = {field.name: field.default for field in dataclasses.fields(kind)}
    shown = {**_record(kind), "settings": settings, "about": inspect.cleandoc(kind.__doc__ or "")}
    show_json(shown) if as_json else _show_one(shown)


def _record(kind: Any) -> dict[str, Any]:
    return {"name": kind.name, "summary": kind.summary, "units": sorted(kind.units)}


def _show_all(records: list[dict[str, Any]]) -> None:
    for record in records:
        typer.echo(f"{record['name']:<10} {record['summary']}")
    typer.echo("\n`hushgraph methods NAME` shows the settings of one.")


def _show_one(shown: dict[str, Any]) -> None:
    typer.echo(f"{shown['name']}: {shown['summary']}\nunits: {', '.join(shown['units'])}\n\n{shown['about']}\n")
    for setting, default in shown["settings"].items():
        typer.echo(f"  --set {setting}={'(by rule)' if default is None else default}")
