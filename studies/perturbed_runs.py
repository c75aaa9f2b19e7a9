"""How time and memory of a released graph grow with the number of links that come out."""

from __future__ import annotations

import tracemalloc
from resource import RUSAGE_SELF, getrusage
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms import EdgeFlip, NoisyEdges
from hushgraph.noise import NoiseSource
from hushgraph.privacy.metadata import count_pairs
from hushgraph.study.lab import Lab

NODES, LINKS_PER_NODE = (20_000, 40_000, 80_000, 160_000, 320_000), 20
LEAST_UNTHINNED = 8.0
"""Below this epsilon EdgeRand without thinning releases a large share of all pairs."""


def growth(lab: Lab, *, release: str) -> dict[str, float | None]:
    """Exponents of CPU time and memory in the links that come out, from random graphs of 20 links a node.

    Time is the least of three, `system` with the operating system's share; memory is the peak that Python and numpy
    allocate. The number of links is known.
    """
    epsilon = lab.budget.epsilon
    if release == "EdgeRand" and epsilon < LEAST_UNTHINNED:
        raise InputError(f"EdgeRand at epsilon {epsilon:g} releases a graph of all pairs; expected {LEAST_UNTHINNED:g}")
    rows = [_measured(release, nodes, 1.0 / epsilon) for nodes in NODES]
    out, *measures = (np.log(column) for column in np.array(rows, dtype=float).T)
    slopes = [float(np.polyfit(out, column, 1)[0]) for column in measures]
    links, seconds, _, mib = rows[-1]
    return {
        **dict(zip(("time_exponent", "time_exponent_with_system", "memory_exponent"), slopes)),
        "largest_links": float(links),
        "largest_seconds": seconds,
        "largest_mib": mib,
    }


def _measured(release: str, nodes: int, scale: float) -> tuple[int, float, float, float]:
    """Links that come out, CPU seconds of the program and with the system, peak of memory in MiB."""
    data, own, both = _graph_of(nodes), [], []
    for seed in range(3):
        before = getrusage(RUSAGE_SELF)
        found = _released(release, data, scale, nodes, seed)
        after = getrusage(RUSAGE_SELF)
        own.append(after.ru_utime - before.ru_utime)
        both.append(own[-1] + after.ru_stime - before.ru_stime)
    tracemalloc.start()
    _released(release, data, scale, nodes, 0)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return found.num_edges // 2, min(own), min(both), peak


def _released(release: str, data: Any, scale: float, nodes: int, seed: int) -> MemoryEdges:
    noise, flip, links = NoiseSource.seeded(seed), EdgeFlip(), LINKS_PER_NODE * nodes
    if release == "LapGraph":
        return NoisyEdges().release(data, scale, noise, links)
    if release == "EdgeRand":
        return flip.release(data, scale, noise)
    return flip.release(data, scale, noise, flip.keep_rate(scale, links / count_pairs(nodes, undirected=True)))


def _graph_of(nodes: int) -> Any:
    """A random graph, as a mechanism sees it."""
    pairs = torch.randint(nodes, (2, LINKS_PER_NODE * nodes), generator=torch.Generator().manual_seed(0))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = MemoryEdges.from_edge_index(torch.cat([pairs, pairs.flip(0)], dim=1), nodes).coalesce()
    edges.is_symmetric()  # a vault has asked before
    return SimpleNamespace(whole_lists=edges, public_edges=None)
