from __future__ import annotations

import math

import pytest
import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.local import RandomizedResponse
from hushgraph.nn.backbones import backbone
from hushgraph.nn.propagation import Neighborhood
from hushgraph.training.noisy_labels import (
    Judged,
    NoisyLabels,
    Schedule,
    Trainer,
    _Passes,
    least_smoothed,
    vote_posterior,
)
from small_graphs import random_graph

HOOD = Neighborhood(MemoryEdges.from_edge_index(random_graph(0).edge_index, 40))
TRAIN, VAL = torch.arange(0, 20), torch.arange(20, 30)


def transition_of(response: RandomizedResponse) -> torch.Tensor:
    return torch.from_numpy(response.transition).to(torch.float32)


def noisy(epsilon: float = 1.0, seed: int = 0) -> NoisyLabels:
    reports = torch.randint(3, (40,), generator=torch.Generator().manual_seed(seed))
    reports[30:] = -1
    return NoisyLabels(reports, TRAIN, VAL, transition_of(RandomizedResponse(epsilon, 3)), epsilon)


def trainer(labels: NoisyLabels, epochs: int = 5, steps: tuple[int, ...] = (2,)) -> Trainer:
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    network = backbone("sage", 5, 8, 3, dropout=0.2)
    return Trainer(network, rows, HOOD, labels, Schedule(epochs, 0.05, 0.0, steps))


def test_the_matrix_of_forward_correction() -> None:
    matrix = transition_of(RandomizedResponse(math.log(4.0), 3))
    assert torch.allclose(matrix, torch.tensor([[4.0, 1, 1], [1, 4, 1], [1, 1, 4]]) / 6.0)
    assert torch.allclose(matrix.sum(1), torch.ones(3))
    assert noisy(math.log(4.0)).best_accuracy == pytest.approx(4.0 / 6.0)


def test_the_corrected_loss_is_least_at_the_truth_where_the_plain_one_is_not() -> None:
    # Everybody is of class 0; the reports have exactly the frequencies of the transition matrix.
    reports = torch.tensor([0] * 8 + [1] * 2 + [2] * 2)
    labels = NoisyLabels(
        reports, torch.arange(12), torch.arange(0), transition_of(RandomizedResponse(math.log(4.0), 3)), math.log(4.0)
    )
    watched = trainer(labels)
    truth = torch.tensor([[1.0, 0, 0]]).expand(12, 3)
    copied = labels.transition[0].expand(12, 3)
    assert watched.validation_loss(truth, corrected=True) < watched.validation_loss(copied, corrected=True)
    assert watched.validation_loss(truth, corrected=False) > watched.validation_loss(copied, corrected=False)


def test_agreeing_with_the_noise_too_often_is_noticed() -> None:
    labels = noisy(1.0)
    watched, best = trainer(labels), labels.best_accuracy
    copied = torch.nn.functional.one_hot(labels.reports.clamp(min=0), 3).float()
    other = 1.0 - copied
    assert not watched.judged(copied, copied, corrected=True).fits_the_truth(best)
    assert watched.judged(other, other, corrected=True).fits_the_truth(best)
    # Train nodes are judged by the pass with dropout, validation nodes by the whole network.
    copied_train, copied_val = other.clone(), other.clone()
    copied_train[TRAIN], copied_val[VAL] = copied[TRAIN], copied[VAL]
    assert not watched.judged(other, copied_train, corrected=True).fits_the_truth(best)
    assert not watched.judged(copied_val, other, corrected=True).fits_the_truth(best)
    assert watched.judged(copied_train, copied_val, corrected=True).fits_the_truth(best)


def test_an_epoch_is_judged_on_all_nodes_there_are() -> None:
    labels = NoisyLabels(torch.tensor([0, 1, 2, 1]), torch.arange(4), torch.arange(0), torch.eye(3))
    all_ones = torch.tensor([[0.1, 0.8, 0.1]]).expand(4, 3)
    found = trainer(labels).judged(all_ones, all_ones, corrected=False)
    assert (found.on_train, found.on_val) == (0.5, 0.5)
    assert found.loss == pytest.approx(-(math.log(0.8) + math.log(0.1)) / 2.0, rel=1e-5)


KEPT = Judged(1.0, 0.30, 0.30)


@pytest.mark.parametrize(
    ("found", "improves"),
    [
        (Judged(0.9, 0.35, 0.35), True),
        (Judged(1.0, 0.35, 0.35), False),  # loss not lower
        (Judged(0.9, 0.30, 0.35), False),  # agrees no more on train nodes
        (Judged(0.9, 0.35, 0.30), False),  # nor on validation nodes
        (Judged(0.9, 0.41, 0.35), True),  # within 5% of the bound 0.4
        (Judged(0.9, 0.43, 0.35), False),  # beyond
        (Judged(0.9, 0.35, 0.41), False),  # nothing is allowed on validation nodes
    ],
)
def test_when_an_epoch_replaces_the_kept_one(found: Judged, improves: bool) -> None:
    assert found.improves_on(KEPT, 0.4) is improves
    # Clean labels: the loss alone decides.
    assert found.improves_on(KEPT, 1.0) is (found.loss < KEPT.loss)


