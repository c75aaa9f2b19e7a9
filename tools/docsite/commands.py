"""Pages of the command line, one for each first word, from the commands themselves."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from docsite.markdown import table
from hushgraph.cli import app


@cache
def _commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def names() -> list[str]:
    """The first words."""
    return list(_commands())


def index() -> str:
    """All commands with a line for each."""
    rows = [
        [f"[`hushgraph {name}`]({name}.md)", one.get_short_help_str(limit=200)] for name, one in _commands().items()
    ]
    head = "# Command line\n\nEvery command has `--help`; those that answer something have `--json`. "
    return f"{head}[Exit codes](../exit-codes.md) say how it went.\n\n{table(['command', 'what it does'], rows)}"


def page(name: str) -> str:
    """One command, or a group with its commands."""
    return "\n".join(_written(_commands()[name], f"hushgraph {name}", depth=1))


def _written(command: Any, called: str, depth: int) -> list[str]:
    inner = getattr(command, "commands", {})
    lines = [f"{'#' * depth} `{called}`\n", f"{_help(command)}\n"]
    if not inner:
        shown = " ".join(_usage(one) for one in command.params if one.param_type_name == "argument")
        lines += ["```text", f"{called} {shown} [OPTIONS]".replace("  ", " "), "```\n", _parameters(command)]
    for name, one in inner.items():
        lines += _written(one, f"{called} {name}", depth + 1)
    return lines


def _help(command: Any) -> str:
    paragraphs = (command.help or "").replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _usage(argument: Any) -> str:
    shown = (argument.metavar or argument.name).upper()
    return shown if argument.required else f"[{shown}]"


def _parameters(command: Any) -> str:
    rows = []
    for one in command.params:
        if getattr(one, "hidden", False) or one.name == "help":
            continue
        if one.param_type_name == "argument":
            called = f"`{(one.metavar or one.name).upper()}`"
        else:
            names = [*one.opts, *one.secondary_opts]
            value = "" if one.is_flag else f" {(one.metavar or one.name).upper()}"
            called = f"`{', '.join(names)}{value}`"
        given = one.default is not None and one.default is not False and not callable(one.default) and one.default != ()
        default = "needed" if one.required else f"`{one.default}`" if given else "-"
        rows.append([called, default, (getattr(one, "help", None) or "-").replace("\n", " ")])
    return table(["", "default", "what it says"], rows) if rows else "No options.\n"
