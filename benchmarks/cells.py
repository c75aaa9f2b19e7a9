"""Measured cells of a study, one JSON line each, written as they come: a command that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

Cell = dict[str, Any]


class Cells:
    """The lines of one file, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.is_file() else []
        self.done: dict[str, Cell] = {cell["key"]: cell for cell in map(json.loads, lines)}

    def measure(self, key: str, make: Callable[..., Cell], *inputs: Any) -> Cell:
        """The cell of this key; made, written and shown unless it is there."""
        if key not in self.done:
            self.done[key] = {"key": key, **make(*inputs)}
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(self.done[key]) + "\n")
            print(key, {name: value for name, value in self.done[key].items() if isinstance(value, float)}, flush=True)
        return self.done[key]

    def where(self, **wanted: Any) -> list[Cell]:
        """Cells with these values, in the order they were written."""
        return [cell for cell in self.done.values() if all(cell.get(name) == value for name, value in wanted.items())]


def mean(cells: list[Cell], name: str, digits: int = 1) -> str:
    """The mean over cells, with the standard deviation where there are several; `-` for none."""
    values = [cell[name] for cell in cells]
    if not values:
        return "-"
    spread = f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
