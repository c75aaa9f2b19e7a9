"""The same fit with edges on Ray: equal bytes, what it costs beside one process, and what a second worker brings.

    python benchmarks/workers.py --folder /path/with/room --entries 1e7

It makes the graph of `benchmarks/scale.py` and imports it, if it is not there. Then, on one machine:

* bytes: Chorus at edge and node level with a fixed seed, in this process, by 1, 2 and 4 workers, and with one worker
  killed on the way: whether all tensors of all models are equal, to the last byte;
* sums: exact sums of labels and of 16 columns, from disk by this process with one thread, and by 1 and 2 workers;
* fit: Chorus at edge level, whole, by 1 and 2 workers on Ray, starting the cluster included or not;
* processes: the same, and the sums, by this process and by two others, starting them included or not, in turn;
* threads: the same fit at edge and node level by this process with one thread and with two, in turn, and whether all
  tensors are equal.

Seconds are those on the clock, those of the processor in all processes (this one, Ray's and the workers'), and those of
this process and of the busiest other one, one after the other: what the clock would show if every process had a
processor to itself and no two worked at once. On a busy machine only the latter two mean something. Two numbers beside
each other were measured in one run.

Last, what the rates of this machine say about 100 billion entries on N machines; docs/scale.md has the assumptions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from scale import CLASSES, DEGREE, FEATURES, run_size, stored_labels

TICK = os.sysconf("SC_CLK_TCK")


# What a process and all below it used


def processor_seconds() -> dict[int, float]:
    """Of this process and of each that descends from it and is alive."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(place.name)] = int(fields[1])
            used[int(place.name)] = (int(fields[11]) + int(fields[12])) / TICK
    own, more = {os.getpid()}, True
    while more:
        below = {process for process, parent in parents.items() if parent in own} - own
        own, more = own | below, bool(below)
    return {process: used.get(process, 0.0) for process in own}


