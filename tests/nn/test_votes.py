from __future__ import annotations

import pytest
import torch

from hushgraph.data.rows import JoinedRows
from hushgraph.nn.votes import VoteReader


def test_votes_within_their_noise_add_nothing() -> None:
    said = torch.tensor([[0.2, 0.5, 0.3]]).log()
    scores = VoteReader(std=2.0)(JoinedRows([said, torch.tensor([[1.0, -1.0, 0.0]])]))
    assert torch.allclose(scores, said)


def test_votes_that_stand_out_are_weighed_by_bayes_rule() -> None:
    """Votes 9 (e_0 - 1/3) with noise 1: strength^2 = 81 - 3 and the first class gains strength * 6 / (1 + strength)."""
    said, votes = torch.zeros(1, 3), torch.tensor([[9.0, 0.0, 0.0]]) + 5.0  # a common shift means nothing
    gained = VoteReader(std=1.0)(JoinedRows([said, votes])) - said.log_softmax(1)
    strength = (81.0 - 3.0) ** 0.5
    expected = strength / (1.0 + strength) * torch.tensor([[6.0, -3.0, -3.0]])
    assert torch.allclose(gained, expected, rtol=1e-5)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_without_noise_or_votes_scores_are_finite(spread: float) -> None:
    scores = VoteReader(std=0.0, spread=spread)(JoinedRows([torch.zeros(2, 2), torch.zeros(2, 2)]))
    assert torch.allclose(scores, torch.full((2, 2), 0.5).log())
