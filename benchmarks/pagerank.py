"""PageRank rows against a plain Python ISTA, scikit-network and scipy: `python benchmarks/pagerank.py`.

Needs scikit-network (`pip install scikit-network`); without it that line says so. Every way answers the same question,
the rows of single sources on a random graph of 20,000 nodes. scikit-network's and scipy's walks are not lazy, so theirs
have the damping with which the row is the same as that of our lazy walk; every line says how far the rows are from a
long solve. Ours are computed twice, as DP-APPR asks for them and as precisely as scipy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pagerank import pagerank

NODES, EDGES, ALPHA, RHO, GAMMA = 20_000, 60_000, 0.25, 1e-4, 1e-4
FINE = 1e-6
"""With it push is as close to the exact rows as scipy's solvers with a tolerance of RHO."""
DAMPING = (1.0 - ALPHA) / (1.0 + ALPHA)
"""A lazy walk that stops with ALPHA is a usual one that goes on with this: p = (1 - d) e + d A D^-1 p."""


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


def walk_of(edges: MemoryEdges) -> scipy.sparse.csr_array:
    """A D^-1."""
    ends, degree = edges.edge_index().numpy(), np.maximum(edges.in_degree().numpy(), 1)
    return scipy.sparse.csr_array((1.0 / degree[ends[0]], (ends[1], ends[0])), shape=(edges.num_nodes,) * 2)


def power_rows(edges: MemoryEdges, sources: np.ndarray) -> np.ndarray:
    """scipy: power iteration on all sources at once, until no entry is further than RHO from where it goes."""
    walk, count = walk_of(edges), len(sources)
    start = np.zeros((edges.num_nodes, count))
    start[sources, np.arange(count)] = 1.0
    found, change = start, 1.0
    while change * DAMPING / (1.0 - DAMPING) > RHO:
        new = (1.0 - DAMPING) * start + DAMPING * (walk @ found)
        found, change = new, float(np.abs(new - found).max())
    return found.T


def solved_rows(edges: MemoryEdges, sources: np.ndarray) -> np.ndarray:
    """scipy: one BiCGSTAB solve for each source."""
    system = scipy.sparse.eye_array(edges.num_nodes, format="csr") - DAMPING * walk_of(edges)
    rows = []
    for source in sources:
        start = np.zeros(edges.num_nodes)
        start[source] = 1.0 - DAMPING
        rows.append(scipy.sparse.linalg.bicgstab(system, start, rtol=RHO)[0])
    return np.stack(rows)


def sknetwork_rows(solver: str) -> Callable[[MemoryEdges, np.ndarray], np.ndarray]:
    """scikit-network's PageRank, one fit for each source."""
    from sknetwork.ranking import PageRank

    def rows(edges: MemoryEdges, sources: np.ndarray) -> np.ndarray:
        ends = edges.edge_index().numpy()
        ones = np.ones(ends.shape[1])
        adjacency = scipy.sparse.csr_matrix((ones, (ends[0], ends[1])), shape=(edges.num_nodes,) * 2)
        ranking = PageRank(damping_factor=DAMPING, solver=solver, n_iter=20, tol=RHO)
        return np.stack([ranking.fit_predict(adjacency, weights={int(one): 1.0}) for one in sources])

    return rows


def cpu(function: Callable[..., Any], *inputs: Any) -> tuple[Any, float]:
    """The result and the seconds of processor time."""
    started = time.process_time()
    value = function(*inputs)
    return value, time.process_time() - started


def random_graph() -> MemoryEdges:
    """Undirected edges between random nodes."""
    pairs = torch.from_numpy(np.random.default_rng(0).integers(0, NODES, (2, EDGES)))
    pairs = pairs[:, pairs[0] != pairs[1]]
    return MemoryEdges.from_edge_index(torch.cat([pairs, pairs.flip(0)], dim=1), NODES).coalesce()


def main() -> None:
    """Print milliseconds of processor time per source, ratios, and how far rows are from ours and from a long solve."""
    edges = random_graph()
    sources = np.flatnonzero(edges.in_degree().numpy())[:200]
    ours: dict[str, Callable[[np.ndarray], Any]] = {
        way if rho == RHO else f"{way}, rho {rho:g}": partial(_ours, edges, way, rho)
        for way, rho in (("ista", RHO), ("push", RHO), ("push", FINE))
    }
    others: dict[str, Callable[[MemoryEdges, np.ndarray], Any]] = {
        "scipy, power iteration of all sources at once": power_rows,
        "scipy, BiCGSTAB": solved_rows,
    }
    try:
        others |= {f"scikit-network, {one}": sknetwork_rows(one) for one in ("push", "piteration", "bicgstab")}
    except ImportError:
        print("scikit-network is not installed: not compared")
    exact = _long_rows(edges, sources[:20])
    seconds, rows = {}, {}
    for name, way in ours.items():
        way(sources[:1])  # compiled
        rows[name], spent = cpu(way, sources)
        seconds[name] = spent / len(sources)
    lists = [one.tolist() for one in np.split(edges.sources.numpy(), edges.offsets.numpy()[1:-1])]
    plain, slow = cpu(lambda: [plain_ista(lists, int(source)) for source in sources[:5]])
    seconds["plain Python ISTA"] = slow / 5
    for name, other in others.items():
        rows[name], spent = cpu(other, edges, sources[:20])
        seconds[name] = spent / 20
    for name, value in seconds.items():
        away = np.abs(_dense(rows[name], 20) - exact).max() if name in rows else None
        shown = "" if away is None else f", at most {away:.1e} from a long solve"
        print(f"{name}: {1e3 * value:.3f} ms a source, {value / seconds['ista']:.1f} times ista{shown}")
    apart = max(abs(rows["ista"][k, j] - value) for k, row in enumerate(plain) for j, value in row.items())
    print(f"largest difference between ista and plain Python: {apart:.1e}")


def _ours(edges: MemoryEdges, way: Any, rho: float, sources: np.ndarray) -> scipy.sparse.csr_array:
    return pagerank(edges, torch.from_numpy(sources), way=way, rho=rho)


def _dense(rows: Any, count: int) -> np.ndarray:
    found: np.ndarray = rows[:count].toarray() if scipy.sparse.issparse(rows) else rows[:count]
    return found


def _long_rows(edges: MemoryEdges, sources: np.ndarray) -> np.ndarray:
    """200 steps of the power iteration: exact to the last digits that matter here."""
    walk, start = walk_of(edges), np.zeros((edges.num_nodes, len(sources)))
    start[sources, np.arange(len(sources))] = 1.0
    found = start
    for _ in range(200):
        found = (1.0 - DAMPING) * start + DAMPING * (walk @ found)
    return found.T


if __name__ == "__main__":
    main()
