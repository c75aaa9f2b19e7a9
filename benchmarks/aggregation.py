"""Sums over in-neighbors and noise, beside other libraries: `python benchmarks/aggregation.py [--quick] [--json]`.

"Ours" is the exact sum of quantized rows that releases are made of; "float32 sum" torch's running sum, which is not
exact; "quantize and sum" all that happens between float rows and an exact sum. The libraries add floats.

Contenders take turns in one process and medians are compared, so ratios mean something on a busy machine. Graphs are
synthetic (uniform random edges) with the sizes of two common large benchmarks: 117 thousand nodes with 46 million
edges, and 1.8 million with 81 million. The rate is edges a second; bytes are what must be read at least: a 64-byte row
and a 4-byte index per edge. A row table that fits into the processor's cache is read faster than memory is.

Growth, one thread, over a factor of 64 in edges. The main line is a graph whose nodes grow with its edges (45 edges a
node, uniform random: no locality at all). Its work is linear, its time is not: on the way the row table leaves
the caches, and from then on an edge costs a read of memory. Beside it stand the exponent of torch's CSR on the same
graphs, and the exponent if those rows came as fast as memory can be read front to back. The other lines take the
effects apart: the largest sizes, where no table fits any more; near neighbors, where the rows in use always fit; and
fixed numbers of nodes, where each call writes the same result for few edges or many, so that the exponent falls below
one; `time = a nodes + b edges` is the fair fit there. Reading the sources in blocks that fit a cache was tried and
left out. It trades misses for partial sums of a few rows each: a call on 64 million uniform edges gained a sixth to a
third and time still grew faster than edges, preparing the blocks took as long as four to seven calls, and a graph
numbered along its communities lost a tenth, which the public sizes cannot tell apart beforehand.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric import EdgeIndex

from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.quantized import quantize
from hushgraph.graph.sums import sum_bags
from hushgraph.noise import NoiseSource

warnings.filterwarnings("ignore")

COLUMNS = 16
BYTES_PER_EDGE = 4 * COLUMNS + 4
DEGREE = 45
NEAR = 1 << 12
LARGE = ((117_000, 46_000_000), (1_800_000, 81_000_000))
QUICK = ((20_000, 2_000_000), (200_000, 8_000_000))
ROUNDS = 5


def random_edges(num_nodes: int, num_edges: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, num_nodes, (2, num_edges), dtype=np.int32))


def side_by_side(
    contenders: dict[str, Callable[[], object]],
    rounds: int = ROUNDS,
    summary: Callable[[list[float]], Any] = np.median,
) -> dict[str, float]:
    """Median seconds of each (or another summary), all in turn in every round; the first round only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(summary(values[1:])) for name, values in seconds.items()}


