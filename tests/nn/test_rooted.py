"""Rooted message passing: each layer against its formula, and subgraphs against the whole graph."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.rooted import (
    CONVOLUTIONS,
    NoisyMean,
    NoisyPair,
    NoisySum,
    RootedNetwork,
    WithConstant,
    WithRest,
    shrunk,
)

NODES = 25


def random_edges(seed: int = 0) -> MemoryEdges:
    edges = torch.randint(NODES - 2, (2, 70), generator=torch.Generator().manual_seed(seed))
    return MemoryEdges.from_edge_index(edges[:, edges[0] != edges[1]], NODES).coalesce()


def network(convolution: str, layers: int, **options: int) -> RootedNetwork:
    generator = torch.Generator().manual_seed(1)
    return RootedNetwork(
        6, 8, 3, num_layers=layers, convolution=convolution, generator=generator, **({"heads": 2} | options)
    ).double()


def features() -> Tensor:
    return torch.randn(NODES, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def dense_scores(net: RootedNetwork, convolution: str, x: Tensor, edges: MemoryEdges) -> Tensor:
    """The same network written with a dense adjacency matrix: row u of A marks who sends to u."""
    a = torch.zeros(NODES, NODES, dtype=torch.float64)
    source, target = edges.edge_index()
    a[target, source] = 1.0
    with_self = a + torch.eye(NODES, dtype=torch.float64)
    h = x
    for layer in net.encoder:
        h = layer(h).tanh()
    for conv in net.convolutions:
        if convolution == "gcn":
            h = conv.linear((with_self @ h) / (a.sum(1, keepdim=True) + 1))
        elif convolution == "sage":
            h = conv.linear(torch.cat((h, (a @ h) / a.sum(1, keepdim=True).clamp(min=1.0)), dim=1))
        elif convolution == "gin":
            h = conv.second(conv.linear(with_self @ h).tanh())
        else:
            parts = []
            for q, k, v in zip(conv.query(h).chunk(2, 1), conv.key(h).chunk(2, 1), conv.value(h).chunk(2, 1)):
                scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(with_self == 0, -math.inf)
                parts.append(scores.softmax(1) @ v)
            h = torch.cat(parts, 1)
        h = h.tanh()
    for i, layer in enumerate(net.decoder):
        h = layer(h.tanh() if i else h)
    return h


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_whole_graph_follows_the_formula_and_subgraphs_agree(convolution: str, layers: int) -> None:
    net, x, edges = network(convolution, layers, encoder_layers=2, decoder_layers=2), features(), random_edges()
    with torch.no_grad():
        whole = net(x, whole_graph(edges, layers))
        torch.testing.assert_close(whole, dense_scores(net, convolution, x, edges))
        roots = torch.tensor([24, 3, 0, 11, 23])  # the last ones are isolated
        batch = RootedSubgraphs(edges, roots, layers).batch(torch.arange(5))
        torch.testing.assert_close(net(x[batch.nodes], batch), whole[roots])


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_gradients_along_messages_are_right(convolution: str) -> None:
    net, x, edges = network(convolution, 2), features(), random_edges(5)
    ours = torch.autograd.grad(net(x, whole_graph(edges, 2)).square().sum(), list(net.parameters()))
    dense = torch.autograd.grad(dense_scores(net, convolution, x, edges).square().sum(), list(net.parameters()))
    for a, b in zip(ours, dense):
        torch.testing.assert_close(a, b)


def test_sparse_rows_give_the_same_scores() -> None:
    net, edges = network("gcn", 1).float(), random_edges()
    x = (features() > 0.8).float()
    with torch.no_grad():
        torch.testing.assert_close(net(SparseRows.from_tensor(x), whole_graph(edges, 1)), net(x, whole_graph(edges, 1)))


def test_attention_survives_large_scores() -> None:
    net = network("attention", 1)
    with torch.no_grad():
        net.convolutions[0].query.weight.mul_(1e4)  # type: ignore[union-attr, operator]
        assert torch.isfinite(net(features(), whole_graph(random_edges(), 1))).all()


def test_a_mean_survives_the_way_through_constants() -> None:
    rows = torch.rand(4, 5, dtype=torch.float64)
    sent = WithConstant()(rows)
    torch.testing.assert_close(sent.norm(dim=1), torch.ones(4, dtype=torch.float64))
    lengths = torch.cat((rows, torch.full((4, 1), math.sqrt(5))), 1).norm(dim=1)
    weights = 1 / lengths
    expected = (weights @ rows) / weights.sum()
    mean = NoisyMean()(torch.stack((sent[0], sent[1:].sum(0))).unsqueeze(0))
    torch.testing.assert_close(mean[0], expected)
    alone = NoisyMean()(torch.stack((sent[0], torch.zeros(6, dtype=torch.float64))).unsqueeze(0))
    torch.testing.assert_close(alone[0], rows[0])
    pushed = NoisyMean()(torch.stack((sent[0], torch.tensor([0, 0, 0, 0, 0, -9.0]).double())).unsqueeze(0))
    torch.testing.assert_close(pushed[0], rows[0])
    pair = NoisyPair()(torch.stack((sent[0], sent[1:].sum(0))).unsqueeze(0))
    torch.testing.assert_close(pair[0, :5], rows[0])
    torch.testing.assert_close(pair[0, 5:], (weights[1:] @ rows[1:]) / weights[1:].sum())


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean"):
        RootedNetwork(2, 4, 2, convolution="gnc")
    with pytest.raises(InputError, match="divisor"):
        RootedNetwork(2, 4, 2, convolution="attention", heads=3)
    with pytest.raises(InputError):
        RootedNetwork(2, 4, 2, encoder_layers=0)
    with pytest.raises(InputError, match="layers"):
        network("gcn", 2)(features(), whole_graph(random_edges(), 1))


def test_sums_survive_the_way_through_rows_of_one_length() -> None:
    rows = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).tanh()
    sent = WithRest()(rows)
    torch.testing.assert_close(sent.norm(dim=1), torch.ones(7))
    total = NoisySum()(torch.stack((sent[:1], sent[1:].sum(0, keepdim=True)), dim=1))
    torch.testing.assert_close(total, rows.sum(0, keepdim=True))
    long = WithRest()(100 * torch.ones(1, 5))
    torch.testing.assert_close(long.norm(dim=1), torch.ones(1))
    assert float(long[0, -1]) < 1e-3


def test_what_noise_explains_is_taken_away() -> None:
    noise = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    signal = torch.randn(2000, 16, generator=torch.Generator().manual_seed(1))

    def loss(strength: float, std: float) -> float:
        return float((shrunk(strength * signal + 3.0 * noise, std) - strength * signal).square().sum(1).mean())

    for strength in (0.0, 1.0, 5.0, 50.0):  # never worse than not shrinking, far better where there is only noise
        assert loss(strength, 3.0) < loss(strength, 0.0)
    assert loss(0.0, 3.0) < 0.2 * loss(0.0, 0.0)
    assert torch.equal(shrunk(torch.zeros(2, 3), 0.0), torch.zeros(2, 3))
