"""What the best attacker can do, from the whole privacy profile: how much is found at how many false alarms.

For every epsilon, a test with false alarms at rate a finds at most e^epsilon a + delta(epsilon), and at most
1 - e^-epsilon (1 - a - delta(epsilon)); the least over all epsilons is the trade-off curve itself (Dong, Roth and Su,
2022, Proposition 2.12). Any epsilons that are tried give a valid bound, so the search need not be exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from scipy.optimize import minimize_scalar

from hushgraph.errors import InputError

_MOST = 60.0  # e^60 times any false alarm rate that matters is above 1


class Profile(Protocol):
    """Whatever knows delta for every epsilon."""

    def delta(self, epsilon: float) -> float:
        """The delta of this epsilon, an upper bound."""
        ...


def detection_rate(loss: Profile, false_alarms: float) -> float:
    """The most that any test with this rate of false alarms finds of what is protected."""
    if not 0.0 < false_alarms < 1.0:
        raise InputError(f"false alarms: expected a rate between 0 and 1; got {false_alarms!r}")

    def bound(epsilon: float) -> float:
        return _bound(epsilon, loss.delta(epsilon), false_alarms)

    tried = [bound(0.0)]
    for most in (1.0, 4.0, 16.0, _MOST):
        tried.append(float(minimize_scalar(bound, bounds=(0.0, most), method="bounded", options={"xatol": 1e-4}).fun))
    return min(1.0, *tried)


def detection_curve(loss: Profile, rates: Sequence[float]) -> list[float]:
    """`detection_rate` at many rates of false alarms, from one table of the profile: a little above the curve."""
    epsilons = [0.0, *[10 ** (-2 + k / 10) for k in range(38)]]
    profile = [(epsilon, loss.delta(epsilon)) for epsilon in epsilons]
    return [min(1.0, *(_bound(epsilon, delta, rate) for epsilon, delta in profile)) for rate in rates]


def _bound(epsilon: float, delta: float, false_alarms: float) -> float:
    gained = math.exp(epsilon) * false_alarms + delta
    kept = 1.0 - math.exp(-epsilon) * (1.0 - false_alarms - delta)
    return min(gained, kept)


def best_guess(loss: Profile) -> float:
    """How often the best attacker is right where both cases are equally likely; 0.5 is a coin."""
    return min(1.0, 0.5 * (1.0 + loss.delta(0.0)))
