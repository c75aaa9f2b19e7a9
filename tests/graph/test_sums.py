"""Sums over in-neighbors, against a plain loop; determinism over blocks and threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph import sums as aggregate
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import aligned_rows, sum_bags, sum_in_neighbors, target_runs


def random_graph(seed: int, num_nodes: int, num_edges: int) -> tuple[InNeighbors, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    return InNeighbors.from_edge_index(edges, num_nodes), edges


def naive(edges: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Add the row of every edge's source to its target, in the stored order (by target, then source)."""
    total = torch.zeros_like(rows)
    for source, target in sorted(edges.T.tolist(), key=lambda edge: (edge[1], edge[0])):
        total[target] += rows[source]
    return total


@given(
    seed=st.integers(0, 1000),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 120),
    columns=st.sampled_from([0, 1, 3, 16, 33, 130]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=80, deadline=None)
def test_equals_the_naive_sum(seed: int, num_nodes: int, num_edges: int, columns: int, dtype: torch.dtype) -> None:
    graph, edges = random_graph(seed, num_nodes, num_edges)
    rows = torch.randn(num_nodes, columns, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    total = sum_in_neighbors(graph, rows)
    assert total.dtype == dtype
    torch.testing.assert_close(total, naive(edges, rows), rtol=1e-5, atol=1e-5)


def test_direction_and_multiplicity() -> None:
    graph = InNeighbors.from_edge_index(torch.tensor([[0, 0, 1], [2, 2, 2]]), num_nodes=4)
    rows = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    assert sum_in_neighbors(graph, rows).view(-1).tolist() == [0.0, 0.0, 12.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [5, 16, 501])
def test_same_bits_for_any_run_of_targets_alignment_and_threads(dtype: torch.dtype, columns: int) -> None:
    graph, _ = random_graph(1, 300, 5000)
    rows = torch.randn(300, columns, generator=torch.Generator().manual_seed(2), dtype=dtype)
    whole = sum_in_neighbors(graph, rows)
    shifted = torch.empty(rows.numel() + 1, dtype=dtype)[1:].view(rows.shape).copy_(rows)
    assert torch.equal(sum_in_neighbors(graph, shifted), whole)
    assert torch.equal(sum_in_neighbors(graph, rows.T.contiguous().T), whole)
    for max_edges in (1, 17, 999):
        parts = []
        for first, last in target_runs(graph.offsets, max_edges):
            begin, end = int(graph.offsets[first]), int(graph.offsets[last])
            offsets = graph.offsets[first : last + 1] - begin
            parts.append(sum_bags(graph.sources[begin:end], offsets, aligned_rows(rows)))
        assert torch.equal(torch.cat(parts), whole)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(sum_in_neighbors(graph, rows), whole)
    finally:
        torch.set_num_threads(threads)


def test_wide_offsets_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = random_graph(3, 100, 2000)
    rows = torch.randn(100, 16, generator=torch.Generator().manual_seed(4))
    expected = sum_in_neighbors(graph, rows)
    wide = InNeighbors(graph.offsets.to(torch.int64), graph.sources)
    monkeypatch.setattr(aggregate, "INT32_LIMIT", 150)
    monkeypatch.setattr(aggregate, "_FLOAT64_RUN", 140)
    assert torch.equal(sum_in_neighbors(wide, rows), expected)
    torch.testing.assert_close(sum_in_neighbors(wide, rows.double()).float(), expected)


@given(lengths=st.lists(st.integers(0, 9), max_size=30), max_edges=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_runs_cover_all_targets_within_the_limit(lengths: list[int], max_edges: int) -> None:
    offsets = torch.cumsum(torch.tensor([0, *lengths]), 0)
    runs = target_runs(offsets, max_edges)
    covered = [node for first, last in runs for node in range(first, last)]
    assert covered == list(range(len(lengths)))
    for first, last in runs:
        assert sum(lengths[first:last]) <= max_edges or last == first + 1


def test_rows_with_gradients_are_accepted_and_not_tracked() -> None:
    graph, _ = random_graph(5, 10, 30)
    rows = torch.randn(10, 3, requires_grad=True)
    assert not sum_in_neighbors(graph, rows).requires_grad


def test_alignment() -> None:
    for skip in range(4):
        rows = torch.arange(40.0)[skip : skip + 30].view(10, 3)
        aligned = aligned_rows(rows)
        assert aligned.data_ptr() % 64 == 0
        assert torch.equal(aligned, rows)
    already = aligned_rows(torch.zeros(8, 16))
    assert aligned_rows(already).data_ptr() == already.data_ptr()


def test_infinite_rows_stay_with_their_receivers() -> None:
    graph = InNeighbors.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
    rows = torch.tensor([[float("inf")], [1.0], [2.0]])
    assert sum_in_neighbors(graph, rows).view(-1).tolist() == [0.0, float("inf"), 0.0]


def test_wrong_rows_are_refused() -> None:
    graph, _ = random_graph(6, 10, 30)
    with pytest.raises(InputError, match=r"shape \[10, columns\]"):
        sum_in_neighbors(graph, torch.zeros(9, 3))
    with pytest.raises(InputError, match="float32 or float64"):
        sum_in_neighbors(graph, torch.zeros(10, 3, dtype=torch.int64))
