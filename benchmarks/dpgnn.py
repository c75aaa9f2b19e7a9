"""DP-GNN beside DP-MLP, GAP, ProGAP, Chorus and networks without privacy, per node, on four public graphs.

    python benchmarks/dpgnn.py [--seeds 5] [--graphs coauthor_cs ...] [--methods "DP-GNN, 1 layer" ...] [--write]

Every finished fit is a row in benchmarks/results/dpgnn.json, so the command can be stopped and continued. `--write`
writes docs/results-dpgnn.md from the rows there are; accuracies of the other methods come from the rows of
benchmarks/earlier.py (same graphs, same split, same unit, their own seeds), and only their accuracy per class is
measured here, with one seed. Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import hushgraph as hg
from hushgraph.graph.checks import CheckedGraph
from hushgraph.methods.base import Method
from hushgraph.methods.plain_gnn import GAT, GCN, GIN

sys.path.insert(0, str(Path(__file__).resolve().parent))
from earlier import load, read_rows

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
KEEP = ROOT / "benchmarks" / "results" / "dpgnn.json"
PAGE = ROOT / "docs" / "results-dpgnn.md"
PREFACE = ROOT / "benchmarks" / "dpgnn.md.in"
GRAPHS = ("coauthor_cs", "amazon_computers", "facebook_pagepage", "Berkeley13")
EPSILONS, DELTA, FIRST_SEED = (8.0, 16.0), 1e-5, 100
# Name here, name in the rows of benchmarks/earlier.py, method.
SHARED: dict[str, tuple[str, Method]] = {
    "DP-MLP": ("node|dp-mlp|node", hg.DPMLP()),
    "GAP": ("node|gap|node", hg.GAP()),
    "ProGAP": ("node|progap|node", hg.ProGAP()),
    "Chorus": ("node|chorus|node", hg.Chorus()),
}
PRIVATE: dict[str, Method] = {
    "DP-GNN, 1 layer": hg.DPGNN(),
    "DP-GNN, 2 layers": hg.DPGNN(layers=2),
}
PLAIN: dict[str, Method] = {
    "same network, 1 layer, no privacy": hg.DPGNN(),
    "same network, 2 layers, no privacy": hg.DPGNN(layers=2),
    "GCN, no privacy": GCN(),
    "GIN, no privacy": GIN(),
    "GAT, no privacy": GAT(),
}
SAGE = ("GraphSAGE, no privacy", "sage|sage|undirected-edge|inf")


def run(graph: CheckedGraph, method: Method, epsilon: float, seed: int) -> dict[str, float]:
    """One fit; seeds start at 100, so that none is one that settings were looked at with."""
    started = time.process_time()
    model = method.fit(graph, hg.units.Node(), hg.Budget(epsilon, DELTA), seed=FIRST_SEED + seed)
    seconds = time.process_time() - started
    rows = model.metrics["test_by_class"]
    rare = [row["accuracy"] for row in rows[len(rows) - len(rows) // 3 :] if row["accuracy"] is not None]
    return {
        "test": round(model.metrics["accuracy"]["test"], 3),
        "val": round(model.metrics["accuracy"]["val"], 3),
        "balanced": round(model.metrics["test_balanced_accuracy"], 3),
        "rare": round(sum(rare) / len(rare), 3),
        "cpu_seconds": round(seconds, 1),
    }


def kept() -> dict[str, dict[str, float]]:
    """The rows there are: graph|epsilon|method|seed."""
    rows: dict[str, dict[str, float]] = json.loads(KEEP.read_text()) if KEEP.exists() else {}
    return rows


def jobs(names: list[str]) -> list[tuple[str, Method, tuple[float, ...], int]]:
    """Name, method, epsilons and most seeds of what is to be run; an empty list means all."""
    found: list[tuple[str, Method, tuple[float, ...], int]] = [(n, m, EPSILONS, 99) for n, m in PRIVATE.items()]
    found += [(n, m, (math.inf,), 99) for n, m in PLAIN.items()]
    found += [(n, m, EPSILONS, 1) for n, (_, m) in SHARED.items()]
    return [job for job in found if job[0] in (names or [job[0]])]


def fill(graphs: list[str], names: list[str], seeds: int) -> None:
    """Run what has no row yet, one seed after the other."""
    for seed in range(seeds):
        for graph_name in graphs:
            graph: CheckedGraph | None = None
            for label, method, epsilons, most in jobs(names):
                for epsilon in epsilons if seed < most else ():
                    key = f"{graph_name}|{epsilon:g}|{label}|{seed}"
                    if key in kept():
                        continue
                    graph = graph or load(graph_name, 0.75)
                    row = run(graph, method, epsilon, seed)
                    rows = {**kept(), key: row}  # another process may have added some meanwhile
                    fresh = KEEP.with_suffix(f".{os.getpid()}.tmp")
                    fresh.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")
                    fresh.replace(KEEP)
                    print(key, row, flush=True)


def shared_rows(graph: str, prefix: str, epsilon: float) -> list[dict[str, Any]]:
    """The rows of another table, all seeds."""
    wanted = f"{prefix}|{epsilon:g}|0.75|" if not prefix.endswith("inf") else f"{prefix}|0.75|"
    return [row for key, row in read_rows(graph).items() if key.startswith(wanted)]


def page_line(label: str, epsilon: float, rows: list[dict[str, Any]], by_class: list[dict[str, Any]]) -> str:
    """One line of the table: accuracy and seconds from `rows`, the columns per class from `by_class`."""

    def mean(column: str, of: list[dict[str, Any]]) -> str:
        values = [row[column] for row in of if column in row]
        return f"{statistics.mean(values):.1f}" if values else ""

    tests = [row["test"] for row in rows]
    spread = f" ± {statistics.stdev(tests):.1f}" if len(tests) > 1 else ""
    return (
        f"| {label} | {epsilon:g} | {statistics.mean(tests):.1f}{spread} | {mean('balanced', by_class)} | "
        f"{mean('rare', by_class)} | {mean('cpu_seconds', rows)} | {len(rows)} |"
    )


def table(graph: str) -> list[str]:
    """The table of one graph, best first for every epsilon."""
    mine = kept()
    found: list[tuple[float, float, str]] = []
    for label in [*PRIVATE, *PLAIN, *SHARED, SAGE[0]]:
        for epsilon in (*EPSILONS, math.inf):
            own = [row for key, row in mine.items() if key.startswith(f"{graph}|{epsilon:g}|{label}|")]
            rows = own
            if label in SHARED and epsilon < math.inf:
                rows = shared_rows(graph, SHARED[label][0], epsilon) or own
            elif label == SAGE[0] and epsilon == math.inf:
                rows = shared_rows(graph, SAGE[1], epsilon)
            if rows:
                line = page_line(label, epsilon, rows, own)
                found.append((epsilon, -statistics.mean(row["test"] for row in rows), line))
    head = ["| method | epsilon | test | balanced | rare | CPU s | seeds |", "| --- " * 7 + "|"]
    return [*head, *(line for _, _, line in sorted(found))]


def page() -> str:
    """The results as a page."""
    lines = [PREFACE.read_text().rstrip()]
    for graph in GRAPHS:
        lines += ["", f"## {graph}", "", *table(graph)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--methods", nargs="+", default=[], choices=[*PRIVATE, *PLAIN, *SHARED])
    parser.add_argument("--write", action="store_true", help="write the page from the rows there are and stop")
    options = parser.parse_args()
    if not options.write:
        fill(options.graphs, options.methods, options.seeds)
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
