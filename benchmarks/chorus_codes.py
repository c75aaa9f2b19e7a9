"""Chorus with codes beside Chorus: CPU seconds of a fit, and their ratio, measured in turn in one run.

    python benchmarks/chorus_codes.py [--json]                  Berkeley13, both levels (needs HUSHGRAPH_DATA)
    python benchmarks/chorus_codes.py --nodes 1e6 --edges 5e7   a graph made at random, node level; needs no data

The graph made at random has 6 classes, neighbors of the same class half of the time, and 16 features; edges are
directed entries. `--classes 40` asks for more. Each fit has a ledger of its own in memory, and the least of several
runs counts: others can only add to a time. `--accuracy` also prints test accuracy beside that of features alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import hushgraph as hg
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="a ledger in memory")
LEVELS = {
    "edge": (hg.units.UndirectedEdge(), hg.Budget(1.0)),
    "node": (hg.units.Node(), hg.Budget(8.0)),
}


def made(nodes: int, edges: int, classes: int, train: float = 0.75, agree: float = 0.5, seed: int = 0) -> CheckedGraph:
    """A graph without an order: every node draws its class, and every edge an end of the same class or any."""
    from torch_geometric.data import Data

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, nodes)
    order = np.argsort(labels, kind="stable").astype(np.int64)
    starts = np.searchsorted(labels[order], np.arange(classes + 1))
    half = edges // 2
    source = rng.integers(0, nodes, half)
    same = order[starts[labels[source]] + (rng.random(half) * np.diff(starts)[labels[source]]).astype(np.int64)]
    target = np.where(rng.random(half) < agree, same, rng.integers(0, nodes, half))
    del same
    both = torch.from_numpy(np.stack([np.concatenate([source, target]), np.concatenate([target, source])]))
    del source, target
    centers = rng.normal(size=(classes, 16)) * 0.5
    features = torch.from_numpy((centers[labels] + rng.normal(size=(nodes, 16))).astype(np.float32))
    draw = torch.from_numpy(rng.random(nodes))
    masks = draw < train, (draw >= train) & (draw < train + 0.1), draw >= train + 0.1
    data = Data(x=features, edge_index=both, y=torch.from_numpy(labels))
    data.train_mask, data.val_mask, data.test_mask = masks
    data.class_names = [f"class {number}" for number in range(classes)]
    return check_graph(data)


def compared(graph: CheckedGraph, level: str, repeats: int, accuracy: bool) -> dict[str, Any]:
    """Both methods in turn."""
    unit, budget = LEVELS[level]
    alone: hg.Method = hg.MLP() if level == "edge" else hg.DPMLP()
    methods: list[hg.Method] = [hg.Chorus(), hg.ChorusCodes(), *([alone] if accuracy else [])]
    seconds: dict[str, list[float]] = {method.name: [] for method in methods}
    right: dict[str, list[float]] = {method.name: [] for method in methods}
    for seed in range(repeats):
        for method in methods:
            started = time.process_time()
            model = method.fit(graph, unit, budget, ledger=Ledger(), seed=seed)
            seconds[method.name].append(time.process_time() - started)
            right[method.name].append(float(model.metrics["accuracy"]["test"]))
    found: dict[str, Any] = {f"{name}, CPU s": min(times) for name, times in seconds.items()}
    found["chorus-codes / chorus"] = min(seconds["chorus-codes"]) / min(seconds["chorus"])
    found["peak MiB of the process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if accuracy:
        found |= {f"{name}, test accuracy": sum(values) / len(values) for name, values in right.items()}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=float, help="make a graph of so many nodes instead of reading Berkeley13")
    parser.add_argument("--edges", type=float, default=5e7)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--train", type=float, default=0.75, help="share of training nodes")
    parser.add_argument("--agree", type=float, default=0.5, help="share of edges within a class by design")
    parser.add_argument("--levels", nargs="*", choices=list(LEVELS))
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.nodes:
        graph = made(int(asked.nodes), int(asked.edges), asked.classes, asked.train, asked.agree)
        levels, repeats = asked.levels or ["node"], asked.repeats or 1
    else:
        graph = check_graph(hg.datasets.load("facebook100/Berkeley13", split="facebook100/Berkeley13-split"))
        levels, repeats = asked.levels or list(LEVELS), asked.repeats or 5
    found = {level: compared(graph, level, repeats, asked.accuracy) for level in levels}
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for level, values in found.items():
        print(f"{level} level")
        print("\n".join(f"  {name}: {value:.3g}" for name, value in values.items()))


if __name__ == "__main__":
    main()
