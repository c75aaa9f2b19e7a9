from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import GaussianMechanism, Laplace, calibrate_gaussian, gaussian_delta

DRAWS = 20_000


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_calibration_is_exact_and_on_the_safe_side(epsilon, delta):
    scale = calibrate_gaussian(1.0, epsilon, delta)
    assert gaussian_delta(scale, 1.0, epsilon) <= delta
    assert gaussian_delta(scale * (1 - 1e-6), 1.0, epsilon) > delta


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_delta_is_the_integral_of_the_excess(epsilon):
    scale = 1.3
    x = np.linspace(-40, 40, 400_001)
    excess = stats.norm.pdf(x, 1.0, scale) - math.exp(epsilon) * stats.norm.pdf(x, 0.0, scale)
    assert gaussian_delta(scale, 1.0, epsilon) == pytest.approx(np.trapezoid(np.maximum(excess, 0), x), rel=1e-4)


def test_analytic_noise_is_below_the_classical_formula():
    for epsilon in (0.1, 0.5, 0.9):
        assert calibrate_gaussian(1.0, epsilon, 1e-6) < math.sqrt(2 * math.log(1.25e6)) / epsilon


def test_vector_sensitivity_grows_with_the_root_of_the_dimensions():
    one, many = GaussianMechanism(1.0, 1e-6, 1, -1, 1), GaussianMechanism(1.0, 1e-6, 100, -1, 1)
    assert many.sensitivity == pytest.approx(20.0)
    assert many.standard_deviation == pytest.approx(10 * one.standard_deviation, rel=1e-6)


@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_gaussian_noise_law_two_sided(scale, accepted):
    # Kolmogorov-Smirnov at p = 1e-6; the wrong scales are rejected with power indistinguishable from one.
    mechanism = GaussianMechanism(1.0, 1e-5, 4)
    reports = mechanism.perturb(np.full((DRAWS // 4, 4), 0.25), np.random.default_rng(2)).ravel()
    p_value = stats.kstest(reports, stats.norm(0.25, scale * mechanism.standard_deviation).cdf).pvalue
    assert (p_value > 1e-6) == accepted


@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_laplace_noise_law_two_sided(scale, accepted):
    mechanism = Laplace(0.7, 2.0, 6.0)
    estimates = mechanism.estimate(mechanism.perturb(np.full(DRAWS, 3.0), np.random.default_rng(3)))
    p_value = stats.kstest(estimates, stats.laplace(3.0, scale * mechanism.scale).cdf).pvalue
    assert (p_value > 1e-6) == accepted


def test_gaussian_refuses_what_it_cannot_promise():
    for delta in (0.0, 1.0, -1e-3, math.nan):
        with pytest.raises(InputError, match="delta"):
            GaussianMechanism(1.0, delta)
    with pytest.raises(InputError, match="vectors of 3"):
        GaussianMechanism(1.0, 1e-5, 3).perturb(np.zeros((5, 4)))
    with pytest.raises(InputError, match="finite"):
        GaussianMechanism(1.0, 1e-5, 2).perturb(np.array([[0.0, math.nan]]))


def test_gaussian_clips_before_adding_noise():
    mechanism = GaussianMechanism(1.0, 1e-5, 2)
    same = [mechanism.perturb(np.full((3, 2), v), np.random.default_rng(4)) for v in (1.0, 50.0)]
    assert np.array_equal(*same)
