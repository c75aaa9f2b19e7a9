"""Pure epsilon-DP events: exact sums, and their place beside Gaussian ones."""

from __future__ import annotations

import math

import pytest

from hushgraph.errors import InputError
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Relation


def loss(*parts: events.Event) -> PrivacyLoss:
    return PrivacyLoss(events.composed(list(parts)), Relation.REPLACE)


def test_epsilons_add_up_exactly_at_every_delta() -> None:
    found = loss(events.pure(0.01), events.pure(2.0), events.repeated(events.pure(0.5), 3))
    assert found.epsilon(1e-5) == found.epsilon(1e-12) == pytest.approx(3.51, abs=1e-12)
    assert found.accountant == "sum of pure epsilons"
    assert found.mu is None
    assert found.renyi_epsilon(1e-5) == pytest.approx(3.51, abs=1e-12)


def test_a_huge_total_does_not_overflow() -> None:
    found = loss(events.pure(3703 * 9.0))
    assert found.epsilon(1e-6) == 33327.0
    assert found.delta(33327.0) == 0.0
    assert found.delta(33320.0) == pytest.approx(-math.expm1(-7.0))


@pytest.mark.parametrize("below", [0.0, 0.4, 0.99])
def test_delta_below_the_sum_is_that_of_randomized_response(below: float) -> None:
    # P = (p, 1 - p), Q = (1 - p, p) with p = e/(1 + e): delta = p - e^below (1 - p).
    p = math.e / (1.0 + math.e)
    assert loss(events.pure(1.0)).delta(below) == pytest.approx(p - math.exp(below) * (1.0 - p))


def test_pure_and_gaussian_parts_are_added() -> None:
    gaussian = loss(events.gaussian(2.0))
    both = loss(events.gaussian(2.0), events.pure(0.7))
    assert both.epsilon(1e-5) == pytest.approx(0.7 + gaussian.epsilon(1e-5))
    assert both.delta(1.7) == pytest.approx(gaussian.delta(1.0))


def test_below_the_pure_epsilon_delta_covers_the_exact_composition() -> None:
    """Randomized response at 0.7 and a Gaussian: the exact delta of both, from the two likelihoods of the answer."""
    gaussian = loss(events.gaussian(2.0))
    both = loss(events.gaussian(2.0), events.pure(0.7))

    def profile(epsilon: float) -> float:
        """Also for negative epsilon, where swapping the two sides gives 1 - e^eps + e^eps delta(-eps)."""
        return gaussian.delta(epsilon) if epsilon >= 0 else -math.expm1(epsilon) + math.exp(epsilon) * profile(-epsilon)

    truth = math.exp(0.7) / (1.0 + math.exp(0.7))
    last = 1.0
    for epsilon in (0.0, 0.2, 0.5, 0.69, 0.7, 1.5):
        exact = truth * profile(epsilon - 0.7) + (1.0 - truth) * profile(epsilon + 0.7)
        assert exact <= both.delta(epsilon) <= last
        last = both.delta(epsilon)
    assert both.delta(0.0) < 0.6
    assert both.accountant == "sum of pure epsilons + exact Gaussian"


def test_an_infinite_epsilon_is_not_private_and_nonsense_is_refused() -> None:
    assert loss(events.pure(math.inf)).epsilon(1e-5) == math.inf
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            events.pure(bad)


def test_pure_events_survive_json() -> None:
    event = events.repeated(events.pure(0.25), 4)
    assert events.from_json(events.to_json(event)) == event
