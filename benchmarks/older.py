"""Loops over edges against those of 79dc90b, the version before it was rebuilt: ratios of CPU times, measured in turn.

git worktree add --detach /tmp/older 79dc90b && python benchmarks/older.py --against /tmp/older/src
    [--sums 2e7] [--build 1e6 1e7 1e8] [--ingest 1e7] [--rounds 7]

Each version has a process of its own with one thread, and they take turns; what is not measured (random numbers, the
same in both) is made before. Printed are the median CPU seconds of both and how many times faster this version is.

* labels: from the labels of the training nodes to their sums over neighbors, as Chorus needs them before its noise:
  centered at edge level, and divided by the root of the length of the sender's list at node level;
* columns: from 16 learned columns to their sums, as GAP needs them before its noise;
* build: from pairs in any order to sorted lists; both must give the same bytes;
* ingest: from blocks of pairs to a folder of sorted and distinct lists, in 256 MiB; both must give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

OWN = Path(__file__).resolve().parents[1] / "src"
DEGREE, LIMIT, AT_ONCE = 50, 1 << 28, 1 << 22
Task = tuple[Callable[[], Any], Callable[[Any], str]]
"""What is timed, and what must be the same in both versions."""


# What both are given


def pairs(kind: str, entries: int) -> np.ndarray:
    """Sources and targets; in a power law the most popular node receives about a tenth of all edges."""
    draw, nodes = np.random.default_rng(0), entries // DEGREE
    if kind == "uniform":
        return draw.integers(0, nodes, (2, entries))
    return np.stack((draw.integers(0, nodes, entries), (nodes ** draw.random(entries)).astype(np.int64) - 1))


def labels_of(nodes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and who is trained on: three of four."""
    draw = np.random.default_rng(1)
    return draw.integers(0, classes, nodes), draw.random(nodes) < 0.75


