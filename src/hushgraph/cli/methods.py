"""`hushgraph methods`: what there is to train, and the settings of one method."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import typer

from hushgraph import registry
from hushgraph.cli.console import WIDTH, Json, command, echo, known, show_json, show_words
from hushgraph.cli.deferred import deferred


@command
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="A method; its settings (for --set) are shown.", autocompletion=known("methods")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or the settings of one with their defaults and what they do."""
    with deferred():
        kinds = [registry.load("methods", known) for known in ([name] if name else registry.names("methods"))]
    if name is None:
        show_json({"methods": [_record(kind) for kind in kinds]}) if as_json else _show_all(kinds)
        return
    (kind,) = kinds
    shown = {**_record(kind), "about": inspect.cleandoc(kind.__doc__ or ""), **settings_of(kind)}
    show_json(shown) if as_json else _show_one(shown)


def _record(kind: Any) -> dict[str, Any]:
    return {"name": kind.name, "summary": kind.summary, "paper": kind.paper, "units": kind.units()}


def settings_of(kind: Any) -> dict[str, Any]:
    """Defaults, constraints, help and older names of all settings."""
    fields = [field for field in dataclasses.fields(kind) if field.init and not field.metadata.get("in_python")]
    return {
        "settings": {field.name: field.default for field in fields},
        "help": {field.name: _help(field) for field in fields},
        "aliases": dict(kind.aliases),
        "unit_settings": {name: found for name in kind.units() if (found := _defaults(registry.load("units", name)))},
    }


def _defaults(kind: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(kind) if field.init}


def _help(field: dataclasses.Field[Any]) -> str:
    """What a setting does, and what it may be."""
    rules = field.metadata.get("rules", {})
    bounds = {"least": "at least", "above": "above", "below": "below"}
    limits = [f"{word} {rules[key]:g}" for key, word in bounds.items() if rules.get(key) is not None]
    among = f"one of {', '.join(rules['among'])}" if rules.get("among") else ""
    return "; ".join(part for part in (field.metadata.get("help", ""), among, " and ".join(limits)) if part)


def _typed(default: Any) -> str:
    """A default as --set takes it; what a rule chooses is `auto`."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return ",".join(str(part) for part in default)
    return "auto" if default is None else str(default)


def _show_all(kinds: list[Any]) -> None:
    for kind in kinds:
        show_words(f"{kind.name:<13} {kind.summary}", indent=14)
    show_words("\n`hushgraph methods NAME` shows the settings of one.")


def _show_one(shown: dict[str, Any]) -> None:
    units = ", ".join(shown["units"]) or "none: it has no privacy proof and needs --epsilon inf"
    show_words(f"{shown['name']}: {shown['summary']}")
    show_words(f"units: {units}", indent=7)
    show_words(f"from: {shown['paper']}\n", indent=6)
    for paragraph in shown["about"].split("\n\n"):
        show_words(" ".join(paragraph.split()) + "\n")
    for name, default in shown["settings"].items():
        echo(f"  --set {name}={_typed(default)}"[:WIDTH])
        if shown["help"][name]:
            show_words(f"        {shown['help'][name]}", indent=8)
    for unit, found in shown["unit_settings"].items():
        settings = " ".join(f"--set {name}={_typed(default)}" for name, default in found.items())
        show_words(f"  with --unit {unit}: {settings}", indent=8)
    if shown["aliases"]:
        older = ", ".join(f"{old} = {new}" for old, new in shown["aliases"].items())
        show_words(f"\nolder names: {older}", indent=13)
