from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pagerank import WAYS, TopRows, pagerank
from small_graphs import hub_graph, random_graph

ALPHA = 0.25


def dense(edge_index: torch.Tensor, nodes: int) -> np.ndarray:
    """alpha (I - (1 - alpha) W)^-1, one row per source; a node without neighbors keeps its mass."""
    adjacency = np.zeros((nodes, nodes))
    adjacency[edge_index[1], edge_index[0]] = 1.0
    adjacency = np.maximum(adjacency, adjacency.T)
    degree = adjacency.sum(axis=0)
    walk = 0.5 * (np.eye(nodes) + adjacency / np.maximum(degree, 1.0)) + 0.5 * np.diag(degree == 0)
    return ALPHA * np.linalg.inv(np.eye(nodes) - (1 - ALPHA) * walk).T


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("graph", [random_graph(1), random_graph(2, symmetric=False), hub_graph()])
def test_rows_equal_a_dense_solution(way: str, graph) -> None:
    edges = MemoryEdges.from_edge_index(graph.edge_index, graph.num_nodes)
    found = pagerank(edges, torch.arange(graph.num_nodes), alpha=ALPHA, rho=1e-10, way=way).toarray()
    assert np.abs(found - dense(graph.edge_index, graph.num_nodes)).max() < 1e-8


@pytest.mark.parametrize("way", ["ista", "ista-unit"])
def test_the_solution_has_the_residual_of_the_regularized_problem(way: str) -> None:
    graph, rho = hub_graph(), 1e-3
    nodes = graph.num_nodes
    edges = MemoryEdges.from_edge_index(graph.edge_index, nodes)
    rows = pagerank(edges, torch.arange(nodes), alpha=ALPHA, rho=rho, gamma=1e-7, way=way).toarray()
    residual = np.eye(nodes) - rows @ np.linalg.inv(dense(graph.edge_index, nodes))
    scaled = residual / edges.in_degree().numpy()
    assert scaled.max() <= rho * (1 + 1e-6)
    assert np.allclose(scaled[rows > 0], rho, rtol=1e-3)


def test_push_leaves_less_than_rho_per_degree() -> None:
    graph, rho = hub_graph(), 1e-3
    edges = MemoryEdges.from_edge_index(graph.edge_index, graph.num_nodes)
    rows = pagerank(edges, torch.arange(graph.num_nodes), alpha=ALPHA, rho=rho, way="push").toarray()
    residual = np.eye(graph.num_nodes) - rows @ np.linalg.inv(dense(graph.edge_index, graph.num_nodes))
    assert residual.min() > -1e-12
    assert (residual / edges.in_degree().numpy()).max() <= rho * (1 + 1e-9)


def test_edges_on_disk_give_the_same_rows(tmp_path: Path) -> None:
    graph = random_graph(3)
    edges = MemoryEdges.from_edge_index(graph.edge_index, graph.num_nodes)
    stored = DiskEdges.write(tmp_path / "edges", [graph.edge_index], graph.num_nodes)
    a, b = (pagerank(one, torch.arange(10)).toarray() for one in (edges, stored))
    assert np.array_equal(a, b)


def test_edges_that_lie_on_the_disk_in_both_directions_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = hub_graph()
    held = MemoryEdges.from_edge_index(graph.edge_index, graph.num_nodes)
    stored = DiskEdges.write(tmp_path / "edges", [graph.edge_index], graph.num_nodes)
    monkeypatch.delattr(DiskEdges, "load")
    for way in WAYS:
        ours, theirs = (pagerank(one, torch.arange(10), way=way).toarray() for one in (held, stored))  # type: ignore[arg-type]
        assert np.array_equal(ours, theirs)


def test_a_header_that_calls_edges_symmetric_is_not_believed(tmp_path: Path) -> None:
    graph = hub_graph()
    honest = DiskEdges.write(tmp_path / "both", [graph.edge_index], graph.num_nodes, both=True)
    pagerank(honest, torch.arange(10))
    stored = DiskEdges.write(tmp_path / "edges", [graph.edge_index[:, 1:]], graph.num_nodes)
    header = json.loads((stored.folder / "header.json").read_text())
    (stored.folder / "header.json").write_text(json.dumps({**header, "symmetric": True}))
    with pytest.raises(InputError, match="expected every edge in both directions, as its header says"):
        pagerank(DiskEdges.open(stored.folder), torch.arange(10))


def test_what_is_wrong_is_said_at_once() -> None:
    edges = MemoryEdges.from_edge_index(random_graph(1).edge_index, 40)
    with pytest.raises(InputError, match=r"(?s)alpha.*sources"):
        pagerank(edges, torch.tensor([40]), alpha=1.5)


def test_support_is_capped_by_weight_and_rows_sum_to_one() -> None:
    sources, columns = torch.arange(4), torch.tensor([[9, 0], [9, 1], [9, 5], [9, 6]])
    rows = TopRows(sources, columns, torch.tensor([[0.1, 0.3], [0.4, 0.3], [0.2, 0.3], [0.3, 0.3]]))
    capped = rows.with_support(2)
    assert rows.support() == 4
    assert capped.support() == 2
    assert capped.weights[:, 0].tolist() == pytest.approx([0.0, 0.4, 0.0, 0.3])
    assert capped.columns[:, 0].tolist() == [0, 9, 2, 9]
    mixed = capped.mixed(0.5)
    assert mixed.support() == 2
    assert mixed.weights.sum(1).tolist() == pytest.approx([1.0] * 4)
    assert torch.equal(mixed.columns[:, 0], sources)


def test_nodes_without_a_row_get_one_of_their_own() -> None:
    rows = TopRows(torch.tensor([1, 4]), torch.tensor([[2, 0], [1, 3]]), torch.full((2, 2), 0.5))
    filled = rows.with_own(torch.tensor([0, 1, 2, 4]))
    assert filled.sources.tolist() == [1, 4, 0, 2]
    assert filled.support() == rows.support() == 1
    assert filled.mixed(0.0).weights[2:].tolist() == [[1.0, 0.0, 0.0]] * 2
    assert filled.columns[2:].tolist() == [[0, 0], [2, 2]]
