"""How commands speak: words or JSON on standard output, errors with the right exit code, progress on a terminal."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer

from hushgraph import registry
from hushgraph.errors import HushgraphError, InputError
from hushgraph.files.writing import plain, require_writable
from hushgraph.text import visible

STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C."""
WIDTH = 80
"""Columns of a terminal that everybody has."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method or unit; repeatable.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:PLACE", help="Show the run in tensorboard:FOLDER or mlflow:URI when it ends; repeatable."
    ),
]
TrackEvaluation = Annotated[
    bool, typer.Option("--track-evaluation", help="Also send figures on the data's labels, which are not private.")
]

P = ParamSpec("P")


def known(kind: registry.Kind) -> Callable[[str], list[str]]:
    """What a shell offers to complete a word: the names of a kind."""
    return lambda incomplete: [name for name in registry.names(kind) if name.startswith(incomplete)]


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Turn library errors into a message and the exit code that belongs to them."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except HushgraphError as error:
            _fail(str(error), error.exit_code, error, kwargs.get("as_json"))
        except KeyboardInterrupt as stopped:
            words = str(stopped) or "stopped. What was charged stays charged; see `hushgraph ledger show`"
            if kwargs.get("as_json"):
                show_json({"error": words, "kind": "KeyboardInterrupt", "exit_code": STOPPED})
            tell(f"hushgraph: {words}")
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:  # whoever read the output has stopped; what was to be done is done
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, MemoryError) as error:
            _fail(_system_words(error), InputError.exit_code, error, kwargs.get("as_json"))
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            _fail(_system_words(MemoryError()), InputError.exit_code, error, kwargs.get("as_json"))

    return wrapped


def _is_out_of_memory(error: RuntimeError) -> bool:
    """PyTorch has no error of its own for it on a CPU."""
    return "can't allocate memory" in str(error) or "out of memory" in str(error)


def _fail(words: str, code: int, error: BaseException, as_json: Any) -> NoReturn:
    if as_json:
        show_json({"error": words, "kind": type(error).__name__, "exit_code": code})
    tell(f"hushgraph: {words}")
    raise typer.Exit(code) from None


def _system_words(error: OSError | MemoryError) -> str:
    """What the system refused, and where things stand."""
    if isinstance(error, MemoryError):
        what = "out of memory. Use a smaller graph, smaller batches or a machine with more memory"
    else:
        place = "" if error.filename is None else f"{error.filename}: "
        what = (
            f"{place}could not be read or written ({error.strerror or error}). Check the path, its rights and the disk"
        )
    return f"{what}. Nothing more was written; what was charged stays charged: see `hushgraph ledger show`"


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line; what a terminal would obey in it is written out."""
    typer.echo(visible(str(text)), err=err, nl=nl)


def show_json(values: dict[str, Any]) -> None:
    """Print one JSON object; infinity is written as the string "inf"."""
    typer.echo(json.dumps(plain(values), indent=2, allow_nan=False))


def tell(text: str) -> None:
    """A line for people beside the output, on standard error."""
    echo(_wrapped(text), err=True)


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
    echo(_wrapped(text, indent))


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> None:
    """Print columns as wide as their widest cell, those with numbers aligned right; an empty line follows."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if place in numeric else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ]
        echo("  " + "  ".join(cells).rstrip())
    echo()


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


def require_model(folder: Path) -> None:
    """Refuse a folder that is not there, before anything large is imported."""
    if not folder.exists():
        raise InputError(f"expected a trained model in {folder}; there is no such folder; check the path")


def require_new_folder(folder: Path) -> None:
    """Never write over what is there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: expected a new or empty folder; {folder} is not. Name another, or remove it first")
    require_writable(folder)


@contextlib.contextmanager
def progress_bar(quiet: bool, first: str = "starting") -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar per stage on standard error, when that is a terminal; one that moves, `first`, until a stage begins."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:>14}"),
        BarColumn(24),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}
        waiting = bars.add_task(first, total=None, count="")

        def report(stage: str, done: int, total: int) -> None:
            bars.update(waiting, visible=False)
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None, count="")
            count = f"{done:,}/{total:,}" if total else f"{done:,}"
            bars.update(tasks[stage], completed=done, total=total or None, count=count)

        yield report
