from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dpa
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from scipy import optimize, stats

from hushgraph.errors import LedgerError
from hushgraph.privacy import events, filters
from hushgraph.privacy.filters import GaussianFilter, RenyiFilter, pure_mu, worst_cost
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.renyi import mixture_renyi
from hushgraph.privacy.units import Relation

EDGE, NULL, REPLACE = Relation.ADD_OR_REMOVE, Relation.NULL, Relation.REPLACE
DELTA = 1e-6
GAUSSIAN = GaussianFilter()
SAMPLED = events.sampled_gaussian(0.05, 2.0, 500)


def mu_of(epsilon: float, delta: float = DELTA) -> float:
    return float(optimize.brentq(lambda mu: GAUSSIAN.epsilon(mu * mu, delta) - epsilon, 1e-4, 50.0))


def test_ten_gaussian_runs_of_epsilon_1_use_about_3_5_where_the_plain_sum_is_10() -> None:
    run = events.gaussian(1.0 / mu_of(1.0))
    assert PrivacyLoss(run, EDGE).epsilon(DELTA) == pytest.approx(1.0)
    used = GAUSSIAN.used(10 * GAUSSIAN.cost(run, EDGE), 4.0, DELTA)
    assert used == pytest.approx(3.5247, abs=1e-3)
    assert used == pytest.approx(PrivacyLoss(events.repeated(run, 10), EDGE).epsilon(DELTA))  # nothing is lost
    renyi = RenyiFilter.for_limit(4.0, DELTA, [run], EDGE)
    assert 1.0 < renyi.used(10 * renyi.cost(run, EDGE), 4.0, DELTA) / used < 1.12


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_the_renyi_filter_lets_about_7_percent_less_noise_through(epsilon: float) -> None:
    run = events.gaussian(1.0)
    renyi = RenyiFilter.for_limit(epsilon, DELTA, [run], EDGE)
    mu = math.sqrt(renyi.capacity(epsilon, DELTA) / renyi.cost(run, EDGE))
    assert 1.03 < mu_of(epsilon) / mu < 1.09


@pytest.mark.parametrize("relation", [NULL, REPLACE])
@pytest.mark.parametrize("event", [SAMPLED, events.sampled_gaussian(0.01, 1.0, 1000)])
def test_sampled_runs_go_through_renyi_and_never_below_their_own_epsilon(
    event: events.Event, relation: Relation
) -> None:
    own = PrivacyLoss(event, relation).epsilon(DELTA)
    renyi = RenyiFilter.for_limit(own, DELTA, [event], relation)
    through = renyi.epsilon(renyi.cost(event, relation), DELTA)
    assert own < through < 1.25 * own
    assert math.isinf(GAUSSIAN.cost(event, relation))


def test_a_group_of_examples_has_a_renyi_bound_too() -> None:
    event = events.sampled_group(0.05, 8.0, 21, 20, 100)
    own = PrivacyLoss(event, NULL).epsilon(DELTA)
    renyi = RenyiFilter.for_limit(own, DELTA, [event], NULL)
    assert own < renyi.epsilon(renyi.cost(event, NULL), DELTA) < 1.3 * own


@pytest.mark.parametrize("order", [2.0, 3.0, 8.0, 32.0])
def test_the_integral_agrees_with_the_library_where_it_has_the_same_pair(order: float) -> None:
    renyi = RenyiFilter(order)
    for rate, multiplier in ((0.1, 1.0), (0.5, 3.0)):
        known = renyi.cost(events.sampled_gaussian(rate, multiplier, 1), NULL)
        assert mixture_renyi(multiplier, rate, 1, 0, order) == pytest.approx(known, rel=1e-9)
    assert mixture_renyi(2.0, 1.0, 1, 0, order) == pytest.approx(order / 8.0, rel=1e-9)
    assert mixture_renyi(2.0, 1.0, 1, 1, order) == pytest.approx(
        4 * order / 8.0, rel=1e-9
    )  # to its opposite: twice as far


def test_the_larger_direction_counts() -> None:
    there = mixture_renyi(1.0, 0.2, 3, 1, 4.0)
    assert there == mixture_renyi(1.0, 0.2, 1, 3, 4.0)
    assert there > mixture_renyi(1.0, 0.2, 2, 1, 4.0)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_a_gaussian_covers_every_pure_release(epsilon: float) -> None:
    """Its profile is never below that of randomized response, and meets it where both errors are equal."""
    mu = pure_mu(epsilon)
    x = np.linspace(1e-9, 1 - 1e-9, 2001)
    gaussian = stats.norm.cdf(stats.norm.ppf(1.0 - x) - mu)
    response = np.maximum(np.maximum(1.0 - math.exp(epsilon) * x, math.exp(-epsilon) * (1.0 - x)), 0.0)
    assert (gaussian <= response + 1e-12).all()
    assert mu < math.sqrt(math.pi / 2) * epsilon * 1.001
    assert GAUSSIAN.cost(events.pure(epsilon), EDGE) == pytest.approx(mu**2)


