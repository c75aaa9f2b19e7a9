"""Small tables with string ids, as files, for tests."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

ROLES, CITIES = ["student", "teacher", "staff"], ["Rome", "Oslo", "Lima"]
RULES = ["--numeric", "age=0:120", "--category", "city=Rome,Oslo,Lima"]
IMPORT = ["--id", "person", "--label", "role", "--classes", "student,teacher,staff", *RULES, "--undirected"]


def people(count: int = 60, seed: int = 0) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Columns of nodes and of edges; the last two people have no edge."""
    rng = np.random.default_rng(seed)
    ids = [f"p{number:03d}" for number in range(count)]
    nodes = {
        "person": ids,
        "age": [int(age) for age in rng.integers(15, 90, count)],
        "city": [CITIES[number] for number in rng.integers(0, 3, count)],
        "role": [ROLES[number] for number in rng.integers(0, 3, count)],
    }
    pairs = rng.integers(0, count - 2, (4 * count, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return nodes, {"from": [ids[one] for one, _ in pairs], "to": [ids[other] for _, other in pairs]}


def write_csv(path: Path, columns: dict[str, list[Any]], *, header: bool = True, separator: str = ",") -> Path:
    """Write columns as lines of text."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        if header:
            writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
    return path


def write_people(folder: Path, **given: Any) -> tuple[Path, Path]:
    """`nodes.csv` and `edges.csv` in a folder."""
    nodes, edges = people(**given)
    return write_csv(folder / "nodes.csv", nodes), write_csv(folder / "edges.csv", edges)
