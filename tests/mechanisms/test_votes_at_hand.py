"""What docs/proofs/votes.md says of bounds that follow from the votes at hand, by the published formula.

Papernot et al. 2018, Theorem 6 with the orders of Proposition 10: the divergence of one label of GNMax, given a bound q
on the probability that another class than the first wins.
"""

from __future__ import annotations

import math

import pytest
from scipy.special import erfc

import hushgraph as hg
from hushgraph.methods.pate import PATE
from hushgraph.privacy.metadata import Metadata

TEACHERS, CLASSES, DELTA = 250, 10, 1e-5
SIZES = Metadata(70_000, 60_000, num_features=784, num_classes=CLASSES, num_public=9_000)


def planned_noise(queries: int, epsilon: float) -> float:
    plan = PATE(teachers=TEACHERS, queries=queries).plan(SIZES, hg.units.Record(), hg.Budget(epsilon, DELTA))
    assert plan["votes"].scale is not None
    return plan["votes"].scale


def for_all_data(noise: float, order: float) -> float:
    return order / noise**2


def of_votes(q: float, noise: float, order: float) -> float:
    second = noise * math.sqrt(-math.log(q))
    first = second + 1.0
    limit = math.exp((second - 1.0) * second / noise**2) / (first / (first - 1.0) * second / (second - 1.0)) ** second
    if order > first or q > limit:
        return for_all_data(noise, order)
    usual = (1.0 - q) / (1.0 - (q * math.exp(second / noise**2)) ** ((second - 1.0) / second))
    other = math.exp(first / noise**2) / q ** (1.0 / (first - 1.0))
    moment = (1.0 - q) * usual ** (order - 1.0) + q * other ** (order - 1.0)
    return min(math.log(moment) / (order - 1.0), for_all_data(noise, order))


def least_q(noise: float) -> float:
    """That of teachers who all agree."""
    return float(0.5 * (CLASSES - 1) * erfc(TEACHERS / (2.0 * noise)))


def deciding_order(queries: int, noise: float) -> float:
    """The order at which the divergence of all answers gives the smallest epsilon."""
    orders = [1.5 + step / 2.0 for step in range(100)]
    return min(orders, key=lambda a: queries * for_all_data(noise, a) + math.log(1.0 / DELTA) / (a - 1.0))


@pytest.mark.parametrize("epsilon", [1.0, 4.05, 5.04])
def test_with_2200_answers_no_votes_make_it_smaller(epsilon: float) -> None:
    noise = planned_noise(2_200, epsilon)
    order = deciding_order(2_200, noise)
    q = min(least_q(noise), 0.99)
    assert of_votes(q, noise, order) == for_all_data(noise, order)


@pytest.mark.parametrize("epsilon", [4.05, 5.04])
def test_with_300_answers_votes_that_agree_would(epsilon: float) -> None:
    noise = planned_noise(300, epsilon)
    order = deciding_order(300, noise)
    assert least_q(noise) < 1e-10
    assert of_votes(least_q(noise), noise, order) < 0.01 * for_all_data(noise, order)
