"""Per-root gradients of layers without a closed form: the same sums where both ways exist, and refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.layers import Linear
from hushgraph.nn.messages import AnyMessages, sum_messages
from hushgraph.nn.rooted import CONVOLUTIONS, RootedNetwork, Tape
from hushgraph.noise.source import NoiseSource
from hushgraph.training import NoisySteps, RootedExamples, Training, train_private
from hushgraph.training.losses import loss_for, row_loss
from hushgraph.training.rooted import RootedClippedGradient, rooted_gradient
from hushgraph.training.rooted_functional import FormedRootedGradient
from hushgraph.training.sampler import PoissonSampler

NODES, CLASSES = 24, 3


def random_edges() -> MemoryEdges:
    """Everybody sends to node 0; node 23 is alone."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES - 1, (2, 60), generator=generator)
    hub = torch.stack((torch.arange(1, NODES - 1), torch.zeros(NODES - 2, dtype=torch.int64)))
    edges = torch.cat((edges, hub), 1)
    return MemoryEdges.from_edge_index(edges[:, edges[0] != edges[1]], NODES).coalesce()


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(NODES, 5, generator=generator), torch.randint(CLASSES, (NODES,), generator=generator)


def network(convolution: str = "gcn", layers: int = 1) -> RootedNetwork:
    generator = torch.Generator().manual_seed(2)
    return RootedNetwork(5, 6, CLASSES, num_layers=layers, convolution=convolution, heads=2, generator=generator)


class GatedLayer(nn.Module):
    """Not known to the closed form: a weight outside linear layers, and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = Linear(width, width, generator=torch.Generator().manual_seed(3))
        self.gate = nn.Parameter(torch.full((width,), 0.3))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, messages: AnyMessages, level: int, tape: Tape) -> Tensor:
        own = x.index_select(0, messages.own)
        return self.norm(tape.linear(self.linear, own + self.gate * sum_messages(x, messages), level + 1))


def gated_network(layers: int = 1) -> RootedNetwork:
    made = network(layers=layers)
    for i in range(layers):
        made.convolutions[i] = GatedLayer(6)
    made.activation = nn.PReLU()
    return made


def loop_over_roots(net: RootedNetwork, x: Tensor, y: Tensor, bound: float) -> Tensor:
    total = torch.zeros(sum(p.numel() for p in net.parameters()))
    for root in range(NODES):
        scores = net(x, whole_graph(random_edges(), net.num_layers))
        loss = row_loss(loss_for(y))(scores[root : root + 1], y[root : root + 1]).sum()
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(net.parameters()))])
        total += gradient * min(1.0, bound / float(gradient.norm()))
    return total


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_both_ways_give_the_same_clipped_sum(convolution: str, layers: int, sparse: bool) -> None:
    net, (x, y) = network(convolution, layers), inputs()
    rows = SparseRows.from_tensor(x * (x > 0.3)) if sparse else x
    subgraphs = RootedSubgraphs(random_edges(), torch.arange(NODES), layers)
    norms = FormedRootedGradient(net, subgraphs, rows, y, max_grad_norm=1.0).square_norms(torch.arange(NODES)).sqrt()
    bound = float(norms.median())  # half of the roots are clipped
    known, formed = (
        engine(net, subgraphs, rows, y, max_grad_norm=bound) for engine in (RootedClippedGradient, FormedRootedGradient)
    )
    assert isinstance(rooted_gradient(net, subgraphs, rows, y, max_grad_norm=1.0), RootedClippedGradient)
    some = torch.tensor([0, 23, 5, 7, 1, 12, 13])
    formed.clip_norm = known.clip_norm  # they leave different room for rounding
    torch.testing.assert_close(formed.sum(some), known.sum(some), rtol=1e-3, atol=1e-4)
    exact, above = formed.square_norms(some).double(), known.square_norms(some)
    assert bool((above >= exact * (1 - 1e-6)).all())
    torch.testing.assert_close(above, exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("several", [False, True])
def test_unknown_layers_are_clipped_per_root(layers: int, several: bool) -> None:
    net, (x, y) = gated_network(layers), inputs()
    if several:
        y = torch.stack((y, y.roll(1), y.roll(5)), dim=1) % 2
    subgraphs = RootedSubgraphs(random_edges(), torch.arange(NODES), layers)
    with pytest.raises(UnprovenError, match="GatedLayer"):
        RootedClippedGradient(net, subgraphs, x, y, max_grad_norm=0.5)
    engine = rooted_gradient(net, subgraphs, x, y, max_grad_norm=0.5)
    assert isinstance(engine, FormedRootedGradient)
    assert float(engine.square_norms(torch.arange(NODES)).max()) > 0.25
    expected = loop_over_roots(net, x, y, engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(torch.arange(NODES)), expected, rtol=1e-4, atol=1e-5)
    assert not engine.sum(torch.tensor([], dtype=torch.int64)).any()


def test_roots_with_nan_count_as_zero() -> None:
    net, (x, y) = gated_network(), inputs()
    x[23] = torch.nan
    subgraphs = RootedSubgraphs(random_edges(), torch.arange(NODES), 1)
    engine = FormedRootedGradient(net, subgraphs, x, y, max_grad_norm=0.5)
    torch.testing.assert_close(engine.sum(torch.arange(NODES)), engine.sum(torch.arange(NODES - 1)))


def test_a_network_of_unknown_layers_learns() -> None:
    net, (x, _) = gated_network(), inputs()
    y = (x[:, 0] > 0).long()
    subgraphs = RootedSubgraphs(random_edges(), torch.arange(NODES), 1)
    noisy_steps = NoisySteps(PoissonSampler(NODES, 1.0), 60, 1.0, 0.01)
    examples = RootedExamples(net, subgraphs, x, y, noisy_steps)
    train_private(examples, Training(1, 0.05, average_last=0.5), NoiseSource.seeded(0).stream("test"))
    assert float((net(x, whole_graph(random_edges(), 1)).argmax(1) == y).float().mean()) > 0.9


class _Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_what_could_mix_roots_is_refused() -> None:
    x, y = inputs()
    subgraphs = RootedSubgraphs(random_edges(), torch.arange(NODES), 1)
    for part in (nn.BatchNorm1d(6), nn.InstanceNorm1d(6), _Remembering()):
        net = network()
        net.activation = part
        with pytest.raises(UnprovenError, match=type(part).__name__):
            rooted_gradient(net, subgraphs, x, y, max_grad_norm=1.0)
    net = network()
    net.convolutions[0] = SAGEConv(6, 6)
    with pytest.raises(UnprovenError, match="PyG"):
        rooted_gradient(net, subgraphs, x, y, max_grad_norm=1.0)
    net = network()
    net.encoder[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UnprovenError, match="hooks"):
        rooted_gradient(net, subgraphs, x, y, max_grad_norm=1.0)
    with pytest.raises(UnprovenError, match="Linear"):
        rooted_gradient(nn.Linear(5, 3), subgraphs, x, y, max_grad_norm=1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_grad_norm"):
        FormedRootedGradient(gated_network(), subgraphs, x, y, max_grad_norm=0.0)
    with pytest.raises(InputError, match="layers"):
        FormedRootedGradient(gated_network(2), subgraphs, x, y, max_grad_norm=1.0)
