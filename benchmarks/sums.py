"""What exact sums cost beside a float32 running sum: `python benchmarks/sums.py [--entries 1e6 1e7] [--build 1e7]`.

One thread, processor time, contenders in turn in one process, medians. The reference is the kernel that exactness
replaced: float rows of norm 1, added in float32 by `embedding_bag`. "exact" is the sum of whole numbers alone, "with
quantizing" all that happens between float rows and the exact sum, and the second denominator has what a float sum needs
before it can be released: rows scaled to their norm, and the norm checked in double precision. "without numba" is the
exact sum in bags of floats.

Label sums start from labels and end in exact sums; their reference writes one-hot rows out, scales and checks them as
above, and adds them in float32. Building sorts edges by target and source; its reference sorts packed 64-bit pairs with
numpy, which uses the widest vector instructions that the processor has (`NPY_DISABLE_CPU_FEATURES` takes them away).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.graph import sums
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.labels import quantize_labels
from hushgraph.graph.packed import offsets_of, pack, unpack_minor
from hushgraph.graph.quantized import quantize

DEGREE = 50
COLUMNS = (1, 4, 16, 64)
CLASSES = (10, 40)


def uniform(num_nodes: int, num_edges: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, num_nodes, (2, num_edges)))


def power_law(num_nodes: int, num_edges: int) -> Tensor:
    """The most popular node receives about a tenth of all edges."""
    draw = np.random.default_rng(0)
    target = (num_nodes ** draw.random(num_edges)).astype(np.int64) - 1
    return torch.from_numpy(np.stack((draw.integers(0, num_nodes, num_edges), target)))


GRAPHS: dict[str, Callable[[int, int], Tensor]] = {"uniform": uniform, "power law": power_law}


def medians(contenders: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Processor seconds of each, all in turn in every round; the first round only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: float(np.median(values[1:])) for name, values in seconds.items()}


def float_sum(graph: MemoryEdges, rows: Tensor) -> Tensor:
    """The reference: a running sum in float32."""
    return embedding_bag(graph.sources, rows, graph.offsets, mode="sum", include_last_offset=True)


def float_rows(rows: Tensor) -> Tensor:
    """Rows of norm 1 in float32, refused if one is longer in double precision or not finite."""
    assert bool(torch.isfinite(rows).all())
    bounded = F.normalize(rows, dim=1) * (1.0 - 1e-6)
    assert float(bounded.to(torch.float64).norm(dim=1).max()) <= 1.0
    return bounded


def without_numba(run: Callable[[], object]) -> Callable[[], object]:
    def plain() -> None:
        usual, sums.LEAST_COMPILED = sums.LEAST_COMPILED, 1 << 62
        try:
            run()
        finally:
            sums.LEAST_COMPILED = usual

    return plain


def row_ratios(graph: MemoryEdges, columns: int) -> dict[str, float]:
    rows = torch.randn(graph.num_nodes, columns, generator=torch.Generator().manual_seed(0))
    whole = quantize(rows, normalize=True)
    found = medians(
        {
            "float": lambda: float_sum(graph, rows),
            "float rows": lambda: float_rows(rows),
            "quantize": lambda: quantize(rows, normalize=True),
            "exact": lambda: graph.sum(whole),
            "in bags": without_numba(lambda: graph.sum(whole)),
        }
    )
    return {
        "exact / float": found["exact"] / found["float"],
        "with quantizing / float": (found["exact"] + found["quantize"]) / found["float"],
        "with quantizing / (bounded rows + float)": (found["exact"] + found["quantize"])
        / (found["float"] + found["float rows"]),
        "exact without numba / float": found["in bags"] / found["float"],
        "float, ns an entry": found["float"] / graph.num_edges * 1e9,
    }


def label_ratios(graph: MemoryEdges, classes: int, divided: bool) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (graph.num_nodes,), generator=generator)
    labels[torch.rand(graph.num_nodes, generator=generator) < 0.25] = -1
    lengths = graph.out_degree() if divided else None

    def in_floats() -> Tensor:
        rows = torch.zeros(graph.num_nodes, classes)
        known = labels >= 0
        rows[known] = F.one_hot(labels[known], classes).to(torch.float32)
        rows = float_rows(rows)
        rows = rows * graph.out_degree().clamp(min=1).to(torch.float32).rsqrt().unsqueeze(1) if divided else rows
        return float_sum(graph, rows)

    def exact() -> Tensor:
        length = graph.out_degree() if divided else None
        return graph.sum(quantize_labels(labels, classes, bits=14 if divided else 12, lengths=length))

    bare_rows = quantize_labels(labels, classes, lengths=lengths)
    dense = bare_rows.dense().values.to(torch.float32)
    found = medians(
        {
            "floats": in_floats,
            "exact": exact,
            "bare floats": lambda: float_sum(graph, dense),
            "bare exact": lambda: graph.sum(bare_rows),
        }
    )
    return {
        "float / exact": found["floats"] / found["exact"],
        "float / exact, sums alone": found["bare floats"] / found["bare exact"],
        "exact, ns an entry": found["exact"] / graph.num_edges * 1e9,
    }


def build_ratios(num_edges: int) -> dict[str, float]:
    num_nodes = num_edges // DEGREE
    edges = uniform(num_nodes, num_edges)

    def by_sorting() -> tuple[np.ndarray, np.ndarray]:
        packed = pack(edges[1].numpy(), edges[0].numpy())
        packed.sort()
        return offsets_of(packed, num_nodes), unpack_minor(packed)

    MemoryEdges.from_edge_index(uniform(1000, 1 << 19), 1000)  # compiled before the clock runs
    rounds = 3 if num_edges <= 10**7 else 1
    found = medians(
        {"sorting": by_sorting, "radix": lambda: MemoryEdges.from_edge_index(edges, num_nodes)}, rounds=rounds
    )
    return {"sorting / radix": found["sorting"] / found["radix"]} | {
        f"{name}, ns an entry": seconds / num_edges * 1e9 for name, seconds in found.items()
    }


def show(title: str, found: dict[str, Any]) -> None:
    print(f"{title:55s}" + "   ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=float, nargs="*", default=[1e6, 1e7], help="sizes for sums")
    parser.add_argument("--build", type=float, nargs="*", default=[1e6, 1e7], help="sizes for building (1e8: 5 GB)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("compiled loops:", "yes" if sums.kernels_for(1 << 62) else "no (install numba)")
    for num_edges in (int(size) for size in options.entries):
        for kind, edges_of in GRAPHS.items():
            num_nodes = num_edges // DEGREE
            graph = MemoryEdges.from_edge_index(edges_of(num_nodes, num_edges), num_nodes)
            for columns in COLUMNS:
                show(f"{kind}, {num_edges:.0e} entries, {columns} columns", row_ratios(graph, columns))
            for classes in CLASSES:
                for divided in (False, True):
                    name = f"{kind}, {num_edges:.0e} entries, {classes} classes{', divided' * divided}"
                    show(name, label_ratios(graph, classes, divided))
    for num_edges in (int(size) for size in options.build):
        show(f"building, {num_edges:.0e} entries", build_ratios(num_edges))


if __name__ == "__main__":
    main()
