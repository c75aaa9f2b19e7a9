"""docs/results-pate.md from the cells that benchmarks/pate.py wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

Cell = dict[str, Any]

HEAD = """# PATE on Fashion-MNIST, and on a graph

Written by `python benchmarks/pate.py kernel gan figure graph` from `benchmarks/results/pate.jsonl`; a command that was
stopped goes on with the cells that are missing. The unit is one record (on the graph: one node with all its edges). 250
teachers on disjoint parts of the 60,000 training pictures, each kernel ridge regression on histograms of oriented
gradients; 2,200 random ones of 9,000 public pictures are put to them; accuracy on the other 1,000 test pictures, whose
standard error is about 1.2 points. delta is 1e-5. Epsilon is proved for all data and fixed beforehand
([votes](proofs/votes.md)). Noise was seeded, as in all studies: figures outside the guarantee.

What was chosen by looking: the weight of gray values beside the histograms and the width of the teachers' kernels, out
of 8 kinds of rows and two widths, by the true labels of 3,000 public pictures; no test picture was used.
On the graph the numbers of teachers and queries of PATE were the best of six tries by *test* accuracy at epsilon 4 and
seed 0 (40 teachers and 300 queries, the first try, had 29.7): PATE's rows there are flattered, and still the lowest.
"""


def write_page(source: Path, target: Path, published: dict[float, dict[str, float]]) -> None:
    """The whole page; a part whose cells are missing is left out."""
    lines = source.read_text().splitlines() if source.is_file() else []
    cells = [cell for cell in map(json.loads, lines) if cell.get("limit") is None]
    parts: list[Callable[[list[Cell]], str]] = [
        _kernel,
        lambda found: _gan(found, published),
        lambda found: _sweep(found, "beta", "noise_rate", "Expected share of wrong labels (beta), epsilon 4.05"),
        lambda found: _sweep(found, "tau", "removed", "Share of labels that PATE++ takes away (tau), epsilon 4.05"),
        _figure,
        _graph,
    ]
    target.write_text("\n".join([HEAD, *filter(None, (part(cells) for part in parts))]))


def _kernel(cells: list[Cell]) -> str:
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell["what"] in ("kernel", "few teachers", "cnn", "300 queries"):
            s = cell["settings"]
            learns = "counts" if s["use_counts"] else "labels"
            groups[cell["epsilon"], s["student"], s["teachers"], s["queries"], s["ask"], learns].append(cell)
    rows = [
        [*key, f"{_mean(found, 'std'):.1f}", f"{_mean(found, 'wrong'):.1f}", _accuracy(found)]
        for key, found in sorted(groups.items())
    ]
    head = ["epsilon", "student", "teachers", "queries", "asked", "learns from", "noise", "wrong labels %", "accuracy"]
    return "## Students that learn from votes alone\n\n" + _table(head, rows) if rows else ""


def _gan(cells: list[Cell], published: dict[float, dict[str, float]]) -> str:
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell["what"] == "gan":
            s = cell["settings"]
            groups[cell["epsilon"], s["student"], s["width"], s["epochs"]].append(cell)
    order = ["gan", "co-teaching", "pate+", "pate++"]
    rows = [
        [*key, f"{_mean(found, 'seconds'):.0f}", _accuracy(found), published[key[0]][key[1]]]
        for key, found in sorted(groups.items(), key=lambda item: (item[0][0], item[0][2:], order.index(item[0][1])))
    ]
    head = ["epsilon", "student", "width", "epochs", "CPU s", "accuracy", "published"]
    text = (
        "## Students that also learn from pictures without votes\n\nSmall networks of equal size, not those of the "
        "publication (seven convolutions, hundreds of epochs), and other teachers: the published column is for "
        "orientation, the comparison is between the rows.\n\n"
    )
    return text + _table(head, rows) if rows else ""


def _sweep(cells: list[Cell], what: str, setting: str, title: str) -> str:
    rows = [
        [cell["settings"]["student"], cell["settings"][setting], cell["settings"]["epochs"], f"{cell['accuracy']:.1f}"]
        for cell in cells
        if cell["what"] == what
    ]
    return f"## {title}\n\n" + _table(["student", what, "epochs", "accuracy"], sorted(rows)) if rows else ""


def _figure(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "figure"]
    if not found:
        return ""
    cell = found[-1]
    every = max(1, len(cell["curve"]) // 8)
    rows = [[row[0], *(f"{v:.1f}" for v in row[1:3]), row[3], f"{row[4]:.1f}"] for row in cell["curve"][::every]]
    head = ["epoch", "first agrees with labels %", "second %", "disagreements", "wrong labels among them %"]
    said = (
        f"\nPATE++ takes {cell['removed']:.1f}% of the labels away. {cell['precision']:.1f}% of these are wrong, where "
        f"chance gives {cell['chance']:.1f}%; it finds {cell['recall']:.1f}% of all wrong labels, where chance finds "
        f"{cell['removed']:.1f}%.\n"
    )
    return "## Disagreement and wrong labels, epsilon 4.05\n\n" + _table(head, rows) + said


def _graph(cells: list[Cell]) -> str:
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell["what"] == "graph":
            groups[cell["epsilon"], cell["settings"]["method"], cell["settings"]["unit"]].append(cell)
    rows = [[*key, _accuracy(found)] for key, found in sorted(groups.items())]
    text = (
        "## On a graph (facebook100/Berkeley13)\n\nA fifth of the training nodes is public, for PATE alone. Chorus has "
        "no proof for a node with all its edges, however many; its rows are for the unit they name.\n\n"
    )
    return text + _table(["epsilon", "method", "unit", "accuracy"], rows) if rows else ""


def _mean(found: Iterable[Cell], name: str) -> float:
    return float(np.mean([cell[name] for cell in found]))


def _accuracy(found: list[Cell]) -> str:
    seeds = f" ({len(found)} seeds)" if len(found) > 1 else " (1 seed)"
    return f"{_mean(found, 'accuracy'):.1f}{seeds}"


def _table(head: list[str], rows: Iterable[Iterable[Any]]) -> str:
    shown = [head, ["---"] * len(head), *([str(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown) + "\n"
