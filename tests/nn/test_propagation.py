"""Propagations against the matrices they stand for."""

from __future__ import annotations

import pytest
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.nn import propagation as module
from hushgraph.nn.propagation import Neighborhood, weighted_sum

NODES = 12


def directed(seed: int) -> MemoryEdges:
    """A directed graph whose last two nodes have no edges at all."""
    ends = torch.randint(NODES - 2, (2, 40), generator=torch.Generator().manual_seed(seed))
    return MemoryEdges.from_edge_index(torch.unique(ends[:, ends[0] != ends[1]], dim=1), NODES)


def matrix(graph: MemoryEdges, kind: str) -> torch.Tensor:
    """The map written out: row = target, column = source."""
    table = torch.zeros(NODES, NODES, dtype=torch.float64)
    for source, target in graph.edge_index().t().tolist():
        table[target, source] = 1.0
    if kind == "mean":
        return table / table.sum(dim=1, keepdim=True).clamp(min=1.0)
    loops = 1.0 if kind == "gcn" else 0.0
    arriving, leaving = (table.sum(dim=1) + loops).clamp(min=1.0), (table.sum(dim=0) + loops).clamp(min=1.0)
    table = table + loops * torch.eye(NODES, dtype=torch.float64)
    return table / (arriving.sqrt()[:, None] * leaving.sqrt()[None, :])


@pytest.mark.parametrize("kind", ["kprop", "gcn", "mean"])
@pytest.mark.parametrize("seed", range(3))
def test_step_and_gradient_equal_the_matrix_written_out(kind: str, seed: int) -> None:
    graph = directed(seed)
    step, expected = getattr(Neighborhood(graph), kind), matrix(graph, kind).to(torch.float32)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(NODES, 5, generator=generator, requires_grad=True)
    arriving = torch.randn(NODES, 5, generator=generator)
    result = step(rows)
    result.backward(arriving)
    torch.testing.assert_close(result, expected @ rows)
    torch.testing.assert_close(rows.grad, expected.t() @ arriving)


def test_doubles_stay_doubles() -> None:
    graph = directed(4)
    rows = torch.randn(NODES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    found = Neighborhood(graph).gcn(rows)
    torch.testing.assert_close(found, matrix(graph, "gcn") @ rows, rtol=1e-6, atol=1e-6)


def test_graphs_with_too_many_edges_are_summed_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = directed(5)
    weights, rows = torch.rand(graph.num_edges), torch.randn(NODES, 4)
    whole = weighted_sum(graph, weights, rows)
    monkeypatch.setattr(module, "INT32_LIMIT", 8)
    assert torch.equal(weighted_sum(graph, weights, rows), whole)


def test_a_graph_without_edges_sums_to_zero() -> None:
    empty = MemoryEdges.from_edge_index(torch.empty(2, 0, dtype=torch.int64), NODES)
    assert torch.equal(Neighborhood(empty).kprop(torch.ones(NODES, 2)), torch.zeros(NODES, 2))
