from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import whole_graph
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.training import BestEpoch, Training, train_on_graph
from hushgraph.training.whole_graph import at_inference, fresh_start, train_rooted


def line(start: float = 0.0) -> nn.Linear:
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, start)
    return made


def test_the_steps_are_those_of_torch() -> None:
    ours, theirs = line(), line()

    def loss(network: nn.Linear) -> Tensor:
        return (network(torch.ones(1, 1)) - 3.0).square().sum()

    adam = torch.optim.Adam(theirs.parameters(), lr=0.1, weight_decay=0.01)
    for _ in range(7):
        adam.zero_grad()
        loss(theirs).backward()
        adam.step()
    train_on_graph(ours, lambda: loss(ours), Training(7, 0.1, weight_decay=0.01))
    torch.testing.assert_close(ours.weight, theirs.weight)
    assert not ours.training


def test_loss_in_training_mode_and_judgment_at_inference() -> None:
    network, modes = line(), list[tuple[str, bool, bool]]()

    def loss() -> Tensor:
        modes.append(("loss", network.training, torch.is_grad_enabled()))
        return network(torch.ones(1, 1)).sum()

    def value() -> float:
        modes.append(("judged", network.training, torch.is_grad_enabled()))
        return 0.0

    best = BestEpoch(network, at_inference(network, value))
    train_on_graph(network, loss, Training(2), best=best)
    assert modes == [("loss", True, True), ("judged", False, False)] * 2


def test_a_fresh_start_comes_from_the_seed_and_leaves_the_global_generator_alone() -> None:
    before, starts = torch.random.get_rng_state(), []
    for seed in (1, 1, 2):
        network = nn.Linear(3, 3)
        torch.random.set_rng_state(before)
        with fresh_start(network, seed):
            torch.randn(1)
        starts.append(network.weight.detach())
        assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


def test_a_watched_value_ends_training_where_it_is_least() -> None:
    network, left, done = nn.Linear(1, 1), iter([3.0, 2.0, 2.5, 2.5, 9.0, 9.0, 9.0, 9.0]), list[int]()
    best = BestEpoch(network, at_inference(network, lambda: -next(left)), patience=2)

    def loss() -> torch.Tensor:
        return (network(torch.ones(1, 1)) - 3.0).square().sum()

    train_on_graph(network, loss, Training(8), best=best, on_epoch=lambda so_far, total: done.append(so_far))
    assert (best.verdict, best.epoch, done) == (-2.0, 2, [1, 2, 3, 4])
    assert not network.training


def small_graph() -> tuple[RootedNetwork, MemoryEdges, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(40, (2, 120), generator=generator)
    x = torch.randn(40, 5, generator=generator)
    network = RootedNetwork(5, 8, 2, generator=generator)
    return network, MemoryEdges.from_edge_index(edges, 40).coalesce(), x, (x[:, 0] > 0).long()


def test_a_rooted_network_keeps_its_best_epoch_on_the_validation_nodes() -> None:
    network, graph, x, y = small_graph()
    train, val, batch = torch.arange(25), torch.arange(25, 40), whole_graph(graph, 1)
    seen: list[float] = []

    def look(done: int, total: int) -> None:
        with torch.no_grad():
            seen.append(float((network(x, batch)[val].argmax(1) == y[val]).float().mean()))

    train_rooted(network, batch, x, y, Training(60, 0.05), train=train, val=val, on_epoch=look)
    kept = float((network(x, batch)[val].argmax(1) == y[val]).float().mean())
    assert kept == max(seen) > 0.6
    assert len(seen) == 60


def test_a_rooted_network_without_validation_nodes_keeps_the_last_weights() -> None:
    ends = []
    for _ in range(2):
        network, graph, x, y = small_graph()
        batch = whole_graph(graph, 1)
        if not ends:
            train_rooted(
                network, batch, x, y, Training(9, 0.05), train=torch.arange(40), val=torch.empty(0, dtype=torch.int64)
            )
        else:
            train_on_graph(network, lambda: F.cross_entropy(network(x, batch), y), Training(9, 0.05))  # noqa: B023
        ends.append(network.decoder[0].weight.detach())
    torch.testing.assert_close(ends[0], ends[1])
