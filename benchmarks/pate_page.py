"""docs/results-pate.md from the cells that benchmarks/pate.py wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

Cell = dict[str, Any]
Key = tuple[Any, ...]

HEAD = """# PATE on Fashion-MNIST and MNIST

Written by `python benchmarks/pate.py kernel beta tau gan` (and `kernel --data mnist`) from
`benchmarks/results/pate.jsonl`; a command that was stopped or killed goes on with the cells that are missing.
`python benchmarks/pate.py quick` does a little of everything in five minutes. On graphs:
[results-pate-graph.md](results-pate-graph.md).

The unit is one record. 250 or 100 teachers on disjoint parts of the 60,000 training pictures, each kernel ridge
regression on histograms of oriented gradients; 2,200 of 9,000 public pictures are put to them; accuracy on the other
1,000 test pictures, whose standard error is about 1.2 points. delta is 1e-5. Epsilon is proved for all data and fixed
beforehand ([votes](proofs/votes.md)). Noise was seeded, as in all studies: figures outside the guarantee.

What was chosen by looking: the weight of gray values beside the histograms and the width of the teachers' kernels, out
of 8 kinds of rows and two widths, by the true labels of 3,000 public pictures; beta and tau by the true labels of the
6,800 public pictures without votes, with a seed of their own. No test picture was used.
"""


def write_page(cells: list[Cell], target: Path, published: dict[float, dict[str, float]]) -> None:
    """The whole page; a part whose cells are missing is left out."""
    parts = [_kernel(cells), _gan(cells, published), _beta(cells), _tau(cells), _figure(cells)]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join([HEAD, *filter(None, parts)]))


def _kernel(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "kernel"]
    rows = [
        [*key, f"{mean(shown, 'std'):.1f}", f"{mean(shown, 'wrong'):.1f}", accuracy_of(shown)]
        for key, shown in groups_of(found, _way)
    ]
    head = ["data", "epsilon", "student", "teachers", "queries", "asked", "learns from", "noise", "wrong labels %"]
    text = (
        "## Students that learn from votes alone\n\nBy rule a student learns from the counts where the noise of a "
        "count is more than 0.4 of the number of teachers, and from labels elsewhere; both follow from the plan.\n\n"
    )
    return text + table([*head, "accuracy"], rows) if rows else ""


def _way(cell: Cell) -> Key:
    s = cell["settings"]
    learns = "counts" if s["use_counts"] else "labels"
    return cell["data"], cell["epsilon"], s["student"], s["teachers"], s["queries"], s["ask"], learns


def _gan(cells: list[Cell], published: dict[float, dict[str, float]]) -> str:
    order = ["gan", "co-teaching", "pate+", "pate++"]

    def key(cell: Cell) -> Key:
        s = cell["settings"]
        return s["look"], cell["epsilon"], s["width"], s["epochs"], order.index(s["student"])

    rows = [
        [*kind, order[student], f"{mean(shown, 'seconds'):.0f}", accuracy_of(shown), published[kind[1]][order[student]]]
        for (*kind, student), shown in groups_of([cell for cell in cells if cell["what"] == "gan"], key)
    ]
    head = ["sees", "epsilon", "width", "epochs", "student", "CPU s", "accuracy", "published"]
    text = (
        "## Students that also learn from pictures without votes\n\nFashion-MNIST. Small networks of equal size within "
        "a kind, not those of the publication (seven convolutions on pixels, hundreds of epochs), and other teachers: "
        "the published column is for orientation, the comparison is between the rows. On histograms (`hog`) beta and "
        "tau are those chosen below; on pixels they are the published 0.2 and 0.318.\n\n"
    )
    return text + table(head, rows) if rows else ""


def _beta(cells: list[Cell]) -> str:
    rows = _sweep(cells, "beta", lambda cell: (cell["settings"]["student"], cell["settings"]["noise_rate"]))
    head = ["student", "beta", "public pictures", "test pictures"]
    return "## Expected share of wrong labels (beta), epsilon 4.05\n\n" + table(head, rows) if rows else ""


def _tau(cells: list[Cell]) -> str:
    rows = _sweep(cells, "tau", lambda cell: (100.0 * cell["settings"]["removed"],), "precision", "recall", "chance")
    head = ["taken away %", "public pictures", "test pictures", "of these wrong %", "of all wrong found %"]
    text = (
        "## Share of labels that PATE++ takes away (tau), epsilon 4.05\n\nAt random, as many of those taken away would "
        "be wrong as among all, and as many of the wrong would be found as are taken away.\n\n"
    )
    return text + table([*head, "wrong among all %"], rows) if rows else ""


def _sweep(cells: list[Cell], what: str, key: Callable[[Cell], Key], *more: str) -> list[list[str]]:
    found = [cell for cell in cells if cell["what"] == what]
    shown = ("public", "accuracy", *more)
    return [
        [*(f"{part:.3g}" if isinstance(part, float) else part for part in name), *(f"{mean(c, n):.1f}" for n in shown)]
        for name, c in groups_of(found, key)
    ]


def _figure(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "tau"]
    if not found:
        return ""
    curve = found[-1]["curve"]
    every = max(1, len(curve) // 10)
    rows = [[row[0], *(f"{v:.1f}" for v in row[1:3]), row[3], f"{row[4]:.1f}"] for row in curve[::every]]
    head = ["epoch", "first agrees with labels %", "second %", "disagreements", "wrong labels among them %"]
    return "## Disagreement and wrong labels while PATE++ searches, epsilon 4.05\n\n" + table(head, rows)


def groups_of(cells: Iterable[Cell], key: Callable[[Cell], Key]) -> list[tuple[Key, list[Cell]]]:
    """Cells with the same key, in order of the keys."""
    groups: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[key(cell)].append(cell)
    return sorted(groups.items(), key=lambda item: item[0])


def mean(found: Iterable[Cell], name: str) -> float:
    """Over seeds."""
    return float(np.mean([cell[name] for cell in found]))


def accuracy_of(found: list[Cell]) -> str:
    """The mean and over how many seeds."""
    seeds = f" ({len(found)} seeds)" if len(found) > 1 else " (1 seed)"
    return f"{mean(found, 'accuracy'):.1f}{seeds}"


def table(head: list[str], rows: Iterable[Iterable[Any]]) -> str:
    """In Markdown."""
    shown = [head, ["---"] * len(head), *([str(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown) + "\n"