def peak_extra_bytes(run: Callable[[], object]) -> int | None:
    """Memory a call needs beyond what is held before it (Linux only)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None

    def read(field: str) -> int:
        return int(next(line for line in status.read_text().splitlines() if line.startswith(field)).split()[1]) * 1024

    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what the call needs
    reset.write_text("5")
    before = read("VmRSS")
    run()
    return max(read("VmHWM") - before, 0)


def kernels(graph: MemoryEdges, rows: Tensor) -> dict[str, Any]:
    """Rates of the libraries' products on one graph, and what each needs to hold."""
    n, e = graph.num_nodes, graph.num_edges
    ones = torch.ones(e)
    wide = torch.sparse_csr_tensor(graph.offsets.long(), graph.sources.long(), ones, size=(n, n))
    narrow = torch.sparse_csr_tensor(graph.offsets, graph.sources, ones, size=(n, n))
    scipy_matrix = csr_array((ones.numpy(), graph.sources.numpy(), graph.offsets.numpy()), shape=(n, n))
    stream = torch.ones(max(n * COLUMNS, 1 << 26))
    copy = torch.empty_like(stream)
    pairs = EdgeIndex(torch.stack((graph.targets(), graph.sources)).long(), sparse_size=(n, n), sort_order="row")
    whole = quantize(rows, normalize=True)
    few = min(e, 4_000_000)
    source, target = graph.sources[:few].long(), graph.targets()[:few].long()
    seconds = side_by_side(
        {
            "ours": lambda: graph.sum(whole),
            "quantize and sum": lambda: graph.sum(quantize(rows, normalize=True)),
            "float32 sum": lambda: sum_bags(graph.sources, graph.offsets, rows),
            "torch CSR int64": lambda: wide @ rows,
            "torch CSR int32": lambda: narrow @ rows,
            "scipy CSR": lambda: scipy_matrix @ rows.numpy(),
            "PyG EdgeIndex": lambda: pairs.matmul(rows),
            "copy": lambda: copy.copy_(stream),
            "index_add": lambda: torch.zeros(n, COLUMNS).index_add_(0, target, rows[source]),
        }
    )
    rates = {name: e / s / 1e6 for name, s in seconds.items() if name not in ("copy", "index_add")}
    rates["index_add"] = few / seconds["index_add"] / 1e6
    copy_rate = 2 * 4 * stream.numel() / seconds["copy"] / 1e9
    return {
        "million_edges_per_second": rates,
        "ours_over": {name: rates["ours"] / rate for name, rate in rates.items() if name != "ours"},
        "gigabytes_per_second": {"ours": rates["ours"] * BYTES_PER_EDGE / 1e3, "copy (read + write)": copy_rate},
        "structure_bytes_per_edge": {"ours": 4.0, "torch CSR int32": 8.0, "torch CSR int64": 12.0},
        "peak_extra_bytes": {
            "ours": peak_extra_bytes(lambda: graph.sum(whole)),
            "float32 sum": peak_extra_bytes(lambda: sum_bags(graph.sources, graph.offsets, rows)),
            "torch CSR int64": peak_extra_bytes(lambda: wide @ rows),
        },
    }


def exactness(graph: MemoryEdges, rows: Tensor) -> dict[str, float]:
    """What exactness costs: time over that of a float32 sum."""
    whole = quantize(rows, normalize=True)
    seconds = side_by_side(
        {
            "float32 sum": lambda: sum_bags(graph.sources, graph.offsets, rows),
            "exact sum": lambda: graph.sum(whole),
            "quantize and sum": lambda: graph.sum(quantize(rows, normalize=True)),
        }
    )
    largest = float(graph.in_degree().max())
    return {"largest in-degree": largest} | {name: s / seconds["float32 sum"] for name, s in seconds.items()}


def out_of_core(edges: Tensor, rows: Tensor) -> dict[str, Any]:
    """Exact sums from disk with a quarter of the graph's size as memory limit, files in the system's cache."""
    num_nodes = len(rows)
    with tempfile.TemporaryDirectory() as name:
        limit = (4 * edges.shape[1] + 8 * num_nodes) // 4
        found: list[DiskEdges] = []

        def store() -> None:
            found.append(DiskEdges.write(Path(name) / "graph", edges, num_nodes, memory_limit=limit))

        start = time.perf_counter()
        write_bytes = peak_extra_bytes(store)
        write_seconds = time.perf_counter() - start
        stored, whole = found[0], quantize(rows, normalize=True)
        sum_bytes = peak_extra_bytes(lambda: stored.sum(whole))
        kept = stored.load()
        seconds = side_by_side({"memory": lambda: kept.sum(whole), "disk": lambda: stored.sum(whole)})
        same = torch.equal(stored.sum(whole), kept.sum(whole))
    return {
        "disk over memory": seconds["disk"] / seconds["memory"],
        "same_bits": same,
        "write_seconds": write_seconds,
        "memory_limit": limit,
        "peak_extra_bytes": {"write": write_bytes, "sum (its result included)": sum_bytes},
    }


def building(edges: Tensor, num_nodes: int) -> dict[str, float]:
    """Seconds to sort the edges by target, and to cap the lists of senders."""
    noise, graph = NoiseSource.from_os(), MemoryEdges.from_edge_index(edges, num_nodes)
    return side_by_side(
        {
            "sort by target": lambda: MemoryEdges.from_edge_index(edges, num_nodes),
            "torch sort of targets": lambda: torch.sort(edges[1], stable=True),
            "cap lists at 50": lambda: graph.cap(50, noise),
        },
        rounds=1,
    )


