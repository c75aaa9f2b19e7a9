"""Per-root clipping: against a loop over roots, under deletion of a hub, and the noise that is added."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.graph.rows import Rows, SparseRows, dense_rows
from hushgraph.nn.messages import sum_messages
from hushgraph.nn.rooted import CONVOLUTIONS, RootedNetwork
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mixture import occurrence_bound
from hushgraph.training import NoisySteps, RootedExamples, Training, rooted_norms, train_private
from hushgraph.training.losses import loss_for, row_loss, weighted_labels
from hushgraph.training.rooted import RootedClippedGradient, _row_cuts
from hushgraph.training.sampler import PoissonSampler
from small_graphs import capped_edges

NODES, CLASSES = 30, 3
KINDS = ["one", "several", "weighted"]


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
        loss = row_loss(loss_for(y))(scores[root : root + 1], y[root : root + 1]).sum()
        found.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(network.parameters()))]))
    return found


def labels_of(kind: str, nodes: int, generator: torch.Generator | None = None) -> Tensor:
    """One class a node; several; or one with a public weight."""
    generator = generator or torch.Generator().manual_seed(3)
    if kind == "several":
        return torch.randint(2, (nodes, CLASSES), generator=generator)
    classes = torch.randint(CLASSES, (nodes,), generator=generator)
    return classes if kind == "one" else weighted_labels(classes, (0.3, 1.0, 4.0))


def clipped(gradients: list[Tensor], bound: float) -> Tensor:
    return torch.stack([g * min(1.0, bound / float(g.norm())) for g in gradients]).sum(0)


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_is_that_of_a_loop_over_roots(convolution: str, layers: int, sparse: bool, kind: str) -> None:
    network, graph, x, y = setup(convolution, layers, sparse)
    y = y if kind == "one" else labels_of(kind, NODES)
    roots = [0, 5, 29, 12, 13, 14, 15, 16, 7]  # 0 is a hub
    gradients = naive_gradients(network, graph, x, y, roots)
    bound = float(torch.stack(gradients).norm(dim=1).median())
    subgraphs = RootedSubgraphs(graph, torch.tensor(roots), layers)
    for chunk in (2, 1000):
        engine = RootedClippedGradient(
            network, subgraphs, x, y[torch.tensor(roots)], max_grad_norm=bound, chunk_rows=chunk
        )
        total = engine.sum(torch.arange(len(roots)))
        expected = clipped(gradients, engine.clip_norm).double()
        torch.testing.assert_close(total, expected, rtol=1e-3, atol=1e-4 * bound)
    squares = engine.square_norms(torch.arange(len(roots)))
    exact = torch.stack(gradients).double().square().sum(1)
    assert bool((squares >= exact * (1 - 1e-5)).all())
    torch.testing.assert_close(squares, exact, rtol=1e-3, atol=1e-5)


def test_a_batch_is_cut_into_whole_groups_and_large_groups_by_themselves() -> None:
    network, graph, x, y = setup()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    engine = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=1.0, chunk_rows=100, chunk_roots=128)
    more = [(128, 160), (160, 192), (192, 224), (224, 256), (256, 300)]
    assert list(engine._chunks([1] * 300)) == [(0, 32), (32, 64), (64, 96), (96, 128), *more]
    engine.chunk_rows = 1000
    assert list(engine._chunks([1] * 300)) == [(0, 128), (128, 256), (256, 300)]
    large = [1] * 128 + [1] * 40 + [2000] + [1] * 87 + [1] * 5
    single = [(k, k + 1) for k in range(160, 192)]
    assert list(engine._chunks(large)) == [(0, 128), (128, 160), *single, (192, 224), (224, 256), (256, 261)]
    assert list(engine._chunks([])) == []


def test_hubs_with_sparse_features_take_the_other_way_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    network, graph, x, y = setup("gcn", 2, sparse=True)
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 2)
    usual = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5).sum(torch.arange(NODES))
    monkeypatch.setattr(rooted_norms, "_MOST_ROWS", 12)
    mixed = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5)
    assert 0 < int((mixed.products.sizes == 0).sum()) < NODES  # type: ignore[union-attr]
    torch.testing.assert_close(mixed.sum(torch.arange(NODES)), usual, rtol=1e-3, atol=1e-4)


def test_products_that_do_not_fit_are_computed_again_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    network, graph, x, y = setup("gcn", 2, sparse=True)
    subgraphs, everyone = RootedSubgraphs(graph, torch.arange(NODES), 2), torch.arange(NODES)
    kept = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5)
    monkeypatch.setattr(rooted_norms, "_KEPT_PRODUCTS", int(subgraphs.num_rows.square().sum()) // 2)
    some = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.5)
    assert 0 < int((some.products.sizes == 0).sum()) < NODES  # type: ignore[union-attr]
    assert torch.equal(kept.square_norms(everyone), some.square_norms(everyone))


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
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(CONVOLUTIONS),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_deleting_or_replacing_a_record_moves_the_sum_as_declared(
    seed: int, cap: int, layers: int, convolution: str, hub: bool, kind: str
) -> None:
    """The clipped sum over all train nodes, computed on both graphs from scratch."""
    network, graph, x, y = setup(convolution, layers, seed=seed)
    y = y if kind == "one" else labels_of(kind, NODES)
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
        lists = capped_edges(kept, NODES, cap, NoiseSource.seeded(seed).stream("degree cap"))
        subgraphs = RootedSubgraphs(MemoryEdges.from_edge_index(lists, NODES), torch.arange(NODES), layers)
        engine = RootedClippedGradient(network, subgraphs, rows, labels, max_grad_norm=0.1)
        return engine.sum(torch.tensor([i for i in range(NODES) if i != without]))

    bound = occurrence_bound(cap, layers)
    before = total(edges, x, y)
    null = x.clone()
    null[node] = 0.0
    assert float((before - total(others_edges, null, y, without=node)).norm()) <= 0.1 * (2 * bound - 1)
    other, label = x.clone(), y.clone()
    other[node], label[node] = -10 * x[node], (y[node] + 1) % CLASSES if kind == "one" else y[node].roll(1)
    after = total(torch.cat((others_edges, fresh), 1), other, label)
    assert float((before - after).norm()) <= 0.1 * 2 * (2 * bound - 1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_computed_for_a_root_does_not_depend_on_other_roots(
    convolution: str, layers: int, sparse: bool, kind: str
) -> None:
    """Bit by bit: in other batches, with another record elsewhere, and with a record gone that many roots read."""
    generator, nodes = torch.Generator().manual_seed(0), 300
    edges = torch.randint(nodes, (2, 1500), generator=generator)
    edges = torch.cat((edges, torch.stack((torch.full((40,), 5), torch.arange(40, 80)))), 1)  # node 5 has a long list
    edges = edges[:, edges[0] != edges[1]]
    x = torch.randn(nodes, 20, generator=generator)
    x *= x > 0.5
    y = labels_of(kind, nodes, generator)
    network = RootedNetwork(20, 16, CLASSES, num_layers=layers, convolution=convolution, generator=generator)

    def norms(lists: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        subgraphs = RootedSubgraphs(MemoryEdges.from_edge_index(lists, nodes).coalesce(), torch.arange(nodes), layers)
        features = SparseRows.from_tensor(rows) if sparse else rows
        return RootedClippedGradient(network, subgraphs, features, y, max_grad_norm=1.0).square_norms(positions)

    everyone = torch.arange(nodes)
    usual = norms(edges, x, everyone)
    for size in (1, 30, 257):
        some = torch.randperm(nodes, generator=generator)[:size]
        assert torch.equal(norms(edges, x, some), usual[some])
    reads = whole_graph(MemoryEdges.from_edge_index(edges, nodes).coalesce(), layers)
    touched = torch.zeros(nodes, 1)
    touched[5] = 1.0
    for messages in reads.layers:
        touched = touched + sum_messages(touched, messages)
    untouched = touched.squeeze(1) == 0
    assert 30 < int((~untouched).sum()) < nodes - 30
    other = x.clone()
    other[5] = torch.arange(20) * 100.0
    for lists in (edges, edges[:, edges[0] != 5]):
        changed = norms(lists, other, everyone)
        assert torch.equal(changed[untouched], usual[untouched])
        assert not torch.equal(changed, usual)


def train_roots(
    network: RootedNetwork, subgraphs: RootedSubgraphs, x: Rows, y: Tensor, noisy_steps: NoisySteps, **training: Any
) -> None:
    examples = RootedExamples(network, subgraphs, x, y, noisy_steps)
    train_private(examples, Training(1, **training), NoiseSource.seeded(1).stream("test"))


def noise_of_one_step(std: float) -> np.ndarray:
    """What one SGD step adds beyond the clipped sum, undone from the weights."""
    network, graph, x, y = setup()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    expected = RootedClippedGradient(network, subgraphs, x, y, max_grad_norm=0.1).sum(torch.arange(NODES))
    start = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    noisy_steps = NoisySteps(PoissonSampler(NODES, 1.0), 1, 0.1, std)
    train_roots(network, subgraphs, x, y, noisy_steps, lr=float(NODES), optimizer="sgd")
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
    with pytest.raises(InputError, match="noise_std"):
        NoisySteps(PoissonSampler(NODES, 0.5), 150, 1.0, 0.0)
    noisy_steps = NoisySteps(PoissonSampler(NODES, 0.5), 150, 1.0, 0.0, allow_no_noise=True)
    train_roots(network, subgraphs, x, y, noisy_steps, lr=0.05, average_last=0.5)
    hits = network(x, whole_graph(graph, 1)).argmax(1) == y
    assert float(hits.float().mean()) > 0.85


@pytest.mark.parametrize(("averaged", "last"), [(0.0, 1), (0.5, 3), (1.0, 6)])
def test_the_network_ends_with_the_mean_of_the_last_weights(averaged: float, last: int) -> None:
    def weights(steps: int, share: float) -> Tensor:
        network, graph, x, y = setup()
        noisy_steps = NoisySteps(PoissonSampler(NODES, 1.0), steps, 0.1, 1.0)
        subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
        train_roots(network, subgraphs, x, y, noisy_steps, lr=0.1, average_last=share)
        return torch.cat([p.detach().reshape(-1) for p in network.parameters()])

    expected = torch.stack([weights(steps, 0.0) for steps in range(7 - last, 7)]).mean(0)
    torch.testing.assert_close(weights(6, averaged), expected)


def test_a_root_that_gains_a_row_leaves_the_blocks_of_other_roots_as_they_are() -> None:
    """Also where every root has one row before: 40 roots, of which the first 32 are one block."""
    alone = torch.arange(41)
    gained = torch.cat([torch.arange(40), torch.tensor([41])])  # the last root has two rows
    assert list(_row_cuts(alone)) == [0, 32, 40]
    assert list(_row_cuts(gained)) == [0, 32, 41]


def test_a_root_without_a_record_counts_for_nothing() -> None:
    network, graph, x, y = setup()
    subgraphs = RootedSubgraphs(graph, torch.arange(NODES), 1)
    y[[3, 17]] = -1
    noisy_steps = NoisySteps(PoissonSampler(NODES, 1.0), 1, 0.1, 1.0)
    examples = RootedExamples(network, subgraphs, x, y, noisy_steps)
    (total,) = examples.sums(NoiseSource.seeded(0))
    others = torch.tensor([i for i in range(NODES) if i not in (3, 17)])
    torch.testing.assert_close(total, examples.engine.sum(others))


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
        RootedExamples(network, subgraphs, x, y, NoisySteps(PoissonSampler(3, 0.5), 1, 1.0, 1.0))
