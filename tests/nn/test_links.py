from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import SparseRows
from hushgraph.nn import links
from hushgraph.nn.links import HopRows, fit_weights, log_degrees
from hushgraph.nn.propagation import Neighborhood
from small_graphs import random_graph

NODES, COLUMNS = 30, 11
HOPS = (0, 1, 3)


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_BLOCK", 4)


@pytest.fixture
def hood() -> Neighborhood:
    return Neighborhood(MemoryEdges.from_edge_index(random_graph(0, NODES, 50).edge_index, NODES))


@pytest.fixture
def rows() -> Tensor:
    return (torch.rand(NODES, COLUMNS, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def naive_cosines(rows: Tensor, hood: Neighborhood) -> list[Tensor]:
    """The cosines of all pairs after every hop, from a dense adjacency matrix with self loops."""
    adjacency = torch.eye(NODES)
    adjacency[hood.edge_index[1], hood.edge_index[0]] = 1.0
    degree = adjacency.sum(dim=1)
    step = adjacency / (degree[:, None] * degree[None, :]).sqrt()
    found = []
    for hop in HOPS:
        moved = torch.linalg.matrix_power(step, hop) @ (rows - rows.mean(dim=0))
        found.append(torch.nn.functional.normalize(moved, dim=1))
    return [moved @ moved.T for moved in found]


@pytest.mark.parametrize("sparse", [False, True])
def test_cosines_equal_the_naive_ones(rows: Tensor, hood: Neighborhood, sparse: bool) -> None:
    pairs = torch.randint(NODES, (2, 40), generator=torch.Generator().manual_seed(2))
    found = HopRows(SparseRows.from_tensor(rows) if sparse else rows, hood, HOPS).cosines(pairs)
    expected = torch.stack([cosine[pairs[0], pairs[1]] for cosine in naive_cosines(rows, hood)], dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_narrow_rows_of_full_rank_reproduce_the_weighted_cosines(rows: Tensor, hood: Neighborhood) -> None:
    weights = torch.tensor([0.5, 2.0, 1.0])
    narrow = HopRows(rows, hood, HOPS).narrow(weights, 99, torch.Generator().manual_seed(0))
    expected = sum(w * cosine for w, cosine in zip(weights, naive_cosines(rows, hood), strict=True))
    torch.testing.assert_close(narrow @ narrow.T, expected, rtol=1e-3, atol=1e-3)


def test_fewer_columns_come_close_to_the_best_approximation(rows: Tensor, hood: Neighborhood) -> None:
    whole = naive_cosines(rows, hood)[2]
    narrow = HopRows(rows, hood, HOPS).narrow(torch.tensor([0.0, 0.0, 1.0]), 6, torch.Generator().manual_seed(0))
    assert narrow.shape == (NODES, 6)
    values = torch.linalg.eigvalsh(whole).flip(0)
    best = float(values[6:].square().sum().sqrt())
    assert best <= float((narrow @ narrow.T - whole).norm()) * (1 + 1e-5)
    assert float((narrow @ narrow.T - whole).norm()) < 3.0 * best


def test_rows_of_zeros_score_zero(hood: Neighborhood) -> None:
    alone = Neighborhood(MemoryEdges.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3))
    found = HopRows(torch.ones(3, 5), alone, HOPS)
    assert torch.equal(found.cosines(torch.tensor([[0, 1], [1, 2]])), torch.zeros(2, 3))
    assert bool(found.narrow(torch.ones(3), 2, torch.Generator().manual_seed(0)).isfinite().all())
    assert torch.equal(log_degrees(alone), torch.zeros(3))


def test_weights_equal_logistic_regression_where_none_is_negative() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4000, 3)) * [1.0, 0.2, 5.0]
    linked = rng.random(4000) < 1.0 / (1.0 + np.exp(-(inputs @ [1.0, 4.0, -0.3] + 0.5)))
    scaled = inputs / inputs.std(axis=0)
    plain = LogisticRegression(C=1.0 / (2.0 * 4000 * links._RIDGE), tol=1e-8).fit(scaled, linked)
    expected = plain.coef_[0] / inputs.std(axis=0)
    whole = torch.from_numpy(inputs)
    found = fit_weights(torch.cat([whole[:, :2], torch.zeros(4000, 4)], dim=1), whole[:, 2], torch.from_numpy(linked))
    assert found.hops[:2].tolist() == pytest.approx(expected[:2], rel=1e-3)
    assert float(found.degree) == pytest.approx(expected[2], rel=1e-3)


def test_a_hop_that_tells_against_links_gets_no_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    linked = (torch.arange(200) < 100).double()
    cosines = torch.rand(200, 6, generator=generator).double()
    cosines[:, 0] -= linked
    cosines[:, 1] += linked
    found = fit_weights(cosines, torch.zeros(200).double(), linked)
    assert float(found.hops[0]) == 0.0
    assert float(found.hops[1]) > 1.0
