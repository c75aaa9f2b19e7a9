"""Whole fits against another version of the project: the ratio of their CPU times, measured in turn.

git worktree add /tmp/older COMMIT && python benchmarks/versions.py --against /tmp/older/src
    [--graph campus] [--methods GAP ProGAP] [--levels edge node] [--ledgers memory reused new] [--rounds 15]

Each version has a process of its own that has loaded the graph and made one fit of the kind before it is timed. They
then make fits in turn, this one first in every second round. Printed are the median CPU seconds of both, the ratio of
the medians (below 1: this version needs less) and the middle half of the ratios of single rounds. `memory` is a ledger
in memory, `new` a new ledger for every fit, `reused` one that has held runs before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

OWN = Path(__file__).resolve().parents[1] / "src"
METHODS = ("GAP", "ProGAP", "Chorus", "DPMLP", "DPGNN")
LEDGERS = ("memory", "reused", "new")
NEED_NODES = ("DPMLP", "DPGNN")


class Worker:
    """A process that makes fits with one version."""

    def __init__(self, source: Path, graph: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--worker", graph]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def fit(self, method: str, level: str, ledger: str) -> float:
        """The CPU seconds of one fit."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, level, ledger]) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def work(name: str) -> None:
    """Fits as they are asked for on standard input, one line each; the answer is the CPU time."""
    import torch

    import hushgraph as hg

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    split = {"split": f"{name}-split"} if "/" in name else {}
    graph = hg.datasets.load(name, **split)
    if not hasattr(graph, "class_names"):
        graph.num_classes = int(graph.y.max()) + 1
    with tempfile.TemporaryDirectory() as folder:
        used: dict[str, Any] = {}
        for number, line in enumerate(sys.stdin):
            method, level, ledger = json.loads(line)
            unit = hg.units.UndirectedEdge() if level == "edge" else hg.units.Node()
            book = hg.Ledger() if ledger == "memory" else hg.Ledger(Path(folder) / f"{number}")
            if ledger == "reused":
                book = used.setdefault(f"{method} {level}", book)
            started = time.process_time()
            getattr(hg, method)().fit(graph, unit, hg.Budget(4.0, 1e-6), ledger=book)
            print(time.process_time() - started, flush=True)


def compare(workers: list[Worker], case: tuple[str, str, str], rounds: int) -> None:
    """Print one line: both medians, their ratio, and how ratios of rounds spread."""
    for worker in workers:
        worker.fit(*case)
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds[which].append(workers[which].fit(*case))
    own, other = (statistics.median(one) for one in seconds)
    low, _, high = statistics.quantiles([a / b for a, b in zip(*seconds, strict=True)], n=4)
    print(
        f"{' '.join(case):24} {own:8.3f} s {other:8.3f} s   {own / other:5.2f}   ({low:.2f} to {high:.2f})", flush=True
    )


def main() -> None:
    """Compare every method at every level with every kind of ledger."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", type=Path, help="the folder `src` of the other version")
    parser.add_argument("--graph", default="campus")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--levels", nargs="*", default=("edge", "node"), choices=("edge", "node"))
    parser.add_argument("--ledgers", nargs="*", default=LEDGERS, choices=LEDGERS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        return work(given.worker)
    if given.against is None or not (given.against / "hushgraph").is_dir():
        parser.error(f"--against: expected a folder with the package hushgraph; got {given.against}")
    workers = [Worker(source.resolve(), given.graph) for source in (OWN, given.against)]
    print(f"{given.graph:24} {'this':>10} {'other':>10}   ratio   (middle half of the rounds)")
    for method in given.methods:
        for level in given.levels:
            if level == "node" or method not in NEED_NODES:
                for ledger in given.ledgers:
                    compare(workers, (method, level, ledger), given.rounds)
    for worker in workers:
        worker.process.communicate()
    return None


if __name__ == "__main__":
    main()
