from __future__ import annotations

import math

import pytest
import torch

from hushgraph.graph.rows import JoinedRows, SparseRows
from hushgraph.nn.chorus import Ensemble, FeatureModel, FloorScale, LinearNetwork, UnitRows, VoteReader, without_mean


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_unit_rows_dense_and_sparse_agree_and_empty_rows_stay() -> None:
    dense = (torch.rand(9, 6, generator=generator()) < 0.4).float() * 3.0
    dense[2] = 0.0
    expected = UnitRows()(dense)
    found = UnitRows()(SparseRows.from_tensor(dense))
    assert isinstance(found, SparseRows)
    torch.testing.assert_close(found.to_dense(), expected)
    assert set(expected.norm(dim=1).round(decimals=5).tolist()) == {0.0, 1.0}


def test_short_rows_stay_short_and_long_ones_have_length_one() -> None:
    rows = torch.tensor([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0]])
    assert FloorScale(5.0)(rows).norm(dim=1).tolist() == pytest.approx([1.0, 0.1, 0.0])
    assert FloorScale(0.0)(rows).norm(dim=1).tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_a_centered_scale_sees_no_common_part() -> None:
    rows = torch.randn(5, 4, generator=generator())
    scale = FloorScale(0.5, centered=True)
    torch.testing.assert_close(scale(rows), scale(rows + 7.0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(without_mean(rows).sum(dim=1), torch.zeros(5), atol=1e-6, rtol=0)


def test_scores_of_an_ensemble_are_the_mean_of_its_members_log_probabilities() -> None:
    rows = JoinedRows([torch.randn(8, 4, generator=generator()), torch.randn(8, 3, generator=generator(1))])
    network = Ensemble([4, 3], 5, 3, members=2, dropout=0.5, generator=generator(2)).eval()
    first, second = (scores.log_softmax(dim=1) for scores in network.member_scores(rows))
    assert not torch.allclose(first, second)
    torch.testing.assert_close(network(rows), (first + second) / 2)


def test_guesses_have_length_one_and_leave_the_mode_alone() -> None:
    rows = JoinedRows([torch.randn(8, 4, generator=generator())])
    network = Ensemble([4], 5, 3, generator=generator(2)).train()
    guesses = network.guess(rows)
    torch.testing.assert_close(guesses.norm(dim=1), torch.ones(8))
    assert bool((guesses >= 0).all())
    assert network.training


def test_a_linear_network_starts_from_zero_or_from_the_generator() -> None:
    zero, drawn = LinearNetwork([4, 3], 2), LinearNetwork([4, 3], 2, generator=generator())
    assert all(bool((p == 0).all()) for p in zero.parameters())
    assert all(bool((p != 0).any()) for p in drawn.parameters())


def test_a_feature_model_is_zero_without_knowledge_and_never_longer_than_one() -> None:
    features = torch.randn(20, 4, generator=generator())
    assert FeatureModel(LinearNetwork([4], 3), 3)(features).abs().max() < 1e-6
    sure = LinearNetwork([4], 3, generator=generator())
    with torch.no_grad():
        for p in sure.parameters():
            p.mul_(100.0)
    lengths = FeatureModel(sure, 3)(features).norm(dim=1).detach()
    assert float(lengths.max()) <= 1.0 + 1e-6
    assert math.isclose(float(lengths.max()), 1.0, rel_tol=1e-5)


def test_votes_are_weighed_by_bayes_rule_and_a_common_shift_means_nothing() -> None:
    said, votes = torch.zeros(1, 3), torch.tensor([[9.0, 0.0, 0.0]]) + 5.0
    gained = VoteReader(std=2.0, strength=6.0)(JoinedRows([said, votes])) - said.log_softmax(1)
    assert torch.allclose(gained, 0.6 * torch.tensor([[6.0, -3.0, -3.0]]))


def test_votes_of_no_strength_or_much_noise_are_not_heard() -> None:
    said, votes = torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[3.0, -1.0, 0.0]])
    assert torch.allclose(VoteReader(std=1.0, strength=0.0)(JoinedRows([said, votes])), said)
    assert torch.allclose(VoteReader(std=1e6, strength=6.0)(JoinedRows([said, votes])), said)
    assert torch.allclose(VoteReader(std=0.0, strength=0.0)(JoinedRows([said, votes])), said)
