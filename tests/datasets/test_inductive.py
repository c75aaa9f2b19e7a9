"""Node-disjoint graphs for inductive evaluation."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from hushgraph.datasets.campus import campus
from hushgraph.datasets.inductive import disjoint_graphs
from hushgraph.datasets.splits import random_split
from hushgraph.errors import InputError


@pytest.fixture(scope="module")
def graph() -> Data:
    return campus(600, seed=2)


def test_nodes_are_disjoint_and_complete(graph: Data) -> None:
    learn, test = disjoint_graphs(graph, seed=0)
    assert sorted(learn.node_ids.tolist() + test.node_ids.tolist()) == list(range(600))
    assert int(learn.test_mask.sum()) == 0
    assert int((test.train_mask | test.val_mask).sum()) == 0
    assert int(learn.train_mask.sum()) == int(graph.train_mask.sum())
    assert int(test.test_mask.sum()) == int(graph.test_mask.sum()) == test.num_nodes


def test_only_edges_between_the_graphs_are_dropped(graph: Data) -> None:
    learn, test = disjoint_graphs(graph, seed=0)
    source, target = graph.edge_index
    across = int((graph.test_mask[source] != graph.test_mask[target]).sum())
    kept = learn.edge_index.shape[1] + test.edge_index.shape[1]
    assert across > 0
    assert kept == graph.edge_index.shape[1] - across
    original = set(map(tuple, graph.edge_index.t().tolist()))
    for part in (learn, test):
        assert set(map(tuple, part.node_ids[part.edge_index].t().tolist())) <= original


def test_nodes_in_no_mask_are_dealt_out_by_seed(graph: Data) -> None:
    sparse_split = random_split(graph, 0.2, 0.1, 0.1)
    first, again, other = (disjoint_graphs(sparse_split, seed)[1].node_ids.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    # A quarter of 600: 60 tested ones and Binomial(360, 1/4), whose standard deviation is 8.2; fixed seed.
    assert abs(len(first) - 150) < 42


def test_input_is_not_changed(graph: Data) -> None:
    before = graph.edge_index.clone(), graph.train_mask.clone()
    disjoint_graphs(graph, 0)
    assert torch.equal(graph.edge_index, before[0])
    assert torch.equal(graph.train_mask, before[1])
    assert "node_ids" not in graph


def test_refuses_data_without_a_usable_split(graph: Data) -> None:
    bare = Data(x=torch.zeros(2, 1), y=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match="random_split"):
        disjoint_graphs(bare, 0)
    with pytest.raises(InputError, match="both sides"):
        disjoint_graphs(random_split(graph, 1.0, 0.0, 0.0), 0)
