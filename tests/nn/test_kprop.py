from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.propagation import Neighborhood, PropagatedRows, kprop
from small_graphs import random_graph


def neighborhood(seed: int, *, symmetric: bool = True) -> Neighborhood:
    graph = random_graph(seed, 20, 40, symmetric=symmetric)
    return Neighborhood(MemoryEdges.from_edge_index(graph.edge_index, 20))


def naive_kprop(hood: Neighborhood, rows: torch.Tensor, steps: int) -> torch.Tensor:
    """Algorithm 3 with loops: no self loops, each neighbor divided by sqrt(degree x degree)."""
    arriving, leaving = hood.graph.in_degree().tolist(), hood.graph.out_degree().tolist()
    for _ in range(steps):
        following = torch.zeros_like(rows)
        for source, target in hood.edge_index.T.tolist():
            following[target] += rows[source] / (arriving[target] * leaving[source]) ** 0.5
        rows = following
    return rows


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.integers(0, 4), st.booleans())
def test_kprop_equals_the_loop(seed: int, steps: int, symmetric: bool) -> None:
    hood = neighborhood(seed, symmetric=symmetric)
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(kprop(hood.kprop, rows, steps), naive_kprop(hood, rows, steps), atol=1e-5)


def test_a_node_never_hears_itself_in_one_step() -> None:
    hood = neighborhood(1)
    spread = kprop(hood.kprop, torch.eye(20), 1)
    assert torch.equal(spread.diag(), torch.zeros(20))
    assert torch.equal(kprop(hood.kprop, torch.eye(20), 0), torch.eye(20))


@pytest.mark.parametrize("kind", ["kprop", "gcn", "mean"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gradient_is_that_of_the_written_out_matrix(kind: str, symmetric: bool) -> None:
    hood = neighborhood(2, symmetric=symmetric)
    propagation = getattr(hood, kind)
    matrix = propagation(torch.eye(20))
    rows = torch.randn(20, 4, requires_grad=True)
    weight = torch.randn(20, 4)
    (propagation(rows) * weight).sum().backward()
    assert torch.allclose(rows.grad, matrix.T @ weight, atol=1e-5)


def sparse_reports(seed: int) -> SparseRows:
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randint(6, (20,), generator=generator)
    signs = torch.randint(2, (20,), generator=generator) * 2.0 - 1.0
    return SparseRows(torch.arange(21), columns, signs, (20, 6))


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("dense", [True, False])
def test_rows_not_written_out_equal_rows_written_out(steps: int, dense: bool) -> None:
    hood, reports = neighborhood(3), sparse_reports(3)
    held = reports.to_dense() if dense else reports
    rows = PropagatedRows(held, hood.kprop, steps, step=7.0, center=0.5)
    expected = naive_kprop(hood, 7.0 * reports.to_dense() + 0.5, steps)
    assert torch.allclose(rows.to_dense(), expected, atol=1e-4)
    weight = torch.randn(6, 2, requires_grad=True)
    product = rows.matmul(weight)
    assert torch.allclose(product, expected @ weight, atol=1e-4)
    scale = torch.randn(20, 2)
    (product * scale).sum().backward()
    assert torch.allclose(weight.grad, expected.T @ scale, atol=1e-3)


def test_normalized_rows_have_about_length_one_and_no_center() -> None:
    hood, reports = neighborhood(4), sparse_reports(4)
    rows = PropagatedRows(reports, hood.kprop, 3, step=100.0, center=0.5)
    dense = rows.normalized(torch.Generator().manual_seed(0)).to_dense()
    plain = naive_kprop(hood, reports.to_dense(), 3)
    reached = plain.norm(dim=1) > 1e-6
    lengths = dense[reached].norm(dim=1)
    # 64 probes: the squared length has a relative deviation of sqrt(2/64) = 0.18; 5 deviations, fixed seed.
    assert bool((lengths > 0.6).all())
    assert bool((lengths < 2.5).all())
    directions = (dense[reached] * plain[reached]).sum(1) / (lengths * plain[reached].norm(dim=1))
    assert torch.allclose(directions, torch.ones_like(directions), atol=1e-4)
    assert torch.equal(dense[~reached], torch.zeros_like(dense[~reached]))


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(InputError, match="steps"):
        PropagatedRows(sparse_reports(0), neighborhood(0).kprop, -1)
