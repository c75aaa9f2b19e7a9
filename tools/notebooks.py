"""Run the notebooks of docs/notebooks and keep what they show: `make notebooks`.

A notebook is run as Jupyter would run it, one cell after the other in one namespace, in an empty folder and without a
kernel of its own: the cells are plain Python. What a cell prints and the value of its last line are its output.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = tuple(sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")))


def read(path: Path) -> dict[str, Any]:
    """A notebook, as it is in its file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, run in the working directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        count += 1
        cells.append({**cell, "execution_count": count, "outputs": _run_cell(source(cell), names, count)})
    return {**notebook, "cells": cells}


def _run_cell(text: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, then the value of its last line, if that is an expression."""
    parsed = ast.parse(text)
    last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(parsed, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


@contextlib.contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder of its own for a notebook, with its own ledger."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        own = {"HUSHGRAPH_LEDGER": str(Path(folder) / ".hushgraph"), "HUSHGRAPH_OPERATOR": "ann@example.org"}
        with mock.patch.dict(os.environ, own):
            yield Path(folder)


def main() -> None:
    """Run all notebooks and write their outputs."""
    for path in NOTEBOOKS:
        with empty_folder():
            done = run(read(path))
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
