from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.nn.backbones import GatLayer, GcnLayer, SageLayer, backbone
from hushgraph.nn.propagation import Neighborhood
from small_graphs import random_graph


@pytest.fixture
def hood(graph) -> Neighborhood:  # type: ignore[no-untyped-def]
    return Neighborhood(MemoryEdges.from_edge_index(graph.edge_index, 40))


def test_layers_equal_those_of_pyg(hood: Neighborhood) -> None:
    rows, edges = torch.randn(40, 5), random_graph(0).edge_index
    gcn, theirs = GcnLayer(5, 3), GCNConv(5, 3)
    gcn.reset_parameters()
    theirs.lin.weight.data = gcn.weight.data.T.clone()
    assert torch.allclose(gcn(rows, hood), theirs(rows, edges), atol=1e-5)

    sage, their_sage = SageLayer(5, 3), SAGEConv(5, 3)
    sage.reset_parameters()
    their_sage.lin_l.weight.data, their_sage.lin_r.weight.data = (part.T.clone() for part in sage.weight.chunk(2, 1))
    their_sage.lin_l.bias.data.zero_()
    assert torch.allclose(sage(rows, hood), their_sage(rows, edges), atol=1e-5)

    gat, their_gat = GatLayer(5, 3, 4), GATConv(5, 3, heads=4)
    gat.reset_parameters()
    their_gat.lin.weight.data = gat.weight.data.T.clone()
    their_gat.att_src.data, their_gat.att_dst.data = gat.source.data[None].clone(), gat.target.data[None].clone()
    assert torch.allclose(gat(rows, hood), their_gat(rows, edges), atol=1e-5)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_backbones_give_class_scores_and_dropout_only_in_training(name: str, hood: Neighborhood) -> None:
    network = backbone(name, 5, 8, 3, dropout=0.5)
    network.reset_parameters()
    rows = torch.randn(40, 5)
    network.eval()
    assert network(rows, hood).shape == (40, 3)
    assert torch.equal(network(rows, hood), network(rows, hood))
    network.train()
    assert not torch.equal(network(rows, hood), network(rows, hood))


def test_an_unknown_backbone_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'sage'"):
        backbone("sagee", 5, 8, 3, 0.0)
