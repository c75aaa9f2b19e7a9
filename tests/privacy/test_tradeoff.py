"""What the best attacker can do, against laws where it is known."""

import math

import pytest
from scipy.stats import norm

from hushgraph.errors import InputError
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.tradeoff import best_guess, detection_curve, detection_rate
from hushgraph.privacy.units import Relation


class Gaussian:
    def __init__(self, mu: float) -> None:
        self.mu = mu

    def delta(self, epsilon: float) -> float:
        left, right = -epsilon / self.mu + self.mu / 2, -epsilon / self.mu - self.mu / 2
        return float(norm.cdf(left) - math.exp(epsilon) * norm.cdf(right))


class Response:
    """Randomized response on one bit: all that epsilon allows at delta 0."""

    def __init__(self, epsilon: float) -> None:
        self.own = epsilon

    def delta(self, epsilon: float) -> float:
        right = 1 / (1 + math.exp(-self.own))
        return max(0.0, right - math.exp(epsilon) * (1 - right))


@pytest.mark.parametrize("mu", [0.1, 0.45, 1.0, 3.0])
@pytest.mark.parametrize("alarms", [0.001, 0.01, 0.2, 0.9])
def test_gaussian_curve(mu: float, alarms: float) -> None:
    found = detection_rate(Gaussian(mu), alarms)
    known = norm.cdf(norm.ppf(alarms) + mu)
    assert known - 1e-12 <= found <= known + 1e-5


@pytest.mark.parametrize("alarms", [0.01, 0.2, 0.6])
def test_randomized_response(alarms: float) -> None:
    own = 1.3
    known = min(math.exp(own) * alarms, 1 - math.exp(-own) * (1 - alarms))
    assert detection_rate(Response(own), alarms) == pytest.approx(known, abs=1e-3)
    assert detection_rate(Response(own), alarms) >= known - 1e-12


def test_of_a_loss_and_the_best_guess() -> None:
    loss = PrivacyLoss(events.gaussian(2.0), Relation.ADD_OR_REMOVE)
    assert detection_rate(loss, 0.01) == pytest.approx(norm.cdf(norm.ppf(0.01) + 0.5), abs=1e-5)
    assert best_guess(loss) == pytest.approx(norm.cdf(0.25), abs=1e-9)


def test_the_curve_is_just_above_the_rates() -> None:
    rates = [0.001, 0.01, 0.3, 0.9, 1.0]
    curve = detection_curve(Gaussian(1.0), rates)
    exact = [float(norm.cdf(norm.ppf(rate) + 1.0)) for rate in rates]
    assert all(one - 1e-12 <= found <= one + 0.02 for one, found in zip(exact, curve))


def test_nothing_is_hidden_without_noise() -> None:
    class Open:
        def delta(self, epsilon: float) -> float:
            return 1.0

    assert detection_rate(Open(), 0.01) == 1.0
    assert best_guess(Open()) == 1.0


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, math.nan])
def test_rates_are_checked(rate: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        detection_rate(Gaussian(1.0), rate)
