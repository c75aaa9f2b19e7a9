"""Released graphs: how time and memory grow with what comes out, and accuracy beside methods that release less.

    python benchmarks/perturbed.py --growth
    python benchmarks/perturbed.py [--seeds 3] [--write]

`--growth` prints CPU time and memory of one release for graphs of 20 links a node, and their exponents. Otherwise every
finished fit on Berkeley13 is a row in benchmarks/results/perturbed.json, so the command can be stopped and continued;
`--write` writes docs/results-perturbed.md. Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import count_pairs
from hushgraph.mechanisms import EdgeFlip, NoisyEdges
from hushgraph.methods.base import Method
from hushgraph.noise import NoiseSource

sys.path.insert(0, str(Path(__file__).resolve().parent))
from results import load

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
KEEP = ROOT / "benchmarks" / "results" / "perturbed.json"
PAGE = ROOT / "docs" / "results-perturbed.md"
PREFACE = ROOT / "benchmarks" / "perturbed.md.in"
GRAPH, EPSILONS, FIRST_SEED = "Berkeley13", (1.0, 4.0, 8.0), 100
METHODS: dict[str, Method] = {
    "MLP (no edges)": hg.MLP(),
    "EdgeRand": hg.EdgeRand(),
    "EdgeRand, density kept": hg.EdgeRand(density="kept"),
    "LapGraph": hg.LapGraph(),
    "ARR": hg.ARR(),
    "ARR, GCN": hg.ARR(convolution="gcn"),
    "SAGE-EDP (GAP paper)": hg.SageEDP(),
    "SAGE-EDP (ProGAP paper)": hg.SageEDP(form="progap"),
    "LPGNet": hg.LPGNet(),
    "GAP": hg.GAP(),
    "Chorus": hg.Chorus(),
}

# Growth

Release = Callable[[Any, NoiseSource], MemoryEdges]
NODES, LINKS_PER_NODE = (20_000, 40_000, 80_000, 160_000, 320_000), 20


def releases(nodes: int, epsilon: float) -> dict[str, Release]:
    """The releases at one epsilon, for a graph whose number of links is known; EdgeRand where it is not too dense."""
    flip, pairs, scale = EdgeFlip(), NoisyEdges(), 1.0 / epsilon
    keep = flip.keep_rate(scale, LINKS_PER_NODE * nodes / count_pairs(nodes, undirected=True))
    free = {"EdgeRand": lambda data, noise: flip.release(data, scale, noise)} if epsilon >= EPSILONS[-1] else {}
    return {
        **free,
        "ARR": lambda data, noise: flip.release(data, scale, noise, keep),
        "LapGraph": lambda data, noise: pairs.release(data, scale, noise, LINKS_PER_NODE * nodes),
    }


def graph_of(nodes: int) -> Any:
    """A random graph, as a mechanism sees it."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(nodes, (2, LINKS_PER_NODE * nodes), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]]
    both = torch.cat([pairs, pairs.flip(0)], dim=1)
    edges = MemoryEdges.from_edge_index(both, nodes).coalesce()
    edges.is_symmetric()  # a vault has asked before
    return SimpleNamespace(whole_lists=edges, public_edges=None)


def measured(release: Release, data: Any) -> tuple[int, float, float, float]:
    """Links that come out, CPU seconds of the program and with the system (least of three), peak of memory in MiB."""
    own, both = [], []
    for seed in range(3):
        before = getrusage(RUSAGE_SELF)
        found = release(data, NoiseSource.seeded(seed))
        after = getrusage(RUSAGE_SELF)
        own.append(after.ru_utime - before.ru_utime)
        both.append(own[-1] + after.ru_stime - before.ru_stime)
    tracemalloc.start()
    release(data, NoiseSource.seeded(0))
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return found.num_edges // 2, min(own), min(both), peak


