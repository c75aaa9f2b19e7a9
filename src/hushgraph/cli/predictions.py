"""Files of predictions: a line per node with the user's id and class names (CSV, Parquet), or arrays (npz)."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.files.writing import told_if_unwritable

if TYPE_CHECKING:
    from torch import Tensor

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet runs."""


def write_predictions(
    out: Path,
    probabilities: Tensor,
    classes: Tensor,
    class_names: Sequence[str],
    ids: np.ndarray | None,
    values: Tensor | None = None,
    *,
    for_spreadsheet: bool = False,
) -> None:
    """Write the file, whole or not at all. Without `ids`, nodes are called by their number.

    `classes` is a class number for each node, or 0 and 1 for each class where a node may have several; `values` are
    predicted numbers, where classes are parts of a range.
    """
    found = probabilities.numpy()
    called = np.arange(len(found)) if ids is None else ids
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with told_if_unwritable(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            named = columns(called, found, classes.numpy(), list(class_names))
            if values is not None:
                named = {"id": named.pop("id"), "value": values.numpy(), **named}
            if for_spreadsheet:
                named = {as_text(name): _as_texts(values) for name, values in named.items()}
            FORMATS[out.suffix](unfinished, named, found, classes.numpy(), list(class_names))
            os.replace(unfinished, out)
    finally:
        unfinished.unlink(missing_ok=True)


def run_by_spreadsheets(words: np.ndarray | Sequence[str] | None) -> int:
    """How many words a spreadsheet would take for a formula."""
    found = np.asarray([] if words is None else words)
    return sum(word.startswith(_FORMULAS) for word in found.tolist()) if found.dtype.kind in "UO" else 0


def as_text(word: str) -> str:
    """The word with an apostrophe before it, if a spreadsheet would take it for a formula."""
    return f"'{word}" if word.startswith(_FORMULAS) else word


def _as_texts(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "UO":
        return values
    return np.array([as_text(str(word)) for word in values.tolist()], dtype=object)


def columns(called: np.ndarray, found: np.ndarray, classes: np.ndarray, class_names: list[str]) -> dict[str, Any]:
    """The id, the class by its name (several: with semicolons between), and a probability for every class."""
    names = np.array(class_names, dtype=object)
    if classes.ndim == 1:
        best = names[classes] if len(found) else np.empty(0, dtype=object)
    else:
        best = np.array(["; ".join(names[row == 1]) for row in classes], dtype=object)
    shares = {f"p({name})": found[:, number] for number, name in enumerate(class_names)}
    return {"id": called, "class": best, **shares}


def _csv(path: Path, named: dict[str, Any], *_: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(named)
        writer.writerows(zip(*(values.tolist() for values in named.values())))


def _parquet(path: Path, named: dict[str, Any], *_: Any) -> None:
    from hushgraph.importing.tables import arrow

    pa = arrow()
    from pyarrow import parquet

    parquet.write_table(pa.table({name: values.tolist() for name, values in named.items()}), path)


def _npz(path: Path, named: dict[str, Any], found: np.ndarray, classes: np.ndarray, class_names: list[str]) -> None:
    with path.open("wb") as file:
        arrays: dict[str, Any] = {"probabilities": found, "classes": classes, "ids": named["id"]}
        arrays |= {"values": named["value"]} if "value" in named else {}
        np.savez_compressed(file, class_names=np.array(class_names, dtype=np.str_), **arrays)


FORMATS: dict[str, Callable[[Path, dict[str, Any], np.ndarray, np.ndarray, list[str]], None]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
}
"""How a file is written, by the end of its name."""