def near_edges(num_nodes: int, num_edges: int) -> Tensor:
    """Edges between nodes whose numbers are close, as in a graph numbered along its communities."""
    draw = np.random.default_rng(0)
    target = draw.integers(0, num_nodes, num_edges, dtype=np.int32)
    step = draw.integers(-NEAR, NEAR, num_edges, dtype=np.int32)
    return torch.from_numpy(np.stack(((target + step) % num_nodes, target)))


def skewed_edges(num_nodes: int, num_edges: int) -> Tensor:
    """Edges whose targets follow a power law: the most popular node receives about a hundredth of them."""
    draw = np.random.default_rng(0)
    target = (num_nodes ** draw.random(num_edges)).astype(np.int32) - 1
    return torch.from_numpy(np.stack((draw.integers(0, num_nodes, num_edges, dtype=np.int32), target)))


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log time over log edges: 1 when time is proportional to edges."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def two_term_fit(nodes: list[int], edges: tuple[int, ...], seconds: list[float]) -> dict[str, float]:
    """`time = a nodes + b edges` with a, b >= 0 and least relative errors: linear, whatever the exponent says."""
    terms = np.array([nodes, edges], dtype=float).T / np.array(seconds)[:, None]
    cost, _ = nnls(terms, np.ones(len(seconds)))
    worst = float(np.abs(terms @ cost - 1).max())
    return {"ns a node": cost[0] * 1e9, "ns an edge": cost[1] * 1e9, "largest relative error": worst}


def stream_rate() -> float:
    """Gigabytes a second that this process reads front to back from memory."""
    stream = torch.ones(1 << 26)
    seconds = side_by_side({"read": lambda: stream.sum()}, summary=np.min)["read"]
    return 4 * stream.numel() / seconds / 1e9


def csr_growth(graphs: list[MemoryEdges], tables: list[Tensor]) -> dict[str, Any]:
    """The same graphs with torch's CSR: what the machine's caches alone do to another kernel."""
    contenders: dict[str, Callable[[], object]] = {}
    for graph, rows in zip(graphs, tables):
        size = (graph.num_nodes, graph.num_nodes)
        matrix = torch.sparse_csr_tensor(graph.offsets.long(), graph.sources.long(), torch.ones(graph.num_edges), size)
        contenders[str(graph.num_edges)] = partial(torch.matmul, matrix, rows)
    seconds = list(side_by_side(contenders, rounds=3, summary=np.min).values())
    edges = [graph.num_edges for graph in graphs]
    return {
        "million_edges_per_second": [e / s / 1e6 for e, s in zip(edges, seconds)],
        "exponent of torch CSR": exponent(edges, seconds),
    }


def scaling(
    sizes: tuple[int, ...],
    nodes_for: Callable[[int], int],
    edges_for: Callable[[int, int], Tensor] = random_edges,
    *,
    beside_csr: bool = False,
) -> dict[str, Any]:
    """Best time against edges, the sizes in turn, and what was fitted to it."""
    nodes = [nodes_for(size) for size in sizes]
    graphs = [MemoryEdges.from_edge_index(edges_for(n, size), n) for n, size in zip(nodes, sizes)]
    tables = [torch.randn(n, COLUMNS) for n in nodes]
    runs: dict[str, Callable[[], object]] = {
        str(graph.num_edges): partial(graph.sum, quantize(rows)) for graph, rows in zip(graphs, tables)
    }
    extra = [(peak_extra_bytes(run) or 0) / 2**20 for run in runs.values()]
    seconds = list(side_by_side(runs, rounds=12, summary=np.min).values())
    pairs = range(len(sizes) - 1)
    result: dict[str, Any] = {
        "edges": list(sizes),
        "nodes": nodes,
        "row table MiB": [4 * COLUMNS * n / 2**20 for n in nodes],
        "million_edges_per_second": [edges / s / 1e6 for edges, s in zip(sizes, seconds)],
        "exponent": exponent(sizes, seconds),
        "exponent from each size to the next": [exponent(sizes[i : i + 2], seconds[i : i + 2]) for i in pairs],
        "graph MiB": [4 * (g.sources.numel() + g.offsets.numel()) / 2**20 for g in graphs],
        "peak extra MiB": extra,
    }
    if len(set(nodes)) == 1:
        result["fit in nodes and edges"] = two_term_fit(nodes, sizes, seconds)
    if beside_csr:
        result["bound of memory"] = stream_bound(sizes, seconds)
        result["torch CSR int64"] = csr_growth(graphs, tables)
    return result