def digest(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for one in arrays:
        found.update(np.ascontiguousarray(one, dtype="<i8"))
    return found.hexdigest()


def blocks(edges: Any) -> Iterator[Any]:
    """Edges in parts, without those of a node to itself, which the older version keeps."""
    for first in range(0, edges.shape[1], AT_ONCE):
        part = edges[:, first : first + AT_ONCE]
        yield part[:, part[0] != part[1]].contiguous()


def in_new_folder(write: Callable[[Path], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with tempfile.TemporaryDirectory() as place:
            write(Path(place) / "edges")
            return json.loads((Path(place) / "edges" / "header.json").read_text())["sha256"]

    return run


# What each does


class Now:
    """This version: what to time of each part, for what it is given."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(1)

    @cache  # noqa: B019
    def graph(self, kind: str, entries: int) -> Any:  # noqa: D102
        from hushgraph.graph.edges import MemoryEdges

        return MemoryEdges.from_edge_index(self.torch.from_numpy(pairs(kind, entries)), entries // DEGREE)

    def labels(self, kind: str, entries: int, classes: int, divided: bool) -> Task:  # noqa: D102
        from hushgraph.mechanisms.label_sum import LabelSum

        edges, mechanism = self.graph(kind, entries), LabelSum(0.5, divided=divided, centered=True)
        labels, trained = map(self.torch.from_numpy, labels_of(edges.num_nodes, classes))

        def run() -> Any:
            known = self.torch.where(trained, labels, -1)
            return edges.sum(mechanism.label_messages(edges, known, classes), narrow=True)

        return run, lambda _: ""

    def columns(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.quantized import quantize

        edges = self.graph(kind, entries)
        rows = self.torch.randn(edges.num_nodes, 16, generator=self.torch.Generator().manual_seed(0))
        return lambda: edges.sum(quantize(rows, normalize=True)), lambda _: ""

    def build(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.edges import MemoryEdges

        edges = self.torch.from_numpy(pairs(kind, entries))
        run = lambda: MemoryEdges.from_edge_index(edges, entries // DEGREE)  # noqa: E731
        return run, lambda found: digest(found.offsets.numpy(), found.sources.numpy())

    def ingest(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.disk import DiskEdges

        parts = list(blocks(self.torch.from_numpy(pairs(kind, entries))))
        return in_new_folder(lambda place: DiskEdges.write(place, parts, entries // DEGREE, memory_limit=LIMIT)), str


class Older(Now):
    """79dc90b."""

    @cache  # noqa: B019
    def graph(self, kind: str, entries: int) -> Any:  # noqa: D102
        from hushgraph.graph.csr import InNeighbours

        return InNeighbours.from_edge_index(self.torch.from_numpy(pairs(kind, entries)), entries // DEGREE)

    def labels(self, kind: str, entries: int, classes: int, divided: bool) -> Task:  # noqa: D102
        from hushgraph.accounting.label_sum import LabelSumStage
        from hushgraph.graph.aggregate import sum_in_neighbours

        from hushgraph.mechanisms.label_sum import known_labels, label_messages

        edges, stage = self.graph(kind, entries), LabelSumStage.__new__(LabelSumStage)
        for name, value in (("quiet", 0.5), ("labelled_noise", 1.0), ("shared", divided), ("centred", True)):
            object.__setattr__(stage, name, value)
        labels, trained = map(self.torch.from_numpy, labels_of(edges.num_nodes, classes))

        def run() -> Any:
            rows = known_labels(labels, trained.nonzero().squeeze(1), classes)
            return sum_in_neighbours(edges, label_messages(edges, rows, trained, stage))

        return run, lambda _: ""

    def columns(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.aggregate import sum_in_neighbours

        edges = self.graph(kind, entries)
        rows = self.torch.randn(edges.num_nodes, 16, generator=self.torch.Generator().manual_seed(0))
        return lambda: sum_in_neighbours(edges, self.torch.nn.functional.normalize(rows, dim=1)), lambda _: ""

    def build(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.csr import InNeighbours

        edges = self.torch.from_numpy(pairs(kind, entries))
        run = lambda: InNeighbours.from_edge_index(edges, entries // DEGREE)  # noqa: E731
        return run, lambda found: digest(found.offsets.numpy(), found.sources.numpy())

    def ingest(self, kind: str, entries: int) -> Task:  # noqa: D102
        from hushgraph.graph.store import ingest

        parts = list(blocks(self.torch.from_numpy(pairs(kind, entries))))
        return in_new_folder(lambda place: ingest(parts, place, num_nodes=entries // DEGREE, memory_limit=LIMIT)), str


# How


def work(side: Now) -> None:
    """Tasks as they are asked for on standard input, one line each: a new one is made ready, the last one timed."""
    task: Task = (lambda: None, str)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is not None:
            task = getattr(side, asked[0])(*asked[1:])
            said: Any = task[1](task[0]())
        else:
            started = time.process_time()
            task[0]()
            said = time.process_time() - started
        print(json.dumps(said), flush=True)


class Worker:
    """A process with one version."""

    def __init__(self, source: Path, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", name], env=environment, **pipes)

    def ask(self, task: list[Any] | None) -> Any:
        """Make a task ready and do it once: what must be the same. None: do it again, for its CPU seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare(workers: list[Worker], task: list[Any], rounds: int) -> float:
    """Print one line; the CPU seconds of this version."""
    results = [worker.ask(task) for worker in workers]
    assert results[0] == results[1], task
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds[which].append(workers[which].ask(None))
    own, other = (statistics.median(one) for one in seconds)
    name = " ".join(str(part) for part in task)
    print(f"{name:40} {own:8.3f} s {other:8.3f} s   {other / own:6.2f} times as fast", flush=True)
    return own


def main() -> None:
    """All parts at all sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", type=Path, help="the folder `src` of 79dc90b")
    parser.add_argument("--sums", type=float, nargs="*", default=[2e7])
    parser.add_argument("--build", type=float, nargs="*", default=[1e6, 1e7], help="1e8 takes 8 GB")
    parser.add_argument("--ingest", type=float, nargs="*", default=[1e7])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", choices=("now", "older"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        return work({"now": Now, "older": Older}[given.worker]())
    if given.against is None or not (given.against / "hushgraph" / "graph" / "csr.py").is_file():
        parser.error(f"--against: expected the folder `src` of 79dc90b; got {given.against}")
    workers = [Worker(source.resolve(), name) for source, name in ((OWN, "now"), (given.against, "older"))]
    for kind in ("uniform", "power law"):
        for entries in map(int, given.sums):
            for classes in (10, 40):
                for divided in (False, True):
                    compare(workers, ["labels", kind, entries, classes, divided], given.rounds)
            compare(workers, ["columns", kind, entries], given.rounds)
    built = {size: compare(workers, ["build", "uniform", size], min(3, given.rounds)) for size in map(int, given.build)}
    if len(built) > 1:
        slope = np.polyfit(np.log(list(built)), np.log(list(built.values())), 1)[0]
        print(f"build: seconds grow with the power {slope:.2f} of the number of entries")
    for entries in map(int, given.ingest):
        compare(workers, ["ingest", "uniform", entries], min(3, given.rounds))
    for worker in workers:
        worker.process.communicate()
    return None


if __name__ == "__main__":
    main()