def growth() -> list[str]:
    """One line per release and size, and the exponents of time and memory in the links that come out."""
    data = {nodes: graph_of(nodes) for nodes in NODES}
    lines = ["| release | epsilon | nodes | links out | CPU s | with the system | peak MiB |", "| --- " * 7 + "|"]
    head = "| release | epsilon | exponent of CPU time | with the system | exponent of memory |"
    exponents = [head, "| --- " * 5 + "|"]
    for epsilon in EPSILONS:
        for name in releases(NODES[0], epsilon):
            rows = [(nodes, *measured(releases(nodes, epsilon)[name], data[nodes])) for nodes in NODES]
            for nodes, links, own, both, mib in rows:
                sizes = f"{nodes:,} | {links:,} | {own:.2f} | {both:.2f} | {mib:.0f}"
                lines.append(f"| {name} | {epsilon:g} | {sizes} |")
            _, out, *measures = (np.log(column) for column in np.array(rows, dtype=float).T)
            slopes = [f"{np.polyfit(out, column, 1)[0]:.2f}" for column in measures]
            exponents.append(f"| {name} | {epsilon:g} | {' | '.join(slopes)} |")
    return [*exponents, "", *lines]


# Accuracy


def kept() -> dict[str, dict[str, Any]]:
    """The rows there are: epsilon|method|seed."""
    rows: dict[str, dict[str, Any]] = json.loads(KEEP.read_text()) if KEEP.exists() else {}
    return rows


def run(graph: Any, method: Method, epsilon: float, seed: int) -> dict[str, Any]:
    """One fit, or why it was refused."""
    started = time.process_time()
    try:
        model = method.fit(graph, hg.units.UndirectedEdge(), hg.Budget(epsilon), seed=FIRST_SEED + seed)
    except InputError as error:
        return {"refused": str(error)}
    return {
        "test": round(model.metrics["accuracy"]["test"], 3),
        "edges": model.settings.get("released_edges"),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def fill(seeds: int) -> None:
    """Run what has no row yet, one seed after the other."""
    graph = load(GRAPH, 0.75)
    for seed in range(seeds):
        for epsilon in EPSILONS:
            for label, method in METHODS.items():
                key = f"{epsilon:g}|{label}|{seed}"
                if key not in kept():
                    rows = {**kept(), key: run(graph, method, epsilon, seed)}
                    fresh = KEEP.with_suffix(f".{os.getpid()}.tmp")
                    fresh.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")
                    fresh.replace(KEEP)
                    print(key, rows[key], flush=True)


def shown(rows: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, and how many edges came out."""
    tests = [row["test"] for row in rows if "test" in row]
    if not tests:
        return "refused: too dense" if rows else "not run"
    spread = f" ± {statistics.stdev(tests):.1f}" if len(tests) > 1 else ""
    edges = [row["edges"] for row in rows if row.get("edges")]
    released = f" ({statistics.mean(edges) / 1e6:.2g} M)" if edges else ""
    return f"{statistics.mean(tests):.1f}{spread}{released}"


def table() -> list[str]:
    """One row per method, one column per epsilon."""
    rows = kept()
    lines = ["| method | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " | CPU s |", "| --- " * 5 + "|"]
    for label in METHODS:
        cells = [[row for key, row in rows.items() if key.startswith(f"{e:g}|{label}|")] for e in EPSILONS]
        seconds = [row["cpu_seconds"] for cell in cells for row in cell if "test" in row]
        lines.append(f"| {label} | {' | '.join(map(shown, cells))} | {statistics.mean(seconds or [0]):.0f} |")
    return lines


def main() -> None:
    """Print the growth, run what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="measure time and memory of single releases")
    parser.add_argument("--write", action="store_true", help="write the page from the rows there are, with the growth")
    options = parser.parse_args()
    if options.write:
        parts = [PREFACE.read_text().rstrip(), "", "## Accuracy", "", *table(), "", "## Growth", "", *growth()]
        PAGE.write_text("\n".join(parts) + "\n")
    elif options.growth:
        print("\n".join(growth()))
    else:
        fill(options.seeds)


if __name__ == "__main__":
    main()