def stream_bound(sizes: tuple[int, ...], seconds: list[float]) -> dict[str, float]:
    """The exponent if every row that is not in a cache came as fast as a front-to-back read of memory."""
    rate = stream_rate()
    ideal = [min(s, e * BYTES_PER_EDGE / rate / 1e9) for e, s in zip(sizes, seconds)]
    return {"stream, gigabytes a second": rate, "exponent with rows at that rate": exponent(sizes, ideal)}


def _nodes_at_degree(num_edges: int) -> int:
    return num_edges // DEGREE


def _fixed_nodes(num_nodes: int, _num_edges: int) -> int:
    return num_nodes


def growth(smallest: int) -> dict[str, Any]:
    """How time grows over a factor of 64 in edges (see the head of this file for what each line shows)."""
    sizes = tuple(m * smallest for m in (1, 4, 16, 64))
    result = {f"scaling, {DEGREE} edges a node": scaling(sizes, _nodes_at_degree, beside_csr=True)}
    beyond = tuple(m * smallest for m in (32, 64, 128))
    result[f"scaling, {DEGREE} edges a node, largest sizes"] = scaling(beyond, _nodes_at_degree)
    result[f"scaling, {DEGREE} edges a node, near neighbors"] = scaling(sizes, _nodes_at_degree, near_edges)
    for num_nodes in (smallest // 10, smallest // 2):
        result[f"scaling, {num_nodes} nodes"] = scaling(sizes, partial(_fixed_nodes, num_nodes))
    return result


def noise_rates() -> dict[str, Any]:
    """Exact samples of the rounded normal law a second beside `torch.randn`: large requests, and a training step's."""
    torch.set_num_threads(1)
    noise = NoiseSource.from_os()
    result = {}
    for size, repeat in ((8_000, 200), (1_000_000, 2), (10_000_000, 1)):

        def ours(size: int = size, repeat: int = repeat) -> None:
            for _ in range(repeat):
                noise.integer_gaussian(size, 2.0**20)

        def theirs(size: int = size, repeat: int = repeat) -> None:
            for _ in range(repeat):
                torch.randn(size, dtype=torch.float64).mul_(2.0)

        seconds = side_by_side({"ours": ours, "torch.randn float64": theirs})
        rates = {name: size * repeat / s / 1e6 for name, s in seconds.items()}
        result[str(size)] = rates | {"ratio": rates["ours"] / rates["torch.randn float64"]}
    return result


def measure(quick: bool = False) -> dict[str, Any]:
    """Everything, as one dictionary of figures."""
    result: dict[str, Any] = {"noise, million samples a second": noise_rates()}
    for num_nodes, num_edges in QUICK if quick else LARGE:
        edges = random_edges(num_nodes, num_edges)
        graph, rows = MemoryEdges.from_edge_index(edges, num_nodes), torch.randn(num_nodes, COLUMNS)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            result[f"{num_nodes} nodes, {num_edges} edges, {threads} threads"] = kernels(graph, rows)
        torch.set_num_threads(1)
        skewed = MemoryEdges.from_edge_index(skewed_edges(num_nodes, num_edges), num_nodes)
        result[f"{num_nodes} nodes, {num_edges} edges, power law"] = exactness(skewed, rows)
        result[f"{num_nodes} nodes, {num_edges} edges, out of core"] = out_of_core(edges, rows)
        result[f"{num_nodes} nodes, {num_edges} edges, building, seconds"] = building(edges, num_nodes)
    return result | growth(100_000 if quick else 1_000_000)


def show(value: Any, indent: int = 0) -> None:
    for name, entry in value.items():
        if isinstance(entry, dict):
            print(" " * indent + name)
            show(entry, indent + 2)
        else:
            text = f"{entry:.3g}" if isinstance(entry, float) else str(entry)
            print(" " * indent + f"{name}: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small graphs, about half a minute")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = measure(options.quick)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
