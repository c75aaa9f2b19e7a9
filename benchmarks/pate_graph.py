"""PATE on graphs beside DP-MLP and Chorus at the same epsilon. Writes docs/results-pate-graph.md.

    python benchmarks/pate_graph.py choose    # teachers and queries, on validation nodes of other graphs
    python benchmarks/pate_graph.py run       # with what was chosen, test nodes of facebook100/Berkeley13
    python benchmarks/pate_graph.py page      # write the page from what is there

Needs HUSHGRAPH_DATA. Everything goes through `fit`. Every cell is a line in benchmarks/results/pate_graph.jsonl; a
command that was stopped goes on with the cells that are missing. Noise is seeded: these are research runs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from pate import append_cell, read_cells
from pate_page import accuracy_of, groups_of, table
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.ledger.ledger import InMemoryLedgerWarning
from hushgraph.methods.base import Method
from hushgraph.methods.pate import PATE

HERE = Path(__file__).parent
CELLS = HERE / "results" / "pate_graph.jsonl"
PAGE = HERE.parent / "docs" / "results-pate-graph.md"
GRAPH, OTHERS = "facebook100/Berkeley13", ("facebook100/Cornell5", "facebook100/BU10")
EPSILONS, DELTA, SEEDS, CHOICE = (4.0, 8.0), 1e-6, (0, 1, 2), 100
TRIED = [(teachers, queries) for teachers in (50, 100, 200, 400) for queries in (300, 1000, 2000)]

HEAD = f"""# PATE on a graph

Written by `python benchmarks/pate_graph.py choose run` from `benchmarks/results/pate_graph.jsonl`. A fifth of the
training nodes of {GRAPH} is public knowledge, features and the edges between them: PATE alone uses that, and it is not
given these nodes' labels. Its teachers know the private nodes of their part, the edges between these, and the edges
from these to public nodes ([votes](proofs/votes.md)). The unit of PATE and DP-MLP is a node with all its edges, however
many; Chorus has no proof for it, and its rows are for the unit they name. Epsilon is the same in a row of the table,
delta is 1e-6. Test accuracy in percent; noise was seeded, as in all studies: figures outside the guarantee.

The numbers of teachers and queries were chosen by the mean accuracy on *validation* nodes of {" and ".join(OTHERS)},
with a seed of its own, for each epsilon; nothing was chosen on {GRAPH}.
"""


def prepared(name: str, seed: int, *, share: bool) -> Data:
    """The graph; with `share`, a fifth of the training nodes is public instead."""
    splits = {"split": f"{name}-split"} if name != "facebook100/BU10" else {"split": (0.75, 0.1, 0.15)}
    data = hg.datasets.load(name, **splits)
    if share:
        train = data.train_mask.nonzero().squeeze(1)
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        public = train[order[: len(train) // 5]]
        data.train_mask[public] = False
        data.public_mask = torch.zeros_like(data.train_mask).index_fill_(0, public, True)
    return data


def neighbors(teachers: int, queries: int) -> PATE:
    """Teachers and student of closed form."""
    return PATE(teachers=teachers, queries=queries, learner="neighbors", student="neighbors", use_counts=True)


class Cells:
    """What is done, and how one more is."""

    def __init__(self) -> None:
        self.lines = read_cells(CELLS)

    def run(self, what: str, name: str, method: Method, unit: hg.units.Unit, epsilon: float, seed: int) -> None:
        """Fit once, unless that was done."""
        asked = f"-{method.teachers}-{method.queries}-{method.learner}" if isinstance(method, PATE) else ""
        key = f"{what}-{method.name}{asked}-{unit.name}-{epsilon}-{seed}" + (f"-{name}" if name != GRAPH else "")
        if key in {line["key"] for line in self.lines}:
            return
        started = time.process_time()
        data = prepared(name, seed, share=isinstance(method, PATE))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InMemoryLedgerWarning)
            model = method.fit(data, unit, hg.Budget(epsilon, DELTA), seed=seed, ledger=hg.Ledger())
        found = model.metrics["accuracy"]
        named: dict[str, Any] = {"method": method.name, "unit": unit.name, "student": method.name}
        if isinstance(method, PATE):
            named |= {"teachers": method.teachers, "queries": method.queries, "learner": method.learner}
        line = {"key": key, "what": what, "data": name, "epsilon": epsilon, "seed": seed, "settings": named}
        line |= {"accuracy": found["test"], "val": found["val"], "seconds": time.process_time() - started}
        append_cell(CELLS, line)
        self.lines.append(line)

    def chosen(self, epsilon: float) -> tuple[int, int]:
        """Teachers and queries with the best mean validation accuracy on other graphs."""
        tried: dict[tuple[int, int], list[float]] = {}
        for line in self.lines:
            if line["what"] == "choose" and line["epsilon"] == epsilon:
                tried.setdefault((line["settings"]["teachers"], line["settings"]["queries"]), []).append(line["val"])
        return max(tried, key=lambda pair: sum(tried[pair]) / len(tried[pair]))


def choose(cells: Cells) -> None:
    """All that is tried, on other graphs."""
    for epsilon in EPSILONS:
        for name in OTHERS:
            for teachers, queries in TRIED:
                cells.run("choose", name, neighbors(teachers, queries), hg.units.NodeWithEdges(), epsilon, CHOICE)


def run(cells: Cells) -> None:
    """The comparison; the first form of PATE on graphs, with networks on parts alone, beside it."""
    for seed in SEEDS:
        for epsilon in EPSILONS:
            teachers, queries = cells.chosen(epsilon)
            networks = PATE(teachers=100, queries=100, learner="gnn", student="gnn", width=32, epochs=100, lr=0.01)
            for method, unit in (
                (neighbors(teachers, queries), hg.units.NodeWithEdges()),
                (hg.DPMLP(), hg.units.NodeWithEdges()),
                (hg.Chorus(), hg.units.Node()),
                *([(networks, hg.units.NodeWithEdges())] if seed == 0 else []),
            ):
                cells.run("graph", GRAPH, method, unit, epsilon, seed)


def page(cells: Cells) -> None:
    """All tables."""
    found = [line for line in cells.lines if line["what"] == "graph"]
    rows = [
        [epsilon, method, shown[0]["settings"].get("learner", ""), unit, accuracy_of(shown)]
        for (epsilon, method, _, unit), shown in groups_of(
            found, lambda line: (line["epsilon"], *_method(line), line["settings"]["unit"])
        )
    ]
    text = [HEAD, "## Test accuracy\n", table(["epsilon", "method", "teachers", "unit", "accuracy"], rows)]
    tried = [line for line in cells.lines if line["what"] == "choose"]
    rows = [
        [*key, *(f"{_val(shown, name):.1f}" for name in OTHERS)]
        for key, shown in groups_of(
            tried, lambda line: (line["epsilon"], line["settings"]["teachers"], line["settings"]["queries"])
        )
    ]
    text += ["## What was tried (validation accuracy)\n", table(["epsilon", "teachers", "queries", *OTHERS], rows)]
    PAGE.write_text("\n".join(text))


def _method(line: dict[str, Any]) -> tuple[str, str]:
    return line["settings"]["method"], line["settings"].get("learner", "")


def _val(lines: list[dict[str, Any]], name: str) -> float:
    return float(next(line["val"] for line in lines if line["data"] == name))


def main() -> None:
    """Run the parts that were named, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["choose", "run", "page"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = Cells()
    for part in options.parts:
        {"choose": choose, "run": run, "page": page}[part](cells)
    page(cells)


if __name__ == "__main__":
    main()
