"""Types of edges on disk: the sums, caps and questions of those in memory, and the same bound over neighbors."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.types import EdgeTypes, parts
from hushgraph.mechanisms import NeighborSum
from hushgraph.mechanisms.view import View
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units

NODES, NAMES = 7, ("follows", "pays", "blocks")
SUM = NeighborSum(noise_factors=(1.0, 2.0, 1.0))
Typed = list[tuple[int, int, int]]


def drawn(seed: int, *, symmetric: bool) -> Typed:
    """Edges (sender, receiver, type); a pair may be linked in several types."""
    rng = np.random.default_rng(seed)
    found = {(s, u, t) for s, u in itertools.permutations(range(NODES), 2) for t in range(3) if rng.random() < 0.25}
    return sorted(found | {(u, s, t) for s, u, t in found} if symmetric else found)


def in_memory(edges: Typed, x: Tensor) -> CheckedGraph:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3)
    data = Data(x=x, edge_index=index[:, :2].t(), y=torch.zeros(NODES).long(), train_mask=torch.ones(NODES).bool())
    data.num_classes, data.edge_type, data.edge_type_names = 2, index[:, 2], list(NAMES)
    return check_graph(data)


def on_disk(folder: Path, edges: Typed, x: Tensor, memory: int = 1 << 20) -> CheckedGraph:
    graph = in_memory(edges, x)
    assert graph.edge_types is not None
    index = graph.edge_types.entries.edge_index()
    stored = DiskEdges.write(folder, index, NODES * len(NAMES), memory_limit=memory)
    return replace(graph, edge_types=EdgeTypes(NAMES, stored))


def sums(graph: CheckedGraph, x: Tensor, unit: units.Unit) -> np.ndarray:
    noise = NoiseSource.seeded(5)
    return SUM.before_noise(View(graph, SUM.reads, unit.cap, noise, "sums"), noise, x)


def rows(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((NODES, 3))).float()


@pytest.mark.parametrize("memory", [64, 1 << 20])
@pytest.mark.parametrize("unit", [units.DirectedEdge(), units.Node(max_degree=2)], ids=str)
def test_sums_from_the_disk_are_those_from_memory(tmp_path: Path, unit: units.Unit, memory: int) -> None:
    edges, x = drawn(1, symmetric=False), rows(1)
    stored = on_disk(tmp_path / "types", edges, x, memory)
    assert np.array_equal(sums(stored, x, unit), sums(in_memory(edges, x), x, unit))


@pytest.mark.parametrize("seed", range(2))
def test_one_edge_of_one_type_moves_one_block_from_the_disk_as_well(tmp_path: Path, seed: int) -> None:
    x, unit = rows(seed), units.UndirectedEdge()
    edges = drawn(seed, symmetric=True)
    whole, reached = sums(on_disk(tmp_path / "all", edges, x), x, unit), 0.0
    for number, (sender, receiver, kind) in enumerate(edges):
        left = [edge for edge in edges if edge not in ((sender, receiver, kind), (receiver, sender, kind))]
        without = sums(on_disk(tmp_path / str(number), left, x), x, unit)
        change = float(((whole - without) ** 2).sum())
        assert change <= (SUM.sensitivity(unit) / SUM.noise_factors[kind]) ** 2 * (1 + 1e-9)
        reached = max(reached, change)
    assert reached > 0.99 * SUM.sensitivity(unit) ** 2


def test_a_record_on_disk_moves_as_many_mailboxes_as_its_cut_list_is_long(tmp_path: Path) -> None:
    x, edges, unit = rows(2), drawn(2, symmetric=False), units.Node(max_degree=2)
    whole = sums(on_disk(tmp_path / "all", edges, x), x, unit)
    for node in range(NODES):
        empty = x.clone()
        empty[node] = 0.0
        others = [edge for edge in edges if edge[0] != node]
        change = whole - sums(on_disk(tmp_path / str(node), others, empty), empty, unit)
        assert float((change**2).sum()) <= SUM.sensitivity(unit) ** 2 * (1 + 1e-9)


@pytest.mark.parametrize("memory", [64, 1 << 20])
def test_a_part_of_the_disk_answers_like_edges_of_its_own(tmp_path: Path, memory: int) -> None:
    edges = drawn(3, symmetric=False)
    types = on_disk(tmp_path / "types", edges, rows(3), memory).edge_types
    reference = in_memory(edges, rows(3)).edge_types
    assert types is not None
    assert reference is not None
    for part, expected in zip(parts(types.entries, 3), parts(reference.entries, 3), strict=True):
        assert torch.equal(part.edge_index(), expected.edge_index())
        assert torch.equal(part.in_degree(), expected.in_degree())
        assert torch.equal(part.out_degree(), expected.out_degree())
        assert part.is_symmetric() == expected.is_symmetric()
    assert types.largest_degree() == reference.largest_degree()


def test_a_reverse_of_another_type_is_no_reverse_on_disk(tmp_path: Path) -> None:
    mutual = drawn(4, symmetric=True)
    assert on_disk(tmp_path / "same", mutual, rows(4)).is_symmetric()
    sender, receiver, kind = mutual[0]
    turned = [*mutual[1:], (sender, receiver, (kind + 1) % 3)]
    assert not on_disk(tmp_path / "other", sorted(set(turned)), rows(4)).is_symmetric()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"public_edge_index": torch.tensor([[0], [1]])}, "without public_edge_index"),
        ({"edge_type_names": ["follows"]}, "expected 7 for each type"),
        ({"edge_type_names": None}, "expected 7 for each type"),
    ],
)
def test_mailboxes_that_do_not_fit_are_refused(tmp_path: Path, changed: dict, words: str) -> None:
    edges = drawn(5, symmetric=True)
    graph = on_disk(tmp_path / "types", edges, rows(5))
    data = Data(x=rows(5), y=torch.zeros(NODES).long(), train_mask=torch.ones(NODES).bool(), num_classes=2)
    data.edges = DiskEdges.write(tmp_path / "edges", graph.edges.edge_index(), NODES)
    data.edge_mailboxes, data.edge_type_names = graph.edge_types.entries, list(NAMES)
    assert check_graph(data).metadata.edge_types == NAMES
    for name, value in changed.items():
        data[name] = value
    with pytest.raises(InputError, match=words):
        check_graph(data)


def test_mailboxes_with_an_edge_that_is_there_twice_or_from_nobody_are_refused(tmp_path: Path) -> None:
    graph = on_disk(tmp_path / "types", drawn(5, symmetric=True), rows(5))
    data = Data(x=rows(5), y=torch.zeros(NODES).long(), train_mask=torch.ones(NODES).bool(), num_classes=2)
    data.edges = DiskEdges.write(tmp_path / "edges", graph.edges.edge_index(), NODES)
    data.edge_type_names, mailboxes = list(NAMES), graph.edge_types.entries.load()
    data.edge_mailboxes = mailboxes
    assert check_graph(data).metadata.edge_types == NAMES
    first = int((mailboxes.in_degree() > 1).nonzero()[0])
    begin, twice = int(mailboxes.offsets[first]), mailboxes.sources.clone()
    twice[begin + 1] = twice[begin]
    strange = mailboxes.sources.clone()
    strange[int(mailboxes.offsets[first + 1]) - 1] = NODES  # the number of a mailbox, and of no node
    for sources, words in ((twice, "expected lists of distinct neighbors"), (strange, f"among the {NODES} nodes")):
        data.edge_mailboxes = MemoryEdges(mailboxes.offsets, sources)
        with pytest.raises(InputError, match=words):
            check_graph(data)
