"""Per-root clipping: against a loop over roots, under deletion of a hub, and the noise that is added."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from hushgraph.data.rows import Rows, SparseRows, dense_rows
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.degree import cap_owned_lists
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.nn.rooted import CONVOLUTIONS, RootedNetwork
from hushgraph.noise.sampler import PoissonSampler
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mixture import occurrence_bound
from hushgraph.training import rooted_norms
from hushgraph.training.rooted import RootedClippedGradient, train_rooted_privately

NODES, CLASSES = 30, 3


def setup(
    convolution: str = "gcn", layers: int = 1, sparse: bool = False, seed: int = 0
) -> tuple[RootedNetwork, MemoryEdges, Rows, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(NODES, (2, 90), generator=generator)
    edges = torch.cat((edges, torch.stack((torch.arange(1, NODES), torch.zeros(NODES - 1, dtype=torch.int64)))), 1)
    graph = MemoryEdges.from_edge_index(edges[:, edges[0] != edges[1]], NODES).coalesce()
    x = torch.randn(NODES, 7, generator=generator)
    rows: Rows = SparseRows.from_tensor(x * (x > 0.7)) if sparse else x
    network = RootedNetwork(
        7, 8, CLASSES, num_layers=layers, convolution=convolution, encoder_layers=2, decoder_layers=2, heads=2,
        generator=generator,
    )  # fmt: skip
    return network, graph, rows, torch.randint(CLASSES, (NODES,), generator=generator)


def naive_gradients(network: RootedNetwork, graph: MemoryEdges, x: Rows, y: Tensor, roots: list[int]) -> list[Tensor]:
    """One backward pass of the whole-graph network for every root."""
    found = []
    for root in roots:
        scores = network(dense_rows(x), whole_graph(graph, network.num_layers))
        loss = F.cross_entropy(scores[root : root + 1], y[root : root + 1])
        found.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(network.parameters()))]))
    return found


def clipped(gradients: list[Tensor], bound: float) -> Tensor:
    return torch.stack([g * min(1.0, bound / float(g.norm())) for g in gradients]).sum(0)


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_sum_is_that_of_a_loop_over_roots(convolution: str, layers: int, sparse: bool) -> None:
    network, graph, x, y = setup(convolution, layers, sparse)
    roots = [0, 5, 29, 12, 13, 14, 15, 16, 7]  # 0 is a hub
    gradients = naive_gradients(network, graph, x, y, roots)
    bound = float(torch.stack(gradients).norm(dim=1).median())
    subgraphs = RootedSubgraphs(graph, torch.tensor(roots), layers)
    for chunk in (2, 1000):
        engine = RootedClippedGradient(
            network, subgraphs, x, y[torch.tensor(roots)], max_grad_norm=bound, chunk_roots=chunk
        )
        total = engine.sum(torch.arange(len(roots)))
        torch.testing.assert_close(total, clipped(gradients, bound), rtol=1e-4, atol=1e-5)
    squares = engine.square_norms(torch.arange(len(roots)))
    torch.testing.assert_close(squares.sqrt(), torch.stack(gradients).norm(dim=1), rtol=1e-4, atol=1e-5)


def test_hubs_with_sparse_features_take_the_other_way_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    network, graph, x, y = setup("gcn", 2, sparse=True)
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 2)
    usual = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5).sum(torch.arange(NODES))
    monkeypatch.setattr(rooted_norms, "_KEPT_ROWS", 12)
    mixed = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5)
    assert 0 < int((mixed.products.sizes == 0).sum()) < NODES  # type: ignore[union-attr]
    torch.testing.assert_close(mixed.sum(torch.arange(NODES)), usual, rtol=1e-4, atol=1e-5)


def test_padded_products_and_formed_gradients_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([1, 9, 2, 0, 3, 40])
    layout = rooted_norms.RowLayout(torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))))
    assert len(layout.parts) > 1
    a, g = torch.randn(55, 6, generator=generator), torch.randn(55, 4, generator=generator)
    expected = [
        float(torch.cat(((gi.T @ ai).reshape(-1), gi.sum(0))).square().sum())
        for ai, gi in zip(a.split(counts.tolist()), g.split(counts.tolist()))
    ]
    found = rooted_norms.layer_square_norms(a, g, layout, bias=True)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_norms_are_never_below_the_true_ones_where_terms_cancel() -> None:
    a = torch.ones(8, 64) * 1000 + torch.randn(8, 64, generator=torch.Generator().manual_seed(0)) * 1e-2
    g = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    g[4:] = -g[:4]
    layout = rooted_norms.RowLayout(torch.tensor([0, 8]))
    exact = float((g.double().T @ a.double()).square().sum())
    assert float(rooted_norms.layer_square_norms(a, g, layout, bias=False)) >= exact


def test_an_empty_batch_is_zero_and_examples_with_nan_count_as_zero() -> None:
    network, graph, x, y = setup()
    assert isinstance(x, Tensor)
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    engine = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=1.0)
    assert not engine.sum(torch.tensor([], dtype=torch.int64)).any()
    x[4] = math.nan
    reads = torch.tensor([4 in subgraphs.batch(torch.tensor([i])).nodes.tolist() for i in range(NODES)])
    assert 1 <= int(reads.sum()) < NODES
    everyone = engine.sum(torch.arange(NODES))
    assert everyone.any()
    torch.testing.assert_close(everyone, engine.sum((~reads).nonzero().squeeze(1)))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 2), st.sampled_from(CONVOLUTIONS), st.booleans())
def test_deleting_or_replacing_a_record_moves_the_sum_as_declared(
    seed: int, cap: int, layers: int, convolution: str, hub: bool
) -> None:
    """The clipped sum over all train nodes, computed on both graphs from scratch."""
    network, graph, x, y = setup(convolution, layers, seed=seed)
    assert isinstance(x, Tensor)
    node = 0 if hub else seed % NODES
    generator = torch.Generator().manual_seed(seed)
    edges = graph.edge_index()
    if hub:  # the hub names everybody, and everybody names it
        others = torch.arange(1, NODES)
        edges = torch.cat((edges, torch.stack((torch.zeros_like(others), others))), 1)
    others_edges = edges[:, edges[0] != node]
    fresh = torch.stack((torch.full((6,), node), torch.randint(NODES, (6,), generator=generator)))
    fresh = fresh[:, fresh[0] != fresh[1]]

    def total(kept: Tensor, rows: Tensor, labels: Tensor, without: int | None = None) -> Tensor:
        lists = cap_owned_lists(kept, NODES, cap, NoiseSource.seeded(seed).stream("degree cap"))
        subgraphs = RootedSubgraphs(MemoryEdges.from_edge_index(lists, NODES), torch.arange(NODES), layers)
        engine = RootedClippedGradient(network, subgraphs, rows, labels, max_grad_norm=0.1)
        return engine.sum(torch.tensor([i for i in range(NODES) if i != without]))

    bound = occurrence_bound(cap, layers)
    before = total(edges, x, y)
    null = x.clone()
    null[node] = 0.0
    assert float((before - total(others_edges, null, y, without=node)).norm()) <= 0.1 * (2 * bound - 1) + 1e-5
    other, label = x.clone(), y.clone()
    other[node], label[node] = -10 * x[node], (y[node] + 1) % CLASSES
    after = total(torch.cat((others_edges, fresh), 1), other, label)
    assert float((before - after).norm()) <= 0.1 * 2 * (2 * bound - 1) + 1e-5


def noise_of_one_step(std: float) -> np.ndarray:
    """What one SGD step adds beyond the clipped sum, undone from the weights."""
    network, graph, x, y = setup()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    expected = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.1).sum(torch.arange(NODES))
    start = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    train_rooted_privately(
        network, subgraphs, x, y, sampler=PoissonSampler(NODES, 1.0), steps=1, max_grad_norm=0.1, noise_std=std,
        noise=NoiseSource.seeded(1).stream("test"), lr=float(NODES), optimizer="sgd",
    )  # fmt: skip
    moved = start - torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    return (moved - expected).double().numpy()


def test_the_noise_has_the_stated_scale() -> None:
    """Two-sided chi-square test at 1e-6 on some 300 weights: flake rate 1e-6 (seed fixed), power above 1 - 1e-9."""
    found = noise_of_one_step(3.0)

    def p_value(std: float) -> float:
        lower = stats.chi2.cdf(float((found**2).sum()) / std**2, len(found))
        return 2 * min(lower, 1 - lower)

    assert p_value(3.0) > 1e-6
    assert p_value(2.0) < 1e-6
    assert p_value(4.5) < 1e-6


def test_training_learns_without_noise_and_refuses_it_unasked() -> None:
    network, graph, x, _ = setup()
    assert isinstance(x, Tensor)
    y = (x[:, 0] > 0).long()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    options = {"sampler": PoissonSampler(NODES, 0.5), "steps": 150, "max_grad_norm": 1.0, "noise_std": 0.0, "lr": 0.05}
    noise = NoiseSource.seeded(0).stream("test")
    with pytest.raises(InputError, match="noise_std"):
        train_rooted_privately(network, subgraphs, x, y, noise=noise, **options)  # type: ignore[arg-type]
    train_rooted_privately(network, subgraphs, x, y, noise=noise, allow_no_noise=True, **options)  # type: ignore[arg-type]
    hits = network(x, whole_graph(graph, 1)).argmax(1) == y
    assert float(hits.float().mean()) > 0.85


@pytest.mark.parametrize(("averaged", "last"), [(0.0, 1), (0.5, 3), (1.0, 6)])
def test_the_network_ends_with_the_mean_of_the_last_weights(averaged: float, last: int) -> None:
    def weights(steps: int, share: float) -> Tensor:
        network, graph, x, y = setup()
        train_rooted_privately(
            network, RootedSubgraphs(graph, torch.arange(NODES), 1), x, y, sampler=PoissonSampler(NODES, 1.0),
            steps=steps, max_grad_norm=0.1, noise_std=1.0, noise=NoiseSource.seeded(1).stream("test"), lr=0.1,
            averaged=share,
        )  # fmt: skip
        return torch.cat([p.detach().reshape(-1) for p in network.parameters()])

    expected = torch.stack([weights(steps, 0.0) for steps in range(7 - last, 7)]).mean(0)
    torch.testing.assert_close(weights(6, averaged), expected)


class _Other(RootedNetwork):
    pass


def test_what_has_no_proof_is_refused() -> None:
    network, graph, x, y = setup()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    with pytest.raises(UnprovenError, match="_Other"):
        RootedClippedGradient(_Other(7, 8, CLASSES), subgraphs, x, y, max_grad_norm=1.0)
    network.extra = nn.Parameter(torch.zeros(2))
    with pytest.raises(UnprovenError, match="extra"):
        RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=1.0)
    del network.extra
    for bound in (0.0, math.inf, math.nan):
        with pytest.raises(InputError, match="max_grad_norm"):
            RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=bound)
    with pytest.raises(InputError, match="layers"):
        RootedClippedGradient(network, RootedSubgraphs(graph, torch.arange(NODES), 2), x, y, max_grad_norm=1.0)
    with pytest.raises(InputError, match="sampler"):
        train_rooted_privately(
            network, subgraphs, x, y, sampler=PoissonSampler(3, 0.5), steps=1, max_grad_norm=1.0, noise_std=1.0,
            noise=NoiseSource.seeded(0), lr=0.1,
        )  # fmt: skip
