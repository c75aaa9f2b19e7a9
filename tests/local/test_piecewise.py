from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.local import Duchi, Hybrid, Piecewise, Suboptimal
from hushgraph.local.hybrid import DUCHI_ONLY_BELOW


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_piecewise_constants_of_the_paper(epsilon):
    mechanism = Piecewise(epsilon, -1, 1)
    half = math.exp(epsilon / 2)
    assert mechanism.bound == pytest.approx((half + 1) / (half - 1))
    assert 1 - mechanism.outside_probability == pytest.approx(half / (half + 1))
    x = np.linspace(-1, 1, 11)
    assert mechanism.variance(x) == pytest.approx(x**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_suboptimal_constants_of_the_paper(epsilon):
    mechanism = Suboptimal(epsilon, -1, 1)
    e, t = math.exp(epsilon), math.exp(epsilon / 3)
    assert mechanism.bound == pytest.approx((e + t) * (t + 1) / (t * (e - 1)))
    assert mechanism.density(0.0, np.array([0.0]))[0] == pytest.approx(e * t * (e - 1) / (2 * (t + e) ** 2))
    x = np.linspace(-1, 1, 11)
    constant = (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    assert mechanism.variance(x) == pytest.approx((t + 1) / (e - 1) * x**2 + constant)


def test_suboptimal_worst_variance_below_piecewise():
    for epsilon in (0.5, 1.0, 3.0, 6.0):
        assert Suboptimal(epsilon).variance(1.0) < Piecewise(epsilon).variance(1.0)


def test_reports_lie_on_a_coarse_grid_and_within_bounds():
    mechanism = Piecewise(1.0, -1, 1)
    reports = mechanism.perturb(np.random.default_rng(0).uniform(-1, 1, 5000), np.random.default_rng(1))
    assert np.abs(reports).max() <= mechanism.bound
    interior = reports[np.abs(reports) < mechanism.bound - 1e-4]
    steps = interior * 2.0**21
    assert np.array_equal(steps, np.round(steps))


def test_hybrid_is_duchi_below_its_threshold_and_flat_above():
    assert pytest.approx(0.61, abs=0.005) == DUCHI_ONLY_BELOW
    assert Hybrid(0.6).piecewise_probability == 0
    values = np.linspace(-1, 1, 21)
    assert np.allclose(Hybrid(0.6, -1, 1).variance(values), Duchi(0.6, -1, 1).variance(values))
    flat = Hybrid(2.0, -1, 1).variance(values)
    assert np.ptp(flat) < 1e-9 * flat.max()


def test_hybrid_worst_variance_below_both_parts():
    values = np.linspace(-1, 1, 201)
    for epsilon in (0.7, 1.0, 2.0, 4.0):
        worst = Hybrid(epsilon, -1, 1).variance(values).max()
        assert worst <= Duchi(epsilon, -1, 1).variance(values).max() + 1e-9
        assert worst <= Piecewise(epsilon, -1, 1).variance(values).max() + 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 10.0])
def test_suboptimal_is_within_five_percent_of_the_best_shape(epsilon):
    e = math.exp(epsilon)
    t = np.exp(np.linspace(-2, epsilon + 1, 20_001))
    worst = (t + 1) / (e - 1) + (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    assert worst.min() <= Suboptimal(epsilon, -1, 1).variance(1.0) <= 1.05 * worst.min()
