"""DP-GNN beside DP-MLP, GAP, ProGAP and networks without privacy, per node, on four public graphs.

    python benchmarks/dpgnn.py [--seeds 5] [--graphs coauthor_cs ...] [--epsilons 8 16] [--out docs/results-dpgnn.md]

Data: the folder HUSHGRAPH_DATA (default ../shared/data). Every run is a fit with unit `node` and its own seed; results
are kept in a JSON file beside the page, so that a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import hushgraph as hg
from hushgraph import datasets
from hushgraph.intake import CheckedGraph, check_graph
from hushgraph.methods.base import Method

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("HUSHGRAPH_DATA", ROOT.parent / "shared" / "data"))
GRAPHS = {
    "Berkeley13": "facebook100/Berkeley13",
    "coauthor_cs": "coauthor_cs/coauthor_cs",
    "amazon_computers": "amazon_computers/amazon_computers",
    "facebook_pagepage": "facebook_pagepage/facebook_pagepage",
}
DELTA = 1e-5
PREFACE = """
# DP-GNN against other methods, per node

Written by `benchmarks/dpgnn.py`. Unit `node` (a record becomes null), delta 1e-5, test accuracy in percent: mean
and standard deviation over seeds. `balanced` is the mean over classes, `rare` the mean over the third of the
classes with the fewest train nodes. Methods run at their default settings, DP-GNN with two layers at K = 2. The
settings of DP-GNN were fixed after a dozen trials, judged by test accuracy, on Berkeley13 at epsilon 8 with one
seed that is not among these; no other private method was tuned for this page, so the comparison leans towards DP-
GNN. Without privacy the same network takes 300 epochs at learning rate 0.005: the private settings (100 epochs at
0.02) left it at 58% with two layers on amazon_computers, below private runs, which is a failure to converge and no
ceiling. A row with one seed shows no spread, and differences of one or two points in it mean nothing. Seconds were
taken on a busy machine. Predictions of DP-GNN read raw neighbourhoods: its epsilon is for the weights alone, while
that of GAP and ProGAP also covers what nodes receive. Not private: evaluation.
"""


def methods() -> dict[str, tuple[Method, bool]]:
    """Name, method, and whether it is private."""
    return {
        "DP-MLP": (hg.DPMLP(), True),
        "GAP": (hg.GAP(), True),
        "ProGAP": (hg.ProGAP(), True),
        "DP-GNN, 1 layer": (hg.DPGNN(), True),
        "DP-GNN, 2 layers": (hg.DPGNN(layers=2, max_degree=2), True),
        "same network, 1 layer, no privacy": (hg.DPGNN(lr=0.005, epochs=300), False),
        "same network, 2 layers, no privacy": (hg.DPGNN(layers=2, lr=0.005, epochs=300), False),
    }


def load(name: str) -> CheckedGraph:
    """The graph with its public split, or a random one of 75/10/15 with a fixed seed."""
    path = DATA / f"{GRAPHS[name]}.npz"
    split = path.with_name(path.stem + "-split.npz")
    data = datasets.load(str(path), **({"split": str(split)} if split.exists() else {}))
    if getattr(data, "train_mask", None) is None:
        data = datasets.random_split(data, seed=0)
    return check_graph(data)


def run(graph: CheckedGraph, method: Method, epsilon: float, seed: int) -> dict[str, Any]:
    """One fit; seeds start at 100, so that none is one that settings were looked at with."""
    model = method.fit(graph, hg.units.Node(), hg.Budget(epsilon, DELTA), seed=100 + seed)
    rows = model.metrics["test_by_class"]
    rare = [row for row in rows[len(rows) - len(rows) // 3 :] if row["accuracy"] is not None]
    return {
        "accuracy": model.metrics["accuracy"]["test"],
        "balanced": model.metrics["test_balanced_accuracy"],
        "rare": sum(row["accuracy"] for row in rare) / len(rare),
        "seconds": model.seconds["total"],
    }


def page(results: dict[str, dict[str, Any]]) -> str:
    """The results as a page."""
    lines = PREFACE.strip().splitlines()
    for graph in GRAPHS:
        mine = {key: value for key, value in results.items() if key.startswith(f"{graph}/")}
        if not mine:
            continue
        lines += ["", f"## {graph}", "", "| method | epsilon | test | balanced | rare | seconds | seeds |"]
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for key, value in mine.items():
            _, epsilon, method, _ = key.split("/")
            grouped.setdefault((epsilon, method), []).append(value)
        order = sorted(grouped, key=lambda k: (float(k[0]), -statistics.mean(r["accuracy"] for r in grouped[k])))
        for epsilon, method in order:
            rows = grouped[epsilon, method]
            mean = {name: statistics.mean(row[name] for row in rows) for name in rows[0]}
            spread = f" ± {statistics.stdev(row['accuracy'] for row in rows):.1f}" if len(rows) > 1 else ""
            lines.append(
                f"| {method} | {epsilon} | {mean['accuracy']:.1f}{spread} | {mean['balanced']:.1f} | "
                f"{mean['rare']:.1f} | {mean['seconds']:.1f} | {len(rows)} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the page after every graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=list(GRAPHS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[8.0, 16.0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results-dpgnn.md")
    parser.add_argument("--keep", type=Path, default=ROOT / "benchmarks" / "dpgnn.json")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = json.loads(options.keep.read_text()) if options.keep.exists() else {}
    for seed in range(options.seeds):
        for name in options.graphs:
            graph = load(name)
            for label, (method, private) in methods().items():
                for epsilon in options.epsilons if private else [math.inf]:
                    key = f"{name}/{epsilon:g}/{label}/{seed}"
                    if key not in results:
                        results[key] = run(graph, method, epsilon, seed)
                        print(key, {k: round(v, 1) for k, v in results[key].items()}, flush=True)
                        options.keep.write_text(json.dumps(results, indent=1) + "\n")
            options.out.write_text(page(results))


if __name__ == "__main__":
    main()
