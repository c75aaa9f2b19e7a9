"""Many releases that are epsilon-DP each: against enumeration, other routes, and discrete Laplace noise itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from dp_accounting.privacy_accountant import NeighboringRelation

from hushgraph.errors import CalibrationError, InputError
from hushgraph.mechanisms.laplace_votes import LaplaceVotes
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.pure_many import Coins, pure_many_pld
from hushgraph.privacy.units import Record, Relation


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 5), (1.1, 3), (0.05, 8)])
def test_delta_is_that_of_all_outcomes_of_the_coins(epsilon: float, count: int) -> None:
    truth = 1.0 / (1.0 + math.exp(-epsilon))
    for at in (-0.2, 0.0, 0.1, 0.9 * epsilon * count):
        naive = 0.0
        for coins in itertools.product([0, 1], repeat=count):
            one, other = (math.prod(p if coin else 1.0 - p for coin in coins) for p in (truth, 1.0 - truth))
            naive += max(0.0, one - math.exp(at) * other)
        found = float(Coins(epsilon, count).delta(np.array([at]))[0])
        assert naive <= found <= naive + 2e-10


def test_counts_with_discrete_laplace_noise_are_the_coins() -> None:
    """Two counts that move by one: the divergence of the noisy pairs themselves, up to a tail of e^-60."""
    scale, at = 3, 0.25
    values = np.arange(-200, 202)
    law = np.exp(-np.abs(values) / scale)
    law /= law.sum()
    moved = np.roll(law, 1)
    one, other = np.outer(law, law), np.outer(moved, moved)
    exact = float(np.maximum(one - math.exp(at) * other, 0.0).sum())
    assert float(Coins(1.0 / scale, 2).delta(np.array([at]))[0]) == pytest.approx(exact, abs=1e-9)


def test_it_is_tighter_than_randomized_response_on_a_grid_and_than_renyi_dp() -> None:
    epsilon, count = 0.05, 200
    loss = PrivacyLoss(events.pure_many(epsilon, count), Relation.REPLACE)
    coin = pld_lib.from_randomized_response(
        2.0 / (1.0 + math.exp(epsilon)),
        2,
        value_discretization_interval=5e-4,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    ).self_compose(count)
    for at in (1e-3, 1e-6):
        assert loss.epsilon(at) <= coin.get_epsilon_for_delta(at) + 1e-3
        assert loss.epsilon(at) < 0.97 * loss.renyi_epsilon(at)
        assert loss.delta(loss.epsilon(at)) == pytest.approx(at, rel=1e-2)


def test_it_never_exceeds_the_sum_and_composes_with_other_releases() -> None:
    few = PrivacyLoss(events.pure_many(1.0, 2), Relation.NULL)
    assert few.epsilon(1e-9) <= 2.0 + 1e-3
    both = events.composed([events.pure_many(0.1, 50), events.gaussian(2.0)])
    together = PrivacyLoss(both, Relation.NULL).epsilon(1e-5)
    alone = [PrivacyLoss(one, Relation.NULL).epsilon(1e-5) for one in (events.pure_many(0.1, 50), events.gaussian(2.0))]
    assert max(alone) < together < sum(alone)


@pytest.mark.parametrize("epsilon", [0.3, 4.05])
def test_noise_of_whole_scales_is_planned(epsilon: float) -> None:
    """The cost falls in steps; the plan finds the smallest whole scale that is within the budget."""
    budget, sizes = Budget(epsilon, 1e-5), Metadata(100, 100, num_features=4, num_classes=3)
    plan = Plan.make("toy", sizes, Record(), budget, [Stage("votes", LaplaceVotes(10, 2200))])
    scale = plan["votes"].mechanism.usable_scale(plan["votes"].scale or 0.0)
    costs = [PrivacyLoss(LaplaceVotes(10, 2200).event(Record(), at), Record().relation) for at in (scale - 1, scale)]
    assert costs[1].epsilon(1e-5) <= epsilon < costs[0].epsilon(1e-5)


def test_one_release_is_pure_and_odd_numbers_are_refused() -> None:
    assert events.pure_many(0.7, 1) == events.pure(0.7)
    assert events.from_json(events.to_json(events.pure_many(0.7, 3))) == events.pure_many(0.7, 3)
    with pytest.raises(InputError, match="count"):
        events.pure_many(0.7, 0)
    with pytest.raises(CalibrationError):
        pure_many_pld(400.0, 4, 5e-4)
