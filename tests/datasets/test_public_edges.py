from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hushgraph.datasets import load, split_edges
from hushgraph.datasets.public_edges import groups_of
from hushgraph.errors import InputError
from small_graphs import random_graph


def pairs(edges: torch.Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, edges.t().tolist()))


@pytest.mark.parametrize("rho", [0.05, 0.1, 0.2, 0.305])
def test_a_share_of_the_pairs_is_private_in_both_directions(rho: float) -> None:
    graph = random_graph(1, 400, 20_000)
    public = split_edges(graph, rho).public_edge_index
    assert pairs(public) == pairs(public.flip(0)) <= pairs(graph.edge_index)
    count = graph.edge_index.shape[1] / 2
    # Six standard deviations; the coins are fixed.
    assert abs(1 - public.shape[1] / 2 / count - rho) < 6 * (rho * (1 - rho) / count) ** 0.5
    other = split_edges(graph, rho, seed=1).public_edge_index
    assert pairs(other) != pairs(public)


def test_the_ends_of_the_share() -> None:
    graph = random_graph(0)
    assert pairs(split_edges(graph, 0).public_edge_index) == pairs(graph.edge_index)
    assert split_edges(graph, 1.0).public_edge_index.shape == (2, 0)
    assert graph.get("public_edge_index") is None


@pytest.mark.parametrize("private", [0.3, torch.arange(40) % 3])
def test_a_private_edge_more_or_less_leaves_the_public_ones_as_they_are(private: float | torch.Tensor) -> None:
    graph = random_graph(0)
    known = pairs(split_edges(graph, private).public_edge_index)
    secret = sorted(pairs(graph.edge_index) - known)[0]
    keep = torch.tensor([pair not in (secret, secret[::-1]) for pair in map(tuple, graph.edge_index.t().tolist())])
    graph.edge_index = graph.edge_index[:, keep]
    assert pairs(split_edges(graph, private).public_edge_index) == known


def test_a_rule_reads_one_number_per_node() -> None:
    graph = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]), num_nodes=4)
    rule = torch.tensor([5, 5, -1, -1])
    assert pairs(split_edges(graph, rule).public_edge_index) == {(0, 1), (1, 0)}
    for wrong in (1.5, True, rule[:3], rule.float()):
        with pytest.raises(InputError, match="private: expected"):
            split_edges(graph, wrong)


def test_files_are_split_by_share_or_by_a_column(tmp_path: Path) -> None:
    graph = random_graph(0)
    house = np.arange(40) % 3  # 0: unknown
    np.savez(
        tmp_path / "school.npz",
        edge_index=graph.edge_index.numpy(),
        x=graph.x.numpy(),
        y=graph.y.numpy(),
        local_info=np.stack([np.ones(40, dtype=np.int64), house], axis=1),
        keep_mask=np.arange(40) > 3,
    )
    found = load(tmp_path / "school.npz", num_classes=3, private_edges="local_info:1")
    source, target = found.public_edge_index
    here = house[4:]
    assert source.numel()
    assert (here[source] == here[target]).all()
    assert (here[source] > 0).all()
    assert torch.equal(groups_of(found, "local_info:1"), torch.from_numpy(np.where(here > 0, here, -1)))
    assert load(tmp_path / "school.npz", num_classes=3, private_edges=0.5).public_edge_index.shape[1]
    for wrong in ("local_info", "local_info:2", "other:0"):
        with pytest.raises(InputError):
            load(tmp_path / "school.npz", num_classes=3, private_edges=wrong)


def test_private_edges_can_be_left_out() -> None:
    data = load("campus", num_nodes=200, private_edges=0.3, public_only=True)
    assert torch.equal(data.edge_index, data.public_edge_index)
    assert data.edge_index.shape[1] < load("campus", num_nodes=200).edge_index.shape[1]
