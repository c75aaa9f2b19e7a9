from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.local import Duchi, OneBit, ThreeOutput
from hushgraph.local.bits import zero_probability


def worst_variance(zero, epsilon):
    """Largest unit variance of the three-output mechanism with `zero` as its free parameter, by brute force."""
    e = math.exp(epsilon)
    bound = e * (e + 1) / ((e - 1) * (e - zero))
    x = np.linspace(0, 1, 2001)
    return (bound**2 * (1 - zero + zero * (1 - 1 / e) * x) - x**2).max()


@pytest.mark.parametrize("epsilon", [0.2, 0.69, 0.7, 1.0, 1.4, 1.7, 1.72, 3.0])
def test_zero_probability_is_the_brute_force_minimum(epsilon):
    largest = math.exp(epsilon) / (math.exp(epsilon) + 2)
    grid = np.linspace(0, largest, 2001)
    best = min(worst_variance(zero, epsilon) for zero in grid)
    chosen = zero_probability(epsilon)
    assert 0 <= chosen <= largest + 1e-12
    assert worst_variance(chosen, epsilon) <= best * (1 + 1e-6)


def test_without_zero_it_is_duchi():
    three, two = ThreeOutput(0.5, -1, 1), Duchi(0.5, -1, 1)
    assert three.bound == pytest.approx(two.bound)
    assert three.law(0.3)[1][[0, 2]] == pytest.approx(two.law(0.3)[1])


def test_worst_variance_never_above_duchi():
    values = np.linspace(-1, 1, 201)
    for epsilon in (0.3, 0.9, 1.5, 2.5, 5.0):
        three = ThreeOutput(epsilon, -1, 1).variance(values).max()
        assert three <= Duchi(epsilon, -1, 1).variance(values).max() * (1 + 1e-12)


def test_one_bit_and_duchi_have_the_same_estimator_law():
    for value in np.linspace(-1, 1, 9):
        bits, chances = OneBit(0.8, -1, 1).law(value)
        signs, other = Duchi(0.8, -1, 1).law(value)
        assert np.allclose(OneBit(0.8, -1, 1).estimate(bits), Duchi(0.8, -1, 1).estimate(signs))
        assert np.allclose(chances, other)
