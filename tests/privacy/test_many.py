"""Many runs together in seconds: never below what the fine grid gives, hardly above it, and never a gap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.ledger.prices import loss_of
from hushgraph.privacy import events
from hushgraph.privacy.fft_error import ComposedLoss
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.many import dominating, epsilon_at_most
from hushgraph.privacy.mixture import group_pld
from hushgraph.privacy.units import Relation

DELTA = 1e-5
SUMS = events.composed([events.gaussian(2.0, 3), events.sampled_gaussian(0.1, 2.0, 40)])
STEPS = events.sampled_gaussian(0.02, 1.1, 300)
ASKED = events.pure(0.01)
CHOICE = [events.composed([ASKED, SUMS]), events.composed([ASKED, STEPS])]


def one_by_one(runs: list[tuple[list[events.Event], int]], delta: float = DELTA) -> float:
    return loss_of([ways for ways, count in runs for _ in range(count)], Relation.ADD_OR_REMOVE).epsilon(delta)


@pytest.mark.parametrize(
    "runs",
    [
        [([SUMS], 3), ([STEPS], 2)],
        [(CHOICE, 1), ([SUMS], 2)],
        [(CHOICE, 3), ([STEPS], 4)],
        [(CHOICE, 2), ([events.composed([ASKED, SUMS]), STEPS], 1)],
    ],
)
def test_the_bound_is_just_above_the_costliest_combination(runs: list[tuple[list[events.Event], int]]) -> None:
    bound, exact = epsilon_at_most(runs, Relation.ADD_OR_REMOVE, DELTA), one_by_one(runs)
    assert bound is not None
    assert exact * (1.0 - 1e-6) <= bound <= exact * 1.005


def test_runs_that_need_no_grid_are_exact() -> None:
    runs = [([events.gaussian(5.0, 2)], 40), ([events.gaussian(1.5)], 7)]
    assert epsilon_at_most(runs, Relation.ADD_OR_REMOVE, DELTA) == one_by_one(runs)
    pure = [([ASKED], 12)]
    assert epsilon_at_most(pure, Relation.ADD_OR_REMOVE, DELTA) == pytest.approx(0.12)
    assert epsilon_at_most([], Relation.ADD_OR_REMOVE, DELTA) == 0.0
    assert epsilon_at_most([([events.non_private()], 2)], Relation.ADD_OR_REMOVE, DELTA) == math.inf


def test_a_large_total_is_an_upper_bound_on_a_coarser_grid() -> None:
    runs = [([SUMS], 150), ([STEPS], 150)]
    bound, exact = epsilon_at_most(runs, Relation.ADD_OR_REMOVE, DELTA), one_by_one(runs)
    assert bound is not None
    assert 100.0 < exact <= bound <= 1.005 * exact


def test_ways_without_a_distribution_are_left_to_others() -> None:
    assert epsilon_at_most([([events.non_private(), SUMS], 1)], Relation.ADD_OR_REMOVE, DELTA) is None


def test_one_loss_dominates_several_at_every_epsilon() -> None:
    """In both directions, at the points of the grid and between them; two copies dominate every pair."""
    grid = 1e-2
    losses = [ComposedLoss(group_pld(1.0, 0.3, 1, 0, grid)), ComposedLoss(group_pld(2.0, 1.0, 1, 0, grid))]
    whole = dominating(losses, grid)
    epsilons = np.linspace(-2.0, 3.0, 777)
    for one in losses:
        for side in ("_pmf_remove", "_pmf_add"):
            theirs = getattr(one.pld, side).get_delta_for_epsilon(epsilons)
            ours = getattr(whole.pld, side).get_delta_for_epsilon(epsilons)
            assert (ours >= theirs - 1e-15).all()
    twice = whole.repeated(2).pld.get_delta_for_epsilon(epsilons)
    for first in losses:
        for second in losses:
            assert (twice >= first.then(second).pld.get_delta_for_epsilon(epsilons) - 1e-12).all()


def test_crossing_ways_cost_more_than_either_and_a_way_forgotten_would_show() -> None:
    """Neither way dominates the other here, so the envelope is above both: leaving one out would be too little."""
    alone = [epsilon_at_most([([way], 5)], Relation.ADD_OR_REMOVE, DELTA) for way in CHOICE]
    both = epsilon_at_most([(CHOICE, 5)], Relation.ADD_OR_REMOVE, DELTA)
    assert both is not None
    assert both >= max(one for one in alone if one is not None)
    assert both > min(one for one in alone if one is not None) * 1.01


def test_the_distribution_is_that_of_what_is_not_pure() -> None:
    loss = PrivacyLoss(CHOICE[0], Relation.ADD_OR_REMOVE)
    assert loss.pure == 0.01
    assert loss.has_distribution
    left = DELTA - loss.distribution.error
    assert loss.pure + loss.distribution.pld.get_epsilon_for_delta(left) == pytest.approx(loss.epsilon(DELTA))
