from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.training.early_stopping import Patience, train_watched


def run(values: list[float], checks: int, least: int = 0, every: int = 1) -> tuple[Patience, nn.Linear, list[int]]:
    """Train a line while the watched value follows `values`."""
    network = nn.Linear(1, 1)
    left, done = iter(values), []
    patience = Patience(checks, least, every)

    def loss() -> Tensor:
        return (network(torch.ones(1, 1)) - 3.0).square().sum()

    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    train_watched(network, loss, lambda: next(left), optimizer, epochs=8, patience=patience, seed=0, report=done.append)
    return patience, network, done


def test_it_stops_when_the_value_no_longer_falls_and_keeps_the_best() -> None:
    patience, network, done = run([3.0, 2.0, 2.5, 2.5, 9.0, 9.0, 9.0, 9.0], checks=2)
    assert (patience.best, patience.best_epoch, done[-1]) == (2.0, 2, 4)
    _, shorter, _ = run([3.0, 2.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], checks=1)
    assert torch.equal(network.weight, shorter.weight)
    assert not network.training


def test_it_does_not_stop_before_the_least_epoch_and_checks_as_often_as_told() -> None:
    _, _, done = run([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0], checks=1, least=5)
    assert done[-1] == 5
    patience, _, done = run([1.0, 0.5, 2.0, 2.0], checks=2, every=2)
    assert (patience.best_epoch, done[-1]) == (4, 8)


def test_a_value_that_is_not_a_number_is_never_the_best() -> None:
    patience, _, _ = run([2.0, float("nan"), 1.0, 3.0, 3.0, 3.0, 3.0, 3.0], checks=5)
    assert (patience.best, patience.best_epoch) == (1.0, 3)


def test_the_global_generator_is_left_alone() -> None:
    network = nn.Linear(1, 1)
    before = torch.random.get_rng_state()
    train_watched(
        network,
        lambda: network(torch.randn(1, 1)).sum(),
        lambda: 1.0,
        torch.optim.SGD(network.parameters(), lr=0.01),
        epochs=3,
        patience=Patience(5),
        seed=0,
    )
    assert torch.equal(torch.random.get_rng_state(), before)
