from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import models

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.pyg_models import PygNeighborhood, first_sums, kept_features, remaining_layers, scores_of

NODES, COLUMNS = 40, 9
KINDS = ["GCN", "GraphSAGE", "GIN", "GAT"]


def directed_edges() -> torch.Tensor:
    """A hub that receives from everybody, a node nobody sends to, an isolated one, and random edges."""
    generator = torch.Generator().manual_seed(3)
    hub = torch.stack((torch.arange(2, NODES - 1), torch.zeros(NODES - 3, dtype=torch.int64)))
    others = torch.randint(2, NODES - 1, (2, 90), generator=generator)
    edges = torch.cat((hub, others[:, others[0] != others[1]], torch.tensor([[1], [0]])), dim=1)
    return MemoryEdges.from_edge_index(edges, NODES).coalesce().edge_index()


def features() -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(NODES, COLUMNS, generator=generator) * (torch.rand(NODES, COLUMNS, generator=generator) < 0.3)


def model_of(kind: str, layers: int = 2, **more: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = getattr(models, kind)(COLUMNS, 6, layers, 3, norm="batch", **more)
    for parameter in model.parameters():  # biases start at zero, where a forgotten one would not show
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_pyg(kind: str, layers: int, sparse: bool) -> None:
    x, edges = features(), directed_edges()
    rows = kept_features(SparseRows.from_tensor(x) if sparse else x)
    graph = PygNeighborhood(MemoryEdges.from_edge_index(edges, NODES))
    labels = torch.arange(NODES) % 3
    found, gradients = [], []
    for run in (lambda m: m(x, edges), lambda m: scores_of(m, rows, graph)):
        model = model_of(kind, layers).train()
        scores = run(model)
        F.cross_entropy(scores, labels).backward()
        found.append(scores)
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert torch.allclose(found[0], found[1], atol=2e-5)
    for theirs, ours in zip(*gradients):
        assert torch.allclose(theirs, ours, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_mode_is_that_of_pyg_and_shares_the_first_sums(kind: str) -> None:
    x, edges = features(), directed_edges()
    graph = PygNeighborhood(MemoryEdges.from_edge_index(edges, NODES))
    model = model_of(kind, dropout=0.0)
    sums = first_sums(model.train(), x, graph)
    remaining_layers(model, sums, graph)  # moves the running means of the norms
    model.eval()
    assert torch.allclose(remaining_layers(model, sums, graph), model(x, edges), atol=2e-5)


def test_a_layer_of_another_kind_is_refused() -> None:
    model = models.PNA(COLUMNS, 6, 1, 3, aggregators=["mean"], scalers=["identity"], deg=torch.ones(5))
    graph = PygNeighborhood(MemoryEdges.from_edge_index(directed_edges(), NODES))
    with pytest.raises(InputError, match="PNAConv"):
        scores_of(model, features(), graph)