def timed(run: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds on the clock, of all processors, and along the longest path: this process, then the busiest other one."""
    wall, before = time.perf_counter(), processor_seconds()
    found = run()
    wall = time.perf_counter() - wall
    spent = {process: after - before.get(process, 0.0) for process, after in processor_seconds().items()}
    longest = spent.pop(os.getpid())
    path = longest + max(spent.values(), default=0.0)
    return {"wall": wall, "cpu": longest + sum(spent.values()), "path": path}, found


def middle(taken: list[dict[str, float]]) -> dict[str, float]:
    return {clock: statistics.median(one[clock] for one in taken) for clock in ("wall", "cpu", "path")}


# The parts


@dataclass
class OneKilled:
    """An executor of which one worker is killed during its second task."""

    inner: Any
    mark: Path

    @property
    def count(self) -> int:  # noqa: D102
        return int(self.inner.count)

    @property
    def is_here(self) -> bool:  # noqa: D102
        return True

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:  # noqa: D102
        yield from self.inner.map(partial(killed_once, function, str(self.mark)), enumerate(tasks), *shared)

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[Any]:  # noqa: D102
        yield from self.inner.each(function, pull)

    def close(self) -> None:  # noqa: D102
        self.inner.close()


def killed_once(function: Callable[..., Any], mark: str, task: tuple[int, Any], *shared: Any) -> Any:
    if task[0] == 1 and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(task[1], *shared)


def digest(graph: str, unit: str, workers: Any) -> str:
    """Of all tensors that a seeded run ends with."""
    import hushgraph as hg
    from hushgraph.methods.folder import flat_tensors

    model = hg.Chorus().fit(graph, unit, 1.0, ledger=hg.Ledger(), seed=1, workers=workers)
    kept = {**model.kept, **({} if model.scores is None else {"scores": model.scores})}
    found = hashlib.sha256()
    for name, tensor in sorted(flat_tensors(model.plan, model.network, model.released, kept, model.nodes).items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def bytes_of(place: Path) -> dict[str, Any]:
    import hushgraph as hg

    graph, results = str(place / "my.graph"), {}
    for unit in ("undirected-edge", "node"):
        here, same = digest(graph, unit, None), {}
        for count in (1, 2, 4):
            workers: Any = hg.Ray(count)
            same[str(count)] = digest(graph, unit, workers) == here
            if count == 2:
                mark = place / f"killed-{unit}"
                mark.unlink(missing_ok=True)
                same["2, one killed"] = digest(graph, unit, OneKilled(workers, mark)) == here and mark.exists()
            workers.close()
        results[unit] = same
    return results


def rows_to_send(place: Path, nodes: int) -> dict[str, Any]:
    import torch

    from hushgraph.graph.labels import quantize_labels
    from hushgraph.graph.quantized import quantize

    return {
        "labels": quantize_labels(torch.from_numpy(stored_labels(place)), CLASSES),
        "16 columns": quantize(torch.randn(nodes, 16, generator=torch.Generator().manual_seed(0)), normalize=True),
    }


def sums_of(place: Path, nodes: int, rounds: int) -> dict[str, Any]:
    """Sums by this process and by 1 and 2 workers: the median of some rounds, this process and workers in turn."""
    import torch

    import hushgraph as hg
    from hushgraph.graph.disk import DiskEdges
    from hushgraph.graph.spread import SpreadEdges

    sent = rows_to_send(place, nodes)
    folder, local = place / "my.graph" / "edges", DiskEdges.open(place / "my.graph" / "edges")
    taken: dict[str, dict[str, list[dict[str, float]]]] = {name: {"here": []} for name in sent}
    for count in (1, 2):
        cluster = hg.Ray(count)
        edges, way = SpreadEdges(folder, executor=cluster), f"{count} on Ray"
        for name, rows in sent.items():
            for _ in range(2):  # loops are compiled, everywhere
                assert torch.equal(edges.sum(rows), local.sum(rows))
            taken[name][way] = []
            for _ in range(rounds):
                taken[name]["here"].append(timed(lambda rows=rows: local.sum(rows))[0])
                taken[name][way].append(timed(lambda rows=rows, edges=edges: edges.sum(rows))[0])
        cluster.close()
    return {name: {way: middle(one) for way, one in ways.items()} for name, ways in taken.items()}


def fits_of(place: Path, rounds: int) -> dict[str, Any]:
    """Whole fits: the median of some rounds, in each of which all ways have their turn."""
    import hushgraph as hg

    def fit(way: str, workers: Any) -> None:
        model = hg.Chorus().fit(
            str(place / "my.graph"), "undirected-edge", 1.0, ledger=hg.Ledger(), memory="1MiB", seed=1, workers=workers
        )
        print(f"{way}: {json.dumps(model.seconds)}", file=sys.stderr, flush=True)

    found: dict[str, list[dict[str, float]]] = {}
    fit("first", None)
    for _ in range(rounds):
        found.setdefault("here", []).append(timed(lambda: fit("here", None))[0])
        for count in (1, 2):
            cluster, way = hg.Ray(count), f"{count} on Ray"
            for name in (f"{way}, started", way):
                found.setdefault(name, []).append(timed(lambda name=name, cluster=cluster: fit(name, cluster))[0])
            cluster.close()
    return {way: middle(taken) for way, taken in found.items()}


def processes_of(place: Path, nodes: int, rounds: int) -> dict[str, Any]:
    """Sums and whole fits by this process and by two others: the median of some rounds, those of both in turn."""
    import hushgraph as hg
    from hushgraph.executors.processes import Processes
    from hushgraph.graph.disk import DiskEdges
    from hushgraph.graph.spread import SpreadEdges

    graph = str(place / "my.graph")

    def fit(workers: Any) -> None:
        hg.Chorus().fit(graph, "undirected-edge", 1.0, ledger=hg.Ledger(), memory="1MiB", seed=1, workers=workers)

    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    running = Processes(2)
    folder, sent = place / "my.graph" / "edges", rows_to_send(place, nodes)
    here, there = DiskEdges.open(folder), SpreadEdges(folder, executor=running)
    for name, rows in sent.items():
        ways = {"here": lambda rows=rows: here.sum(rows), "2 processes": lambda rows=rows: there.sum(rows)}
        assert [way().sum() for way in ways.values()] == [here.sum(rows).sum()] * 2  # all are started and compiled
        found[name] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, run in ways.items():
                found[name][way].append(timed(run)[0])
    fit(None)
    found["fit"] = {"here": [], "2 processes": [], "2 processes, started": []}
    for _ in range(rounds):
        found["fit"]["here"].append(timed(lambda: fit(None))[0])
        found["fit"]["2 processes"].append(timed(lambda: fit(running))[0])
        fresh = Processes(2)
        found["fit"]["2 processes, started"].append(timed(lambda fresh=fresh: fit(fresh))[0])
        fresh.close()
    running.close()

    return {part: {way: middle(taken) for way, taken in ways.items()} for part, ways in found.items()}


def threads_of(place: Path, rounds: int) -> dict[str, Any]:
    """Whole fits with one thread and with two: the median of some rounds, those of both in turn."""
    import torch

    graph, found = str(place / "my.graph"), {}
    for unit in ("undirected-edge", "node"):
        taken: dict[str, list[dict[str, float]]] = {"here": [], "2 threads": []}
        digests = set[str]()
        digest(graph, unit, None)  # loops are compiled
        for _ in range(rounds):
            for count, way in enumerate(taken, start=1):
                torch.set_num_threads(count)
                used, done = timed(lambda unit=unit: digest(graph, unit, None))
                taken[way].append(used)
                digests.add(done)
        torch.set_num_threads(1)
        print(f"{unit}: the same bytes with 1 and 2 threads: {len(digests) == 1}", flush=True)
        found[unit] = {way: middle(one) for way, one in taken.items()}
    return found


# 100 billion entries


def estimate(sums: dict[str, Any], entries: int, imported: float) -> list[str]:
    """What the rates measured here say about 1e11 entries and 2e9 nodes; each line one assumption further."""
    rate = {name: found["1 on Ray"]["cpu"] / entries for name, found in sums.items()}
    many, people, cores = 1e11, 2e9, 16
    said = ", ".join(f"{name} {one * 1e9:.1f} ns" for name, one in rate.items())
    lines = [f"rates of one core here: {said} an entry"]
    for machines in (1, 10, 100):
        seconds = {name: one * many / (machines * cores) for name, one in rate.items()}
        read, back = 4 * many / machines / 1e9, people * CLASSES * 4 / 1.25e9
        lines.append(
            f"{machines:4d} machines of {cores} cores: one sum of labels {seconds['labels']:,.0f} s, of 16 columns "
            f"{seconds['16 columns']:,.0f} s; reading {read:,.0f} s at 1 GB/s each; sums of {CLASSES} classes back to "
            f"one machine {back:,.0f} s at 10 Gbit/s"
        )
    lines.append(f"import, by one process: {imported * many / 3600 / entries:.1f} hours of one core")
    memory = people * (70 + 4 * FEATURES + 8 * CLASSES + 16 * CLASSES) / 1e9
    lines.append(
        f"memory of the machine that runs fit: {memory:,.0f} GB for {people:.0e} nodes; of each other machine the "
        f"classes that are sent, {people / 1e9:.0f} GB, or {32 * people / 1e9:.0f} GB for 16 columns"
    )
    return lines


def ratios(found: dict[str, Any]) -> Iterator[str]:
    for part, contenders in found.items():
        base = contenders["here"]
        for name, one in contenders.items():
            words = (
                "" if name == "here" else f"  {one['wall'] / base['wall']:.2f} and {one['cpu'] / base['cpu']:.2f} times"
            )
            yield (
                f"{part:12s} {name:20s} {one['wall']:8.2f} s on the clock {one['cpu']:8.2f} s of processors "
                f"{one['path']:8.2f} s along the longest path{words}"
            )
        first = "1 on Ray" if "1 on Ray" in contenders else "here"
        second = next(way for way in ("2 on Ray", "2 processes", "2 threads") if way in contenders)
        clock, path = (contenders[first][kind] / contenders[second][kind] for kind in ("wall", "path"))
        yield f"{part:12s} {second} beside {first}: {clock:.2f} times as fast on the clock, {path:.2f} along the path"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to write; needs room")
    parser.add_argument("--entries", type=float, default=1e7)
    parts = ("bytes", "sums", "fit", "processes", "threads")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=3, help="of all parts but `bytes`")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    entries = int(given.entries)
    made = run_size(given.folder, entries, ["make", "import"])
    place, nodes = given.folder / f"{entries:.0e}".replace("+", ""), entries // DEGREE
    if "bytes" in given.parts:
        print("the same bytes as here:", json.dumps(bytes_of(place)), flush=True)
    if "sums" in given.parts:
        sums = sums_of(place, nodes, given.rounds)
        print("\n".join([*ratios(sums), *estimate(sums, entries, made["import"]["cpu"])]), flush=True)
    if "fit" in given.parts:
        print("\n".join(ratios({"fit": fits_of(place, given.rounds)})), flush=True)
    if "processes" in given.parts:
        print("\n".join(ratios(processes_of(place, nodes, given.rounds))), flush=True)
    if "threads" in given.parts:
        print("\n".join(ratios(threads_of(place, given.rounds))), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
