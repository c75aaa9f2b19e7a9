"""Per-root private step against the non-private step on the same rooted subgraphs.

    python benchmarks/rooted.py [--batch 10000] [--repeats 5] [--json FILE]

Both steps run the same network on the same roots in turn, one thread, and both update with Adam; the private one also
clips per root and adds noise. The plain step is measured in chunks and in one piece, and the faster one counts. Memory
is the rise of the process's peak during the private step, measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise import perturb
from hushgraph.noise.source import NoiseSource
from hushgraph.training.optimizers import FlatParameters, make_optimizer
from hushgraph.training.rooted import RootedClippedGradient

torch.set_num_threads(1)
NODES, FEATURES, HIDDEN, CLASSES = 60_000, 128, 256, 40
CASES = (("gcn", 7, 1), ("gcn", 3, 2), ("gin", 7, 1), ("attention", 7, 1), ("attention", 3, 2))


class Case:
    """A random graph whose lists have exactly K entries, a network, and the two steps."""

    def __init__(self, convolution: str, max_degree: int, layers: int, batch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        targets = torch.randint(NODES - 1, (NODES, max_degree), generator=generator)
        sources = torch.arange(NODES).unsqueeze(1).expand_as(targets)
        targets = targets + (targets >= sources)
        edges = MemoryEdges.from_edge_index(torch.stack((sources.reshape(-1), targets.reshape(-1))), NODES).coalesce()
        self.roots = torch.randperm(NODES, generator=generator)[:batch].sort().values
        self.subgraphs = RootedSubgraphs(edges, self.roots, layers)
        self.features = torch.randn(NODES, FEATURES, generator=generator)
        self.labels = torch.randint(CLASSES, (batch,), generator=generator)
        heads = 8 if convolution == "attention" else 1
        self.network = RootedNetwork(
            FEATURES, HIDDEN, CLASSES, num_layers=layers, convolution=convolution, heads=heads, generator=generator
        )
        self.positions = torch.arange(batch)
        self.engine = RootedClippedGradient(self.network, self.subgraphs, self.features, self.labels, max_grad_norm=1.0)
        self.noise = NoiseSource.seeded(0).stream("benchmark")

    def private_step(self, flat: FlatParameters, update) -> None:  # type: ignore[no-untyped-def]
        """Clip per root, sum, noise, update."""
        total = perturb(self.engine.sum(self.positions), 10.0, self.noise)
        update.step(total.div_(len(self.positions)))

    def plain_step(self, flat: FlatParameters, update, chunk: int) -> None:  # type: ignore[no-untyped-def]
        """Mean loss over the same roots by autograd, in chunks whose gradients add up."""
        flat.gradient.zero_()
        for part in self.positions.split(chunk):
            batch = self.subgraphs.batch(part)
            scores = self.network(self.features[batch.nodes], batch)
            F.cross_entropy(scores, self.labels[part], reduction="sum").backward()
        update.step(flat.gradient.div_(len(self.positions)))


def seconds(run: Callable[[], None]) -> float:
    """Wall-clock time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measure(convolution: str, max_degree: int, layers: int, batch: int, repeats: int) -> dict[str, float]:
    """Medians of steps taken in turn."""
    case = Case(convolution, max_degree, layers, batch)
    times: dict[str, list[float]] = {"private": [], "plain in chunks": [], "plain in one piece": []}
    with FlatParameters(case.network) as flat:
        flat.collect_gradients()
        update = make_optimizer("adam", flat.vector, 1e-3, 0.0)
        for repeat in range(repeats + 1):
            found = {
                "private": seconds(lambda: case.private_step(flat, update)),
                "plain in chunks": seconds(lambda: case.plain_step(flat, update, 1_000)),
                "plain in one piece": seconds(lambda: case.plain_step(flat, update, batch)),
            }
            for name, value in found.items() if repeat else ():
                times[name].append(value)
    medians = {name: statistics.median(values) for name, values in times.items()}
    plain = min(medians["plain in chunks"], medians["plain in one piece"])
    return {**medians, "ratio": medians["private"] / plain}


def extra_memory(convolution: str, max_degree: int, layers: int, batch: int) -> float:
    """MiB by which two private steps raise the peak memory of a fresh process."""
    words = [sys.executable, __file__, "--memory-of", convolution, str(max_degree), str(layers), str(batch)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def print_memory(convolution: str, max_degree: int, layers: int, batch: int) -> None:
    """What `extra_memory` runs in its own process."""
    case = Case(convolution, max_degree, layers, batch)
    with FlatParameters(case.network) as flat:
        update = make_optimizer("adam", flat.vector, 1e-3, 0.0)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building the graph
        before = _status("VmRSS")
        for _ in range(2):
            case.private_step(flat, update)
    print((_status("VmHWM") - before) / 1024)


def _status(name: str) -> int:
    """A line of the process's status, in KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Print the table and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-of", nargs=4)
    options = parser.parse_args()
    if options.memory_of:
        convolution, *sizes = options.memory_of
        return print_memory(convolution, *map(int, sizes))
    print(f"batch {options.batch}, features {FEATURES}, hidden {HIDDEN}, {CLASSES} classes, one thread")
    print("| network | K | layers | plain s (chunks / one piece) | private s | private / plain | extra MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    results = []
    for convolution, max_degree, layers in CASES:
        row = measure(convolution, max_degree, layers, options.batch, options.repeats)
        row["extra MiB"] = extra_memory(convolution, max_degree, layers, options.batch)
        results.append({"network": convolution, "max_degree": max_degree, "layers": layers, **row})
        plain = f"{row['plain in chunks']:.3f} / {row['plain in one piece']:.3f}"
        print(
            f"| {convolution} | {max_degree} | {layers} | {plain}"
            f" | {row['private']:.3f} | {row['ratio']:.2f} | {row['extra MiB']:.0f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