@pytest.mark.parametrize("order", [1.5, 4.0, 64.0])
def test_the_renyi_cost_of_a_pure_release_is_that_of_randomized_response(order: float) -> None:
    for epsilon in (0.1, 1.0, 5.0):
        cost = RenyiFilter(order).cost(events.pure(epsilon), EDGE)
        assert cost <= min(epsilon, order * epsilon**2 / 2.0) * (1 + 1e-12)
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        exact = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert cost == pytest.approx(exact, rel=1e-9)


def test_batches_with_everybody_in_them_are_gaussian() -> None:
    event = events.sampled_gaussian(1.0, 5.0, 4)
    assert GAUSSIAN.cost(event, NULL) == pytest.approx(4 / 25)
    assert GAUSSIAN.cost(event, REPLACE) == pytest.approx(16 / 25)


def test_what_has_no_protection_or_no_bound_fits_no_filter() -> None:
    for event in (events.gaussian(0.0), events.composed([events.gaussian(1.0), dpa.NonPrivateDpEvent()])):
        assert math.isinf(GAUSSIAN.cost(event, EDGE))
        assert math.isinf(RenyiFilter(4.0).cost(event, EDGE))
    mixture = dpa.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5])
    assert math.isinf(GAUSSIAN.cost(mixture, EDGE))
    assert math.isinf(GAUSSIAN.epsilon(math.inf, DELTA))
    assert math.isinf(RenyiFilter(2.0).epsilon(math.inf, DELTA))


def test_a_run_with_a_choice_costs_its_costliest_way() -> None:
    ways = [events.gaussian(2.0), events.composed([events.gaussian(2.0), events.pure(0.1)])]
    assert worst_cost(GAUSSIAN, ways, EDGE) == GAUSSIAN.cost(ways[1], EDGE)
    assert worst_cost(RenyiFilter(3.0), ways, EDGE) == RenyiFilter(3.0).cost(ways[1], EDGE)


@pytest.mark.parametrize("chosen", [GAUSSIAN, RenyiFilter(7.0)])
def test_capacity_is_where_the_limit_is_reached(chosen: filters.Filter) -> None:
    for epsilon in (2.5, 9.0):
        capacity = chosen.capacity(epsilon, DELTA)
        assert chosen.epsilon(capacity, DELTA) == pytest.approx(epsilon, rel=1e-9)
        assert chosen.used(capacity, epsilon, DELTA) == pytest.approx(epsilon, rel=1e-9)
    assert chosen.epsilon(0.0, DELTA) == 0.0


@pytest.mark.parametrize("order", [1.5, 4.0, 32.0])
def test_the_step_from_renyi_to_delta_is_that_of_the_library(order: float) -> None:
    """Canonne, Kamath and Steinke: the same epsilon from one order as the library gives, digit by digit."""
    for cost, delta in ((3.0, 1e-6), (0.7, 1e-3), (8.0, 1e-10)):
        expected, _ = compute_epsilon([order], [cost], delta)
        assert RenyiFilter(order).epsilon(cost, delta) == pytest.approx(expected, rel=1e-12)


def test_a_limit_below_the_price_of_the_step_to_delta_lets_nothing_through() -> None:
    assert RenyiFilter(2.0).capacity(1.0, DELTA) < 0.0
    assert math.isinf(RenyiFilter(2.0).used(0.1, 1.0, DELTA))


def test_filters_read_back_and_others_are_refused() -> None:
    for chosen in (GAUSSIAN, RenyiFilter(4.0)):
        assert filters.from_dict(chosen.as_dict()) == chosen
    for values in ({"kind": "pld"}, {"kind": "renyi", "order": 1.0}, {"kind": "renyi"}, {}):
        with pytest.raises(LedgerError, match="expected a Gaussian or a Renyi filter"):
            filters.from_dict(values)


def test_a_planner_who_looks_back_stays_within_the_gaussian_limit() -> None:
    """Adaptive noise: after a high first answer the second is precise, else noisy, always within mu = 1 in all.

    The privacy profile of the whole is computed by numerical integration and stays below that of the limit; adding up
    as if the realized noise had been fixed beforehand would promise less than what is there.
    """
    low, high, first = 0.2, math.sqrt(1.0 - 0.49), 0.7
    x = np.linspace(-12, 12, 4001)
    step = x[1] - x[0]

    def delta_of(epsilon: float) -> float:
        """E_P (1 - e^(epsilon - loss))+ over both answers, where the second's mu depends on the first answer."""
        found = 0.0
        weights = stats.norm.pdf(x, first, 1.0) * step
        loss = first * x - first**2 / 2
        for mu, chosen in ((high, x > 0.5), (low, x <= 0.5)):
            rest = epsilon - loss[chosen]
            profile = stats.norm.cdf(mu / 2 - rest / mu) - np.exp(rest) * stats.norm.cdf(-mu / 2 - rest / mu)
            found += float((weights[chosen] * profile).sum())
        return found

    limit = PrivacyLoss(events.gaussian(1.0), EDGE)
    realized = PrivacyLoss(events.gaussian(1.0 / math.hypot(first, low)), EDGE)
    for epsilon in (0.5, 1.0, 2.0, 3.0):
        assert delta_of(epsilon) <= limit.delta(epsilon) * (1 + 1e-6)
    assert delta_of(3.0) > realized.delta(3.0)
