from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph import datasets
from hushgraph.attacks import Lira, ShadowMembership, Target, analyze
from hushgraph.attacks.base import Predictor
from hushgraph.attacks.membership import (
    induced,
    likelihood_ratio,
    member_graph,
    membership_signals,
    sample_per_class,
    trained_target,
)
from hushgraph.attacks.targets import method_trainer
from hushgraph.errors import InputError
from hushgraph.methods.gap import GAP
from hushgraph.privacy.units import Node


@pytest.fixture(scope="module")
def campus() -> Data:
    return datasets.load("campus", num_nodes=800, split=(0.4, 0.0, 0.6))


def memorizing(data: Data, seed: int) -> Predictor:
    """A model that is sure of the rows it was trained on and of nothing else."""
    known = {tuple(row) for row in data.x.tolist()}
    generator = torch.Generator().manual_seed(seed)

    def predict(other: Data) -> torch.Tensor:
        x = other.x.to_dense() if other.x.layout is not torch.strided else other.x
        seen = torch.tensor([tuple(row) in known for row in x.tolist()])
        sure = torch.nn.functional.one_hot(other.y, 6) * 4.0 * seen.unsqueeze(1)
        return (sure + torch.randn(len(seen), 6, generator=generator)).softmax(dim=1)

    return predict


def silent(data: Data, seed: int) -> Predictor:
    return lambda other: torch.randn(other.num_nodes, 6, generator=torch.Generator().manual_seed(seed)).softmax(dim=1)


@pytest.mark.parametrize("attack", [ShadowMembership(per_class=60, epochs=80), Lira(shadows=6)])
def test_a_model_that_memorizes_is_broken_and_one_that_says_nothing_is_not(campus: Data, attack: object) -> None:
    unique = campus.clone()
    unique.x = torch.randn(campus.num_nodes, 8, generator=torch.Generator().manual_seed(0))
    broken = analyze(attack.run(trained_target("memory", unique, memorizing, 1), unique))  # type: ignore[attr-defined]
    assert broken.auc.value > 0.85
    chance = analyze(attack.run(trained_target("silence", unique, silent, 1), unique))  # type: ignore[attr-defined]
    assert 0.4 < chance.auc.value < 0.6


@pytest.mark.slow
def test_gap_at_node_level_gives_membership_away_no_more_than_chance(campus: Data) -> None:
    trainer = method_trainer(GAP(epochs=2), Node(max_degree=20), hg.Budget(8.0, 1e-4))
    target = trained_target("gap", campus, trainer, 1)
    found = analyze(ShadowMembership(per_class=80, epochs=80).run(target, campus))
    # 320 members, 480 others: the standard error is 0.021.
    assert found.auc.value == pytest.approx(0.5, abs=0.1)


def test_a_member_graph_has_only_members_and_their_edges(campus: Data) -> None:
    members = torch.zeros(campus.num_nodes, dtype=torch.bool)
    members[::3] = True
    small = member_graph(campus, members)
    assert small.num_nodes == int(members.sum())
    both = members[campus.edge_index[0]] & members[campus.edge_index[1]]
    assert small.edge_index.shape[1] == int(both.sum())
    assert bool(small.train_mask.all())


def test_shadow_nodes_are_drawn_by_class(campus: Data) -> None:
    nodes = sample_per_class(campus, 10, np.random.default_rng(0))
    counts = torch.bincount(induced(campus, nodes).y, minlength=6)
    assert counts.max() <= 10


def test_signals_are_finite_for_certain_and_impossible_classes() -> None:
    found = membership_signals(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0]))
    assert bool(torch.isfinite(found).all())


def test_the_likelihood_ratio_prefers_the_nearer_world() -> None:
    odds = np.array([[3.0, 3.1], [2.9, 3.0], [0.0, 0.1], [0.1, -0.1]])
    inside = np.array([[True, True], [True, True], [False, False], [False, False]])
    high, low = likelihood_ratio(np.array([3.0, 0.0]), odds, inside)
    assert high > 0 > low


def test_unusable_requests_are_refused(campus: Data) -> None:
    target = Target("t", torch.ones(campus.num_nodes, 6) / 6)
    with pytest.raises(InputError, match="at least 4"):
        Lira(shadows=2).run(target, campus)
    with pytest.raises(InputError, match="trainer"):
        ShadowMembership().run(target, campus)
    assert math.isfinite(float(target.posteriors.sum()))
