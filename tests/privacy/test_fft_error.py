"""Epsilons at very small deltas: never below the truth, which is known where every example is in every batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import optimize, special, stats

from hushgraph.privacy import events, fft_error
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mixture import group_pld
from hushgraph.privacy.pure_many import pure_many_pld
from hushgraph.privacy.units import Relation

STEPS = [(100, 0.8), (1_000, 1.5), (10_000, 0.8), (10_000, 1.5)]
DELTAS = [1e-6, 1e-9, 1e-11, 1e-13]


def true_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of one Gaussian release, by integration of what is above: no difference of close numbers."""
    x, y = special.log_ndtr(mu / 2 - epsilon / mu), epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return float(-math.expm1(y - x) * math.exp(x)) if y < x else 0.0


def many_steps(steps: int, mu: float) -> PrivacyLoss:
    return PrivacyLoss(events.sampled_gaussian(1.0, math.sqrt(steps) / mu, steps), Relation.ADD_OR_REMOVE)


@pytest.mark.parametrize(("steps", "mu"), STEPS)
def test_epsilon_is_never_below_the_truth_however_small_delta_is(steps: int, mu: float) -> None:
    loss = many_steps(steps, mu)
    for delta in DELTAS:
        assert true_delta(mu, loss.epsilon(delta)) <= delta * (1.0 + 1e-6), delta
    for epsilon in (1.0, 4.0, 6.0, 9.0):
        assert loss.delta(epsilon) >= true_delta(mu, epsilon)


@pytest.mark.parametrize(("steps", "mu"), STEPS)
def test_usual_deltas_pay_next_to_nothing_for_it(steps: int, mu: float) -> None:
    for delta in (1e-5, 1e-6):
        truth = optimize.brentq(lambda epsilon, at: true_delta(mu, epsilon) - at, 0.0, 50.0, (delta,), 1e-12)
        assert many_steps(steps, mu).epsilon(delta) <= truth * 1.005


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-30])
def test_gaussians_alone_are_exact_from_above(mu: float, delta: float) -> None:
    """Against 40 digits of precision."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        epsilon = PrivacyLoss(events.gaussian(1.0 / mu), Relation.ADD_OR_REMOVE).epsilon(delta)
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        upper = mpmath.ncdf(m / 2 - e / m)
        assert upper - mpmath.e**e * mpmath.ncdf(-m / 2 - e / m) <= delta
    if mu >= 1.0:
        assert epsilon <= stats.norm.isf(delta) * mu + mu * mu


@pytest.mark.parametrize(
    "other",
    [
        group_pld(2.0, 0.1, 1, 0, 1e-2).self_compose(40),
        group_pld(3.0, 0.2, 2, 1, 1e-2),
        pure_many_pld(0.3, 20, 1e-2),
        pld_lib.from_randomized_response(0.4, 2, value_discretization_interval=1e-2),
    ],
    ids=["sampled", "group", "pure", "points"],
)
def test_two_losses_together_are_those_of_the_library_to_the_last_digit(other) -> None:
    one = group_pld(1.5, 1.0, 1, 0, 1e-2)
    ours, library = fft_error._both(one, other), one.compose(other)
    assert ours._symmetric == library._symmetric
    for mine, theirs in zip(fft_error._directions(ours), fft_error._directions(library), strict=True):
        mine, theirs = mine.to_dense_pmf(), theirs.to_dense_pmf()
        assert np.array_equal(mine._probs, theirs._probs)
        assert (mine._lower_loss, mine._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
