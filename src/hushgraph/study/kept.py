"""Results as text that can be versioned: `results/NAME.jsonl` beside the study, one line for each run.

A store is a file of this machine. What is kept goes with the study: tables, plots and documents take from there what
the store does not have. A run is found by what it is, which includes the bytes of its data files; their hashes are kept
too (`results/contents.json`), so that results can be shown where the data is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError
from hushgraph.files.writing import number, plain, write_whole
from hushgraph.study.axes import file_contents
from hushgraph.study.cell import Cell, digest
from hushgraph.study.store import Result, State

if TYPE_CHECKING:
    from hushgraph.study.spec import Study

_DIGITS = 6
_CONTENTS = "contents.json"


def kept_file(study: Study) -> Path:
    """Where the results of a study are kept."""
    return study.folder / "results" / f"{study.name}.jsonl"


def read_contents(folder: Path) -> dict[str, str]:
    """The hashes of the data files that kept results are of, by their names."""
    path = folder / "results" / _CONTENTS
    if not path.is_file():
        return {}
    try:
        return {str(name): str(value) for name, value in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError) as error:
        raise InputError(f"{path}: expected names and hashes of data files; got another file. Restore it") from error


def read_kept(study: Study) -> dict[str, Result]:
    """What is kept, by the identity of the cell."""
    path = kept_file(study)
    if not path.is_file():
        return {}
    try:
        return {line["identity"]: _read(line) for line in map(json.loads, path.read_text().splitlines())}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: expected one kept run a line; got another file ({error}). Restore it") from error


def keep(study: Study, ended: Iterable[tuple[Cell, Result | None]]) -> Path:
    """Write every cell of the study that was done or refused; what no cell of the study asks for is left out."""
    lines = {digest(cell.identity()): _line(cell, one) for cell, one in ended if _lasts(one)}
    path = kept_file(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets = [one for part in study.parts for one in part.datasets if one is not None]
    sources = [source for one in datasets for source in (one.load, one.split)]
    contents = {**read_contents(study.folder), **file_contents(*sources)}
    write_whole(path.with_name(_CONTENTS), json.dumps(dict(sorted(contents.items())), indent=1) + "\n")
    return write_whole(path, "".join(f"{line}\n" for line in lines.values()))


def shortened(one: Result | None) -> Result | None:
    """A result with as many digits as are kept: a page is the same from a store and from what is kept of it."""
    if one is None:
        return None
    metrics = {name: None if value is None else _short(value) for name, value in one.metrics.items()}
    return replace(one, metrics=metrics, seconds=_short(one.seconds))


def _lasts(one: Result | None) -> bool:
    return one is not None and one.state is not State.FAILED


def _line(cell: Cell, one: Any) -> str:
    one = shortened(one)
    facts = {"run": str(cell), "identity": digest(cell.identity()), "code": one.code, "state": one.state.value}
    rest = {"metrics": plain(one.metrics), "message": one.message.strip(), "seconds": one.seconds}
    return json.dumps({**facts, **rest})


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _read(line: dict[str, Any]) -> Result:
    metrics = {name: number(value) for name, value in line["metrics"].items()}
    return Result("", line["code"], State(line["state"]), metrics, {}, line["message"], line["seconds"], 0.0)