@pytest.mark.parametrize("rule", ["drop", "forward", "cross-entropy"])
def test_an_untrained_network_is_never_kept(rule: str) -> None:
    # Without a step that could help (learning rate next to nothing) every epoch is as good as the untrained one.
    watched = trainer(noisy(0.1))
    watched.schedule = Schedule(4, 1e-12, 0.0, (2,))
    assert watched.fit(rule, 0).epochs >= 1


def test_the_first_epoch_is_kept_where_all_fit_the_noise_too_well(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = trainer(noisy())
    monkeypatch.setattr(watched, "agreement", lambda probabilities, nodes: 1.0)
    chosen = watched.fit("drop", 0)
    assert (chosen.epochs, chosen.loss) == (1, math.inf)


def test_votes_follow_bayes_on_a_star() -> None:
    # A hub with 5 leaves: one propagation brings it 5 equal votes, so n = 5 and the odds are e^(eps (votes - votes)).
    leaves = torch.arange(1, 6)
    edges = torch.cat([torch.stack([leaves, leaves * 0]), torch.stack([leaves * 0, leaves])], dim=1)
    star = Neighborhood(MemoryEdges.from_edge_index(edges, 6))
    one_hot = torch.zeros(6, 3)
    one_hot[leaves, torch.tensor([0, 0, 0, 1, 2])] = 1.0
    torch.manual_seed(0)
    found = vote_posterior(star, one_hot, 1, 0.7)[0]
    odds = math.log(float(found[0] / found[1]))
    # 64 random signs measure n with a relative deviation of about 0.2; fixed seed.
    assert 0.4 * 2 * 0.7 < odds < 2.5 * 2 * 0.7
    assert found[1] == pytest.approx(float(found[2]))


def test_a_node_without_votes_gets_the_uniform_posterior() -> None:
    found = vote_posterior(HOOD, torch.zeros(40, 3), 2, 1.0)
    assert torch.allclose(found, torch.full((40, 3), 1.0 / 3.0))


@pytest.mark.parametrize("rule", ["votes", "drop", "forward", "cross-entropy"])
def test_rules_repeat_under_a_seed_and_leave_the_global_generator_alone(rule: str) -> None:
    first, second = trainer(noisy(), steps=(1, 2)), trainer(noisy(), steps=(1, 2))
    before = torch.random.get_rng_state()
    chosen = first.fit(rule, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert second.fit(rule, 3) == chosen
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    assert chosen.steps in ((1, 2) if rule in ("votes", "drop") else (0,))
    assert 0 <= chosen.epochs <= 5


def test_the_drop_rule_keeps_an_epoch_that_does_not_fit_the_noise() -> None:
    hood = Neighborhood(MemoryEdges.from_edge_index(random_graph(1, 300, 600).edge_index, 300))
    generator = torch.Generator().manual_seed(0)
    reports = torch.randint(3, (300,), generator=generator)
    matrix = transition_of(RandomizedResponse(0.5, 3))
    labels = NoisyLabels(reports, torch.arange(200), torch.arange(200, 300), matrix, 0.5)
    rows = torch.randn(300, 30, generator=generator)
    network = backbone("sage", 30, 16, 3, dropout=0.0)
    watched = Trainer(network, rows, hood, labels, Schedule(60, 0.05, 0.0, (0,)))
    chosen = watched.fit("drop", 0)
    with torch.no_grad():
        kept = network(rows, hood).softmax(1)
    assert watched.agreement(kept, labels.val) <= labels.best_accuracy
    assert 1 <= chosen.epochs < 60
    longer = Trainer(network, rows, hood, labels, Schedule(60, 0.05, 0.0, (0,)))
    longer._run(_Passes(network, rows, hood, longer.schedule), longer._loss("drop", 0), 60, None)
    with torch.no_grad():
        fitted = network(rows, hood).softmax(1)
    assert longer.agreement(fitted, labels.train) > longer.agreement(kept, labels.train)
    assert not longer.judged(fitted, fitted, corrected=True).fits_the_truth(labels.best_accuracy)


def test_labels_of_other_nodes_are_never_read() -> None:
    labels, other = noisy(), noisy()
    other.reports[30:] = 2
    first, second = trainer(labels), trainer(other)
    for rule in ("votes", "drop"):
        assert first.fit(rule, 1) == second.fit(rule, 1)


def test_the_least_moving_average() -> None:
    epoch, loss = least_smoothed([5.0, 0.0, 5.0, 5.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0])
    assert (epoch, loss) == (6, 2.0)
    assert least_smoothed([3.0, 1.0]) == (1, 2.0)
