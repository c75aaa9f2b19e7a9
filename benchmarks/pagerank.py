"""PageRank rows against a plain Python ISTA and scipy's power iteration: `python benchmarks/pagerank.py`."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pagerank import pagerank

NODES, EDGES, ALPHA, RHO, GAMMA = 20_000, 60_000, 0.25, 1e-4, 1e-4


def plain_ista(lists: list[list[int]], source: int) -> dict[int, float]:
    """Dictionaries and loops, as one would write the algorithm down."""
    p: dict[int, float] = {}
    g = {source: -ALPHA / len(lists[source])}
    while max(map(abs, g.values())) > (1 + GAMMA) * RHO * ALPHA:
        steps = {
            i: -len(lists[i]) * (g[i] + RHO * ALPHA) for i in g if p.get(i, 0.0) / len(lists[i]) - g[i] >= RHO * ALPHA
        }
        for i, step in steps.items():
            p[i] = p.get(i, 0.0) + step
            g[i] += 0.5 * (1 + ALPHA) * step / len(lists[i])
            for j in lists[i]:
                g[j] = g.get(j, 0.0) - 0.5 * (1 - ALPHA) * step / len(lists[i]) / len(lists[j])
    return p


def power_rows(edges: MemoryEdges, sources: np.ndarray, tolerance: float) -> np.ndarray:
    """Power iteration on all sources at once, until the largest change is below the tolerance."""
    n = edges.num_nodes
    ends = edges.edge_index().numpy()
    degree = np.maximum(edges.in_degree().numpy(), 1)
    walk = scipy.sparse.csr_array((1.0 / degree[ends[0]], (ends[1], ends[0])), shape=(n, n))
    start = np.zeros((n, len(sources)))
    start[sources, np.arange(len(sources))] = 1.0
    found, change = start, 1.0
    while change > tolerance:
        new = ALPHA * start + (1 - ALPHA) * 0.5 * (found + walk @ found)
        found, change = new, float(np.abs(new - found).max())
    return found


def cpu(function, *inputs):
    """The result and the seconds of processor time."""
    started = time.process_time()
    value = function(*inputs)
    return value, time.process_time() - started


def main() -> None:
    """Print seconds per source and ratios."""
    rng = np.random.default_rng(0)
    pairs = torch.from_numpy(rng.integers(0, NODES, (2, EDGES)))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = MemoryEdges.from_edge_index(torch.cat([pairs, pairs.flip(0)], dim=1), NODES).coalesce()
    lists = np.split(edges.sources.numpy(), edges.offsets.numpy()[1:-1])
    sources = torch.from_numpy(np.flatnonzero(edges.in_degree().numpy())[:200])
    pagerank(edges, sources[:1], way="ista"), pagerank(edges, sources[:1], way="push")
    rows, ours = cpu(lambda: pagerank(edges, sources, way="ista"))
    _, push = cpu(lambda: pagerank(edges, sources, way="push"))
    few = sources[:5].tolist()
    as_lists = [one.tolist() for one in lists]
    plain, slow = cpu(lambda: [plain_ista(as_lists, source) for source in few])
    apart = max(abs(rows[k, j] - value) for k, row in enumerate(plain) for j, value in row.items())
    _, power = cpu(power_rows, edges, sources[:50].numpy(), RHO)
    each = {"ista": ours / 200, "push": push / 200, "plain Python": slow / 5, "scipy power iteration": power / 50}
    for name, seconds in each.items():
        print(f"{name}: {1e3 * seconds:.3f} ms a source, {seconds / each['ista']:.1f} times ista")
    print(f"largest difference between ista and plain Python: {apart:.1e}")


if __name__ == "__main__":
    main()
