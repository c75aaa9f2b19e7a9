"""Small graphs on which every mechanism is compared with all its neighbors: 3 features, 2 classes, 10 nodes or so."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.view import View
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import Unit
from hushgraph.testing import Cell, Variations


def _graph(name: str, pairs: Tensor, nodes: int, *, symmetric: bool, seed: int) -> CheckedGraph:
    made = torch.Generator().manual_seed(seed)
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = torch.cat([pairs, pairs.flip(0)], dim=1) if symmetric else pairs
    split = torch.arange(nodes) % 5
    data = Data(
        x=2.0 * torch.randn(nodes, 3, generator=made),
        y=torch.randint(0, 2, (nodes,), generator=made),
        edge_index=torch.unique(edges, dim=1),
        train_mask=split < 3,
        val_mask=split == 3,
        test_mask=split == 4,
        num_classes=2,
        name=name,
    )
    return check_graph(data)


def _random(seed: int, nodes: int, count: int) -> Tensor:
    """Random pairs; node 3 is in none of them, the last node in at least one."""
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, nodes, (2, count), generator=made)
    pairs = torch.cat([pairs, torch.tensor([[nodes - 1], [0]])], dim=1)
    return pairs[:, (pairs != 3).all(dim=0)]


def _hub(nodes: int) -> Tensor:
    others = torch.arange(1, nodes)
    return torch.stack([torch.zeros_like(others), others])


def _circulant(nodes: int, steps: int) -> Tensor:
    first = torch.arange(nodes).repeat(steps)
    return torch.stack([first, (first + torch.arange(1, steps + 1).repeat_interleave(nodes)) % nodes])


def graphs() -> list[CheckedGraph]:
    """Random, with a hub, directed, with isolated nodes, without edges, and with all degrees at a cap of 4."""
    ring_and_hub = torch.cat([_hub(9), _circulant(9, 1)], dim=1)
    made = [
        _graph("random", _random(1, 9, 14), 9, symmetric=True, seed=1),
        _graph("sparse", _random(2, 8, 5), 8, symmetric=True, seed=2),
        _graph("hub", ring_and_hub, 9, symmetric=True, seed=3),
        _graph("at the cap", _circulant(9, 2), 9, symmetric=True, seed=4),
        _graph("directed", _random(5, 9, 24), 9, symmetric=False, seed=5),
        _graph("directed hub", ring_and_hub, 9, symmetric=False, seed=6),
        _graph("everybody names one", _hub(8).flip(0), 8, symmetric=False, seed=7),
        _graph("directed at the cap", _circulant(9, 4), 9, symmetric=False, seed=8),
        _graph("no edges", torch.empty((2, 0), dtype=torch.int64), 6, symmetric=True, seed=9),
    ]
    return made


def fits(graph: CheckedGraph, unit: Unit) -> bool:
    """Whether the unit takes the graph."""
    try:
        unit.check(graph)
    except InputError:
        return False
    return True


def view_of(graph: CheckedGraph, mechanism: Mechanism, unit: Unit | None, seed: int = 0) -> View:
    """What a vault would show the mechanism of the graph; the same seed cuts lists by the same keys."""
    cap = None if unit is None else unit.cap
    return View(graph, mechanism.reads, cap, NoiseSource.seeded(seed), "stage")


def own_rows(graph: CheckedGraph, other: CheckedGraph) -> np.ndarray:
    """The nodes whose record (features, label) differs."""
    features = (graph.features != other.features).any(dim=1)
    return (features | (graph.labels != other.labels)).numpy()


GRAPHS = graphs()


def realized(cell: Cell, graph: CheckedGraph, other: CheckedGraph, seed: int, charged_for: Unit | None = None) -> float:
    """How far the answers on two neighbors lie apart, in the norm of the law, in a run charged for that unit.

    Rows that stay in the vault as part of their node's own record are left out.
    """
    mechanism, unit = cell.mechanism, charged_for or cell.unit
    before, after = (
        mechanism.before_noise(view_of(one, mechanism, unit, seed), NoiseSource.seeded(seed), *inputs)
        for one, inputs in ((g, mechanism.example_inputs(g)) for g in (graph, other))
    )
    change = before - after
    if mechanism.stays_private(unit):
        change[own_rows(graph, other)] = 0.0
    if mechanism.name == "pagerank-top":  # K picks a row, each by scores that move by so much at most
        return float(np.sqrt(mechanism.top * (np.abs(change).max(axis=1) ** 2).sum()))
    return float(np.sqrt((change**2).sum()) if mechanism.law == "gaussian" else np.abs(change).sum())


@cache
def largest_share(cell: Cell) -> float:
    """The largest change over the neighbors of all graphs that the unit takes, over the bound."""
    changes = [
        realized(cell, graph, other, seed)
        for graph in GRAPHS
        if fits(graph, cell.unit)
        for seed in range(1 if cell.mechanism.trains else 2 if cell.mechanism.law == "gaussian" else 8)
        for other in cell.unit.neighbors(Variations(graph), np.random.default_rng(seed))
    ]
    assert changes, f"no small graph suits the unit {cell.unit}"
    return max(changes) / cell.bound
