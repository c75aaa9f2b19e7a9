from __future__ import annotations

import math

import mpmath
import pytest
from dp_accounting import dp_event as dpa
from dp_accounting import gaussian_mechanism
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import events
from hushgraph.privacy.loss import COARSE_GRID, FINE_GRID, PrivacyLoss
from hushgraph.privacy.units import Relation

SGD = events.sampled_gaussian(0.02, 1.1, 500)


def test_gaussians_compose_exactly_into_one() -> None:
    several = PrivacyLoss(events.composed([events.gaussian(3.0, 2), events.gaussian(5.0, 4)]), Relation.ADD_OR_REMOVE)
    mu = math.sqrt(2 / 9 + 4 / 25)
    assert several.mu == pytest.approx(mu)
    assert several.accountant == "exact Gaussian"
    single = PrivacyLoss(events.gaussian(1 / mu), Relation.ADD_OR_REMOVE)
    assert several.epsilon(1e-6) == pytest.approx(single.epsilon(1e-6), rel=1e-9)


def test_exact_epsilon_and_delta_are_inverse() -> None:
    loss = PrivacyLoss(events.gaussian(2.0, 3), Relation.ADD_OR_REMOVE)
    assert loss.delta(loss.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-6)


def test_renyi_is_an_upper_bound_on_the_distribution_and_not_far_from_it() -> None:
    for event in (SGD, events.composed([SGD, events.gaussian(4.0, 2)])):
        loss = PrivacyLoss(event, Relation.NULL)
        assert loss.epsilon(1e-5) <= loss.renyi_epsilon(1e-5) <= 1.3 * loss.epsilon(1e-5)


def test_a_coarser_grid_is_never_more_optimistic() -> None:
    fine, coarse = (PrivacyLoss(SGD, Relation.NULL, grid).epsilon(1e-5) for grid in (FINE_GRID, COARSE_GRID))
    assert fine <= coarse <= 1.01 * fine


def test_one_sampled_step_under_replacement_matches_numerical_integration() -> None:
    rate, sigma, epsilon = 0.3, 0.8, 0.5
    loss = PrivacyLoss(events.sampled_gaussian(rate, sigma, 1), Relation.REPLACE)

    def density(x: float, mean: float) -> float:
        return (1 - rate) * stats.norm.pdf(x, 0, sigma) + rate * stats.norm.pdf(x, mean, sigma)

    exact, _ = integrate.quad(lambda x: max(0.0, density(x, 1.0) - math.exp(epsilon) * density(x, -1.0)), -12, 12)
    assert exact - 1e-7 <= loss.delta(epsilon) <= exact + 1e-3  # the quadrature has a kink to cross


def test_replacing_costs_more_than_nulling() -> None:
    null, replace = PrivacyLoss(SGD, Relation.NULL), PrivacyLoss(SGD, Relation.REPLACE)
    assert null.epsilon(1e-5) < replace.epsilon(1e-5) < 3 * null.epsilon(1e-5)
    with pytest.raises(UnprovenError, match="Renyi"):
        replace.renyi_epsilon(1e-5)


def test_a_hundred_randomized_responses_cost_a_hundred_times() -> None:
    """The library's own accountant ignores the count of this event; ours must not."""
    one = dpa.RandomizedResponseDpEvent(0.5, 2)
    broken = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    broken.compose(dpa.SelfComposedDpEvent(one, 100))
    single = PrivacyLoss(one, Relation.REPLACE).epsilon(1e-9)
    assert single == pytest.approx(math.log(3), abs=1e-3)
    assert broken.get_epsilon(1e-9) == pytest.approx(single, abs=1e-3)
    assert PrivacyLoss(events.repeated(one, 100), Relation.REPLACE).epsilon(1e-9) > 50 * single


def test_nothing_costs_nothing_and_no_protection_costs_everything() -> None:
    nothing = PrivacyLoss(events.composed([]), Relation.NULL)
    assert nothing.epsilon(1e-6) == 0.0
    assert nothing.accountant == "none"
    raw = PrivacyLoss(events.composed([SGD, events.gaussian(0.0)]), Relation.NULL)
    assert math.isinf(raw.epsilon(1e-6))
    assert raw.delta(5.0) == 1.0
    assert raw.mu is None


@pytest.mark.parametrize("multiplier", [-1.0, math.inf, math.nan])
def test_impossible_noise_is_refused(multiplier: float) -> None:
    with pytest.raises(InputError, match="noise multiplier"):
        events.gaussian(multiplier)


@pytest.mark.parametrize("mu", [1e-6, 1.693258367993342e-06, 2.0058825619133936e-06, 4.069591432771489e-05, 1e-3, 1.0])
def test_an_epsilon_of_zero_is_from_above_too(mu: float) -> None:
    """Delta just below delta(0), the difference of two numbers close to a half, whose rounding may hide it."""
    loss = PrivacyLoss(dpa.GaussianDpEvent(1.0 / mu), Relation.ADD_OR_REMOVE)
    with mpmath.workdps(50):
        exact = mpmath.mpf(loss.mu)
        at_zero = mpmath.ncdf(exact / 2) - mpmath.ncdf(-exact / 2)
        for less in (1e-15, 1e-14, 1e-13, 1e-12, 1e-11):
            delta = float(at_zero * (1 - mpmath.mpf(less)))
            epsilon = mpmath.mpf(loss.epsilon(delta))
            upper, lower = (mpmath.ncdf(side * exact / 2 - epsilon / exact) for side in (1, -1))
            assert upper - mpmath.exp(epsilon) * lower <= delta
        assert loss.epsilon(float(1.0001 * at_zero)) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_impossible_deltas_are_refused(delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        PrivacyLoss(SGD, Relation.NULL).epsilon(delta)


@given(st.floats(1e-3, 50.0), st.floats(1e-12, 0.5))
def test_gaussian_epsilons_are_those_of_the_library_from_above(mu: float, delta: float) -> None:
    ours = PrivacyLoss(dpa.GaussianDpEvent(1.0 / mu), Relation.ADD_OR_REMOVE).epsilon(delta)
    theirs = gaussian_mechanism.get_epsilon_gaussian(1.0 / mu, delta)
    assert theirs - 2e-12 * max(1.0, theirs) <= ours <= theirs + 2e-9 * max(1.0, theirs)
