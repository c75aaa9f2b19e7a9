"""Labels and the noisy sum of leads: only they leave, and what the sum proves is an upper bound."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.mechanisms.label_votes import Labels, LabelVotes
from hushgraph.mechanisms.votes import Votes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.leads import label_law
from hushgraph.privacy.metadata import Metadata
from hushgraph.training.learners import Part

NO_QUERIES = Part(torch.zeros(0, 3))


def of(counts: Tensor, **settings: Any) -> LabelVotes:
    """The mechanism with teachers that have voted already."""

    class Voted(LabelVotes):
        def counts(self, data: Any, queries: Part, workers: int = 1, folder: Any = None) -> Tensor:
            return counts

    return Voted(int(counts[0].sum()), len(counts), **settings)


def released(made: LabelVotes, scale: float, seed: int) -> Labels:
    return made.release(None, scale, NoiseSource.seeded(seed), NO_QUERIES)


def test_nothing_but_labels_and_the_sum_leaves() -> None:
    found = released(of(torch.tensor([[7, 2, 1], [0, 9, 1]])), 0.3, 0)
    assert found.counts.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert set(LabelVotes().to_tensors(found)) == {"queries", "counts", "leads"}
    again = LabelVotes().from_tensors(LabelVotes().to_tensors(found))
    assert torch.equal(again.leads, found.leads)
    assert torch.equal(again.counts, found.counts)


def test_labels_follow_their_exact_law() -> None:
    """Of 20,000 labels; a chi-squared test that fails in 1 of 10,000 runs (the seed is fixed)."""
    row = torch.tensor([4, 3, 3])
    found = released(of(row.repeat(20_000, 1)), 1.7, 1).counts.sum(dim=0).numpy()
    expected = 20_000 * label_law(row.numpy(), 1.7)
    assert stats.chisquare(found, expected).pvalue > 1e-4
    wrong = 20_000 * label_law(row.numpy(), 2.0 * 1.7)
    assert stats.chisquare(found, wrong).pvalue < 1e-4


def test_noise_of_the_sum_has_its_planned_law_and_neither_more_nor_less() -> None:
    """1,000 sums; each test fails in 1 of 10,000 runs (the seeds are fixed)."""
    made, scale = of(torch.tensor([[18, 1, 1], [9, 8, 3], [20, 0, 0]])), 15.0
    exact = float(made.leads(made.counts(None, NO_QUERIES)))
    assert exact == (17 - 8) + 0 + (20 - 8)
    place = [(float(released(made, scale, seed).leads) - exact) / made.sum_noise(scale) for seed in range(1_000)]
    assert stats.kstest(place, "norm").pvalue > 1e-4
    for factor in (2.0 / 3.0, 1.5):
        assert stats.kstest(factor * np.array(place), "norm").pvalue < 1e-4


def test_a_sum_moves_as_far_as_is_charged_and_no_further() -> None:
    made = LabelVotes(5, 2, clear=0.2)
    rows = [list(row) for row in itertools.product(range(6), repeat=3) if sum(row) == 5]
    moves = []
    for row in rows:
        for giver, taker in itertools.permutations(range(3), 2):
            if row[giver]:
                other = row.copy()
                other[giver] -= 1
                other[taker] += 1
                sums = [int(made.leads(torch.tensor([one, one]))) for one in (row, other)]
                moves.append(abs(sums[0] - sums[1]))
    assert max(moves) == made.moved == 4


def test_the_whole_bound_is_that_of_counts_and_sum() -> None:
    unit = hg.units.Record()
    for share in (0.05, 0.1, 0.5):
        made = LabelVotes(250, 300, share=share)
        of_sum = made.moved / made.sum_noise(1.0)
        assert made.sensitivity(unit) ** 2 == pytest.approx(Votes(250, 300).sensitivity(unit) ** 2 + of_sum**2)
        assert of_sum**2 == pytest.approx(share * made.sensitivity(unit) ** 2)


def test_votes_that_agree_are_stated_at_less_than_is_charged_and_others_are_not() -> None:
    sizes = Metadata(100, 100, num_features=4, num_classes=10)
    plan = hg.Plan.make(
        "toy", sizes, hg.units.Record(), hg.Budget(4.0, 1e-5), [hg.Stage("votes", LabelVotes(250, 300))]
    )
    scale = plan["votes"].scale
    assert scale is not None
    agree, apart = torch.zeros(300, 10, dtype=torch.int64), torch.full((300, 10), 25)
    agree[:, 3] = 250
    for counts, smaller in ((agree, True), (apart, False)):
        made = of(counts)
        stated = made.epsilon_at_hand(released(made, scale, 0), scale, 1e-5)
        assert (stated < 0.7 * plan.epsilon) is smaller
        assert (stated >= plan.epsilon) is not smaller


def test_what_is_stated_is_above_the_cost_without_noise() -> None:
    """The allowance is 4.75 standard deviations: in 200 releases not one is expected below (2e-4)."""
    counts = torch.zeros(300, 10, dtype=torch.int64)
    counts[:, 0], counts[:, 1] = 215, 35
    counts[::4, 0], counts[::4, 1] = 135, 115
    made, scale = of(counts), 27.6
    exact = made.leads(counts)
    sure = int(4.76 * made.sum_noise(scale)) + 1
    true = made.epsilon_at_hand(Labels(torch.arange(300), counts, exact + sure), scale, 1e-5)
    stated = [made.epsilon_at_hand(released(made, scale, seed), scale, 1e-5) for seed in range(200)]
    assert min(stated) >= true
    assert np.mean(stated) > true


@pytest.mark.parametrize("name", ["clear", "share"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1])
def test_shares_are_between_0_and_1(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        replace(LabelVotes(), **{name: value})
