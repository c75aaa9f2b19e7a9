"""The loss of a choice, against the exact loss on a world small enough to write down."""

from __future__ import annotations

import itertools
import math

import pytest

from hushgraph.errors import UnprovenError
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss, WorstOf
from hushgraph.privacy.units import Relation

FIRST, CHEAP, DEAR = 0.2, 0.5, 1.0


def way(*epsilons: float) -> PrivacyLoss:
    return PrivacyLoss(events.composed([events.pure(one) for one in epsilons]), Relation.NULL)


def test_it_is_the_worst_way_at_every_delta_and_epsilon() -> None:
    gaussian, pure = events.gaussian(3.0), events.pure(1.0)
    ways = [PrivacyLoss(events.composed([events.pure(0.1), one]), Relation.NULL) for one in (gaussian, pure)]
    worst = WorstOf(tuple(ways))
    for delta in (1e-9, 1e-5, 0.1):
        assert worst.epsilon(delta) == max(one.epsilon(delta) for one in ways)
    assert worst.epsilon(1e-9) > worst.epsilon(0.1)  # at one end the Gaussian is worse, at the other the pure one
    assert [one.epsilon(0.1) < 1.1 < one.epsilon(1e-9) for one in ways] == [True, False]
    for epsilon in (0.0, 0.5, 1.5):
        assert worst.delta(epsilon) == max(one.delta(epsilon) for one in ways)
    assert worst.mu is None
    assert worst.accountant.endswith("the costliest of 2 options")
    with pytest.raises(UnprovenError):
        WorstOf(())


def bit(secret: int, epsilon: float, answer: int) -> float:
    """Randomized response."""
    return (math.exp(epsilon) if answer == secret else 1.0) / (1.0 + math.exp(epsilon))


def realized(chosen: dict[int, float]) -> float:
    """The largest log ratio of a first answer and of a second one, whose epsilon is chosen by the first."""
    outputs = itertools.product((0, 1), (0, 1))
    laws = [(bit(0, FIRST, a) * bit(0, chosen[a], b), bit(1, FIRST, a) * bit(1, chosen[a], b)) for a, b in outputs]
    return max(abs(math.log(p / q)) for p, q in laws)


def test_a_choice_made_from_the_first_release_stays_within_and_reaches_the_claim() -> None:
    claim = WorstOf((way(FIRST, CHEAP), way(FIRST, DEAR))).epsilon(1e-12)
    for first, second in itertools.product((CHEAP, DEAR), repeat=2):
        assert realized({0: first, 1: second}) <= claim + 1e-12
    assert realized({0: CHEAP, 1: DEAR}) == pytest.approx(claim)
    # Claiming what the chosen option costs is wrong: an answer of 0 would claim this much, with more at stake.
    assert way(FIRST, CHEAP).epsilon(1e-12) < realized({0: CHEAP, 1: DEAR})
