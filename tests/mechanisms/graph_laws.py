"""Graphs of three and four nodes, one for every set of linked pairs, and how often releases give each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from hushgraph.graph.pairs import pair_edges, pair_numbers
from hushgraph.mechanisms.pair_release import PairRelease
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.metadata import count_pairs

Bits = tuple[int, ...]


def all_bits(nodes: int, *, undirected: bool) -> list[Bits]:
    """Every graph, as the bits of its pairs."""
    return list(itertools.product((0, 1), repeat=count_pairs(nodes, undirected=undirected)))


def neighbors(graphs: list[Bits]) -> Iterator[tuple[Bits, Bits]]:
    """All ordered pairs of graphs that differ in one bit."""
    for graph in graphs:
        for place in range(len(graph)):
            yield graph, (*graph[:place], 1 - graph[place], *graph[place + 1 :])


def view(bits: Bits, nodes: int, *, undirected: bool, public: Any = None) -> SimpleNamespace:
    """As much of a view as a mechanism reads."""
    edges = pair_edges(np.flatnonzero(bits), nodes, undirected=undirected)
    return SimpleNamespace(whole_lists=edges, public_edges=public)


def counted(
    mechanism: PairRelease, bits: Bits, nodes: int, scale: float, draws: int, *inputs: Any, seed: int = 0
) -> dict[Bits, int]:
    """How often each graph came out."""
    data, noise = view(bits, nodes, undirected=mechanism.undirected), NoiseSource.seeded(seed)
    found = dict.fromkeys(all_bits(nodes, undirected=mechanism.undirected), 0)
    for number in range(draws):
        edges = mechanism.release(data, scale, noise.stream(str(number)), *inputs)
        out = np.zeros(len(bits), dtype=int)
        out[pair_numbers(edges, undirected=mechanism.undirected)] = 1
        found[tuple(out.tolist())] += 1
    return found
