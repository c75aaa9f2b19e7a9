"""docs/results-uncapped.md from the cells that benchmarks/uncapped.py wrote."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scipy.stats import t as student

Cell = dict[str, Any]

HEAD = """# A node with all its edges, however many

Written by `python benchmarks/uncapped.py votes choose fit` from `benchmarks/results/uncapped.jsonl`. The unit is
`node-with-edges`: one node, its features, its label and every edge it has are replaced by an empty node; no list is cut
and no degree is promised. delta is 1e-5. Accuracy in percent on test nodes (the stored split for Berkeley13 and
Cornell5, a random 75/10/15 one elsewhere). Runs are seeded, hence not private: they measure accuracy.
"""
FIT = """## Quorum and models of features

Mean ± half of the 95% interval over seeds (Student's t), the number of seeds in brackets. `linear` is Quorum's model of
features with all of the budget and without votes (`vote_noise=100 strength=0`): what is above it is what the edges add.
Votes pay where nodes have many labeled neighbors; where they have few, they cost more of the budget than they bring.
"""
VOTES = """## How much of the neighbors' labels survives

The class with the largest noisy sum of neighbors' labels, without any model, the whole budget spent on the sum; mean of
5 draws of the noise.

- *balanced*: the weights of [balance](proofs/balance.md), capacity 16;
- *all receivers*: weights 1; a node can reach every receiver, so the bound is the root of their number;
- *truncated*: nodes of more than D neighbors dropped, the best of D = 2, 4, ..., 1024 **for each figure, by
  hindsight**, with noise in proportion to what one node does on this very graph. A sound release needs a smooth
  bound of that (Kasiviswanathan et al. 2013; Blocki et al. 2013), hence more noise: the figures are above what can be
  reached;
- *owned record*: **another, weaker unit** (`node`: entries of other lists that name the node stay): messages divided by
  the root of the sender's list, as Chorus does. For orientation.
"""
CHOOSE = """## How the settings were chosen

Mean *validation* accuracy over seeds on graphs that are not in the tables above; no setting was compared on test nodes
or on the graphs above. The defaults are `vote_noise=0.8 strength=6`, with `capacity=16 lr=0.1 batch_size=512`. How
votes are read was decided on these graphs too: a classifier of votes that is trained on a quarter of the training
nodes, as Chorus does it, and a strength that is estimated for every node from the length of its sum, were no better on
most. Test accuracy on the graphs above was seen once before, with the second of these: its losses on pubmed and
coauthor_cs were the reason to look for another reading, which was then chosen here.
"""


def write_page(cells: list[Cell], target: Path) -> None:
    """The whole page; a part whose cells are missing is left out."""
    parts = [HEAD, _fit(cells), _votes(cells), _choose(cells)]
    target.write_text("\n".join(part for part in parts if part))


def _fit(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "fit"]
    labels = _ordered(found, "label")
    rows = [
        [graph, f"{epsilon:g}", *(_interval(_values(found, graph, epsilon, label)) for label in labels)]
        for graph in _ordered(found, "graph")
        for epsilon in sorted(set(_ordered(found, "epsilon")))
    ]
    return f"{FIT}\n{_table(['graph', 'epsilon', *labels], rows)}\n{_losses(found)}" if rows else ""


def _losses(found: list[Cell]) -> str:
    """Every pair in which Quorum's mean is below that of DP-MLP."""
    lost = []
    for graph in _ordered(found, "graph"):
        for epsilon in sorted(set(_ordered(found, "epsilon"))):
            ours, theirs = (_values(found, graph, epsilon, label) for label in ("quorum", "dp-mlp"))
            if ours and theirs and statistics.mean(ours) < statistics.mean(theirs):
                lost.append(f"{graph} at epsilon {epsilon:g} by {statistics.mean(theirs) - statistics.mean(ours):.1f}")
    return f"Quorum is below DP-MLP on {'; '.join(lost)}.\n" if lost else "Quorum is nowhere below DP-MLP.\n"


def _votes(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "votes"]
    ideas = ["balanced", "all receivers", "truncated", "owned record"]
    rows = []
    for graph in _ordered(found, "graph"):
        for epsilon in sorted(set(_ordered(found, "epsilon"))):
            here = [cell for cell in found if (cell["graph"], cell["epsilon"]) == (graph, epsilon)]
            best = {idea: [c for c in here if c["label"].startswith(idea)] for idea in ideas}
            top = [max(best[idea], key=lambda cell: float(cell["accuracy"])) for idea in ideas]
            at = top[2]["label"].removeprefix("truncated at ")
            shown = [f"{cell['accuracy']:.1f}" for cell in top]
            rows.append([graph, f"{epsilon:g}", *shown[:2], f"{shown[2]} (D = {at})", shown[3]])
    return f"{VOTES}\n{_table(['graph', 'epsilon', *ideas], rows)}" if rows else ""


def _choose(cells: list[Cell]) -> str:
    found = [cell for cell in cells if cell["what"] == "choose"]
    pairs = [(graph, epsilon) for graph in _ordered(found, "graph") for epsilon in (1.0, 4.0)]
    rows = []
    for label in _ordered(found, "label"):
        means = [_mean(_values(found, graph, epsilon, label)) for graph, epsilon in pairs]
        rows.append([label, *means])
    return f"{CHOOSE}\n{_table(['settings', *(f'{g}, epsilon {e:g}' for g, e in pairs)], rows)}" if rows else ""


def _ordered(cells: list[Cell], field: str) -> list[Any]:
    return list(dict.fromkeys(cell[field] for cell in cells))


def _values(cells: list[Cell], graph: str, epsilon: float, label: str) -> list[float]:
    wanted = (graph, epsilon, label)
    return [cell["accuracy"] for cell in cells if (cell["graph"], cell["epsilon"], cell["label"]) == wanted]


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}" if values else "not run"


def _interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{_mean(values)} ({len(values)})" if values else "not run"
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{_mean(values)} ± {half:.1f} ({len(values)})"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"
