"""What works for a node with all its edges, however many: writes docs/results-uncapped.md.

python benchmarks/uncapped.py [votes] [choose] [fit] [--datasets Berkeley13 pubmed] [--seeds 5]

`votes` compares ways to bound sums of labels by what noisy sums alone say; `choose` compares settings of Quorum by
validation accuracy on graphs that `fit` does not use; `fit` trains. A finished cell is a line of
benchmarks/results/uncapped.jsonl: a command that was stopped goes on with what is missing; without a part, only the
page is written. Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from data_files import data_file
from uncapped_page import write_page

from hushgraph import datasets
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms import BalancedSum
from hushgraph.methods.base import Method
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.quorum import Quorum
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.units import NodeWithEdges

HERE = Path(__file__).resolve().parent
CELLS, PAGE = HERE / "results" / "uncapped.jsonl", HERE.parent / "docs" / "results-uncapped.md"
FILES = {
    "Berkeley13": "facebook100/Berkeley13.npz",
    "Cornell5": "facebook100/Cornell5.npz",
    "pubmed": "planetoid/pubmed.npz",
    "coauthor_cs": "coauthor_cs/coauthor_cs.npz",
}
OTHERS = {
    "JohnsHopkins55": "facebook100/JohnsHopkins55.npz",
    "BU10": "facebook100/BU10.npz",
    "cora_ml": "cora_ml/cora_ml.npz",
    "amazon_computers": "amazon_computers/amazon_computers.npz",
}
UNIT, EPSILONS, DELTA = NodeWithEdges(), (1.0, 2.0, 4.0, 8.0), 1e-5
METHODS: dict[str, Method] = {
    "dp-mlp": DPMLP(),
    "linear": Quorum(vote_noise=100.0, strength=0.0),
    "quorum": Quorum(),
}
CHOICES: list[dict[str, float]] = [
    {"vote_noise": noise, "strength": strength} for noise in (0.6, 0.8, 1.0) for strength in (4.0, 6.0)
]
CHOICES += [{"capacity": 8.0}, {"capacity": 32.0}, {"lr": 0.15, "batch_size": 1024}]
DRAWS = 5  # of noise, for `votes`
TRUNCATIONS = [2**k for k in range(1, 11)]


def load(name: str) -> CheckedGraph:
    """The graph with its stored split, or a random 75/10/15 one."""
    path = data_file({**FILES, **OTHERS}[name])
    split = path.with_name(f"{path.stem}-split.npz")
    return check_graph(datasets.load(path, split=split if split.exists() else (0.75, 0.10, 0.15), seed=0))


# Ways to bound sums of labels


class Votes:
    """The entries that lead from training nodes to the others, as a matrix, and the labels that are sent."""

    def __init__(self, graph: CheckedGraph) -> None:
        self.graph, self.mechanism = graph, BalancedSum()
        self.trains_on = torch.zeros(graph.metadata.num_nodes, dtype=torch.bool).index_fill_(0, graph.train, True)
        view: Any = _View(graph, self.trains_on)
        self.balance = self.mechanism.weights(view)
        self.entries, self.rows = self.balance.entries, self.mechanism.rows(view)
        self.degree = graph.edges.out_degree().numpy()
        self.sent = np.asarray(self.entries.sum(axis=0)).ravel()

    def ideas(self) -> Iterator[tuple[str, np.ndarray, float]]:
        """Name, sums, and how far one node can move them."""
        yield "balanced", self.balance.sums(self.rows), self.mechanism.sensitivity(UNIT)
        yield "all receivers", self.entries @ self.rows, math.sqrt(int((~self.trains_on).sum()))
        for most in TRUNCATIONS:
            yield f"truncated at {most}", *self.truncated(most)
        divided = self.rows / np.sqrt(np.maximum(self.sent, 1.0))[:, None]
        yield "owned record", self.entries @ divided, 1.0

    def truncated(self, most: int) -> tuple[np.ndarray, float]:
        """Nodes of a higher degree dropped, and less than what one node can do to that on this very graph.

        An empty node that gets an edge to every node of degree exactly `most` has all of them dropped. Noise in
        proportion to a smooth bound of the local change is larger still.
        """
        kept, edge = self.degree <= most, self.degree == most
        sums = kept[:, None] * (self.entries @ (self.rows * kept[:, None]))
        dropped = np.linalg.norm(kept[:, None] * (self.entries @ (self.rows * edge[:, None])))
        return sums, max(float(dropped), math.sqrt(self.sent[kept].max(initial=1.0)))


class _View:
    """As much of a view as the mechanism reads."""

    def __init__(self, graph: CheckedGraph, trains_on: torch.Tensor) -> None:
        self.whole_lists, self.labels, self.metadata = graph.edges, graph.labels, graph.metadata
        self.train, self.trains_on = graph.train, trains_on


def votes(name: str) -> Iterator[dict[str, Any]]:
    """Test accuracy of the class with the largest noisy sum, with the whole budget spent on the sum."""
    graph, rng = load(name), np.random.default_rng(0)
    test, labels = graph.test.numpy(), graph.labels[graph.test].numpy()
    for idea, sums, bound in Votes(graph).ideas():
        for epsilon in EPSILONS:
            std = bound * noise_scale(events.gaussian, UNIT.relation, Budget(epsilon, DELTA))
            noise = rng.standard_normal((DRAWS, len(test), sums.shape[1]))
            right = (sums[test] + std * noise).argmax(axis=2) == labels
            yield {"what": "votes", "graph": name, "label": idea, "epsilon": epsilon, "accuracy": 100 * right.mean()}


# Training


def fits(what: str, name: str, methods: dict[str, Method], seeds: int) -> Iterator[dict[str, Any]]:
    """Test accuracy (`fit`), or validation accuracy alone (`choose`), of what has no line yet."""
    graph, known = None, {_key(cell) for cell in read()}
    for seed in range(seeds):
        for epsilon in EPSILONS if what == "fit" else (1.0, 4.0):
            for label, method in methods.items():
                cell = {"what": what, "graph": name, "label": label, "epsilon": epsilon, "seed": seed}
                if _key(cell) in known:
                    continue
                graph = graph or load(name)
                started = time.process_time()
                accuracy = method.fit(graph, UNIT, Budget(epsilon, DELTA), seed=seed, ledger=Ledger()).metrics[
                    "accuracy"
                ]
                seconds = round(time.process_time() - started, 1)
                yield {**cell, "accuracy": accuracy["test" if what == "fit" else "val"], "cpu_seconds": seconds}


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in ("what", "graph", "label", "epsilon", "seed"))


def read() -> list[dict[str, Any]]:
    """The finished cells; of those measured twice, the last."""
    lines = CELLS.read_text().splitlines() if CELLS.is_file() else []
    return list({_key(cell): cell for cell in map(json.loads, lines)}.values())


def _cells(part: str, name: str, seeds: int) -> Iterator[dict[str, Any]]:
    """What a part measures on one graph."""
    if part == "votes":
        return votes(name)
    if part == "fit":
        return fits("fit", name, METHODS, seeds)
    choices = {" ".join(f"{k}={v:g}" for k, v in one.items()): Quorum(**one) for one in CHOICES}
    return fits("choose", name, {"dp-mlp": DPMLP(), **choices}, min(2, seeds))


def main() -> None:
    """Measure what is asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["votes", "choose", "fit", []], default=[])
    parser.add_argument("--datasets", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    for part in given.parts:
        for name in given.datasets or (OTHERS if part == "choose" else FILES):
            for cell in _cells(part, name, given.seeds):
                with CELLS.open("a") as file:
                    file.write(json.dumps({**cell, "accuracy": round(cell["accuracy"], 2)}) + "\n")
    write_page(read(), PAGE)


if __name__ == "__main__":
    main()
