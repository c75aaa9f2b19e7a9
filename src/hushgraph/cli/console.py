"""How commands speak: words or JSON on standard output, errors with the right exit code, progress on a terminal."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from hushgraph.errors import HushgraphError, InputError
from hushgraph.text import plain

STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C."""
WIDTH = 80
"""Columns of a terminal that everybody has."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method or unit; repeatable.")
]

P = ParamSpec("P")


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Turn library errors into a message and the exit code that belongs to them."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except HushgraphError as error:
            if kwargs.get("as_json"):
                show_json({"error": str(error), "kind": type(error).__name__, "exit_code": error.exit_code})
            tell(f"hushgraph: {error}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            words = "stopped. What was charged stays charged; see `hushgraph ledger show`"
            if kwargs.get("as_json"):
                show_json({"error": words, "kind": "KeyboardInterrupt", "exit_code": STOPPED})
            typer.echo(f"hushgraph: {words}", err=True)
            raise typer.Exit(STOPPED) from None

    return wrapped


def show_json(values: dict[str, Any]) -> None:
    """Print one JSON object; infinity is written as the string "inf"."""
    typer.echo(json.dumps(plain(values), indent=2, allow_nan=False))


def tell(text: str) -> None:
    """A line for people beside the output, on standard error."""
    typer.echo(_wrapped(text), err=True)


def _wrapped(text: str, indent: int = 0) -> str:
    """Lines of at most 80 columns, as `show_words` prints them."""
    lines = []
    for line in text.split("\n"):
        kept = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line.lstrip(),
            WIDTH,
            initial_indent=kept,
            subsequent_indent=" " * (indent or len(kept)),
            break_on_hyphens=False,
            break_long_words=False,
        ) or [""]
    return "\n".join(lines)


def show_words(text: str, indent: int = 0) -> None:
    """Print lines of at most 80 columns; what does not fit goes on below, indented."""
    typer.echo(_wrapped(text, indent))


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> None:
    """Print columns as wide as their widest cell, those with numbers aligned right; an empty line follows."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if place in numeric else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ]
        typer.echo("  " + "  ".join(cells).rstrip())
    typer.echo("")


def words(settings: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` words as a dictionary."""
    found: dict[str, str] = {}
    problems = []
    for word in settings or []:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set: expected KEY=VALUE; got '{word}'")
        elif key.strip() in found:
            problems.append(f"--set: '{key.strip()}' is given twice")
        else:
            found[key.strip()] = value.strip()
    InputError.collect(problems)
    return found


def require_new_folder(folder: Path) -> None:
    """Never write over what is there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: expected a new or empty folder; {folder} is not. Name another, or remove it first")


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar per stage on standard error, when that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:>14}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report
