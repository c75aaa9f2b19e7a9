"""Laws on a grid against the densities of the papers, and the draws behind them."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import Duchi, Hybrid, Laplace, Piecewise, Suboptimal, realized_epsilon
from hushgraph.local.grid import DUCHI_ONLY_BELOW, SCALE, WINDOW

DRAWS = 20_000


class Scripted:
    """Gives the same uniform number every time, and counts the calls."""

    def __init__(self, *values: float) -> None:
        self.values, self.calls = list(values), 0

    def random(self, size: object = None) -> np.ndarray:
        self.calls += 1
        return np.full(size, self.values[min(self.calls, len(self.values)) - 1])  # type: ignore[call-overload]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 9.0])
def test_piecewise_constants_of_the_paper(epsilon):
    mechanism = Piecewise(epsilon, -1, 1)
    half = math.exp(epsilon / 2)
    furthest = float(mechanism.estimate(mechanism.places - 1))
    assert furthest == pytest.approx((half + 1) / (half - 1), rel=5e-3)
    assert 1 - mechanism.outside_probability == pytest.approx(half / (half + 1), rel=1e-3)
    x = np.linspace(-1, 1, 11)
    assert mechanism.variance(x) == pytest.approx(x**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2), rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 9.0])
def test_suboptimal_constants_of_the_paper(epsilon):
    mechanism = Suboptimal(epsilon, -1, 1)
    e, t = math.exp(epsilon), math.exp(epsilon / 3)
    x = np.linspace(-1, 1, 11)
    constant = (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    assert mechanism.variance(x) == pytest.approx((t + 1) / (e - 1) * x**2 + constant, rel=1e-3)


def test_suboptimal_worst_variance_below_piecewise():
    for epsilon in (0.5, 1.0, 3.0, 6.0):
        assert Suboptimal(epsilon).variance(1.0) < Piecewise(epsilon).variance(1.0)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 10.0])
def test_suboptimal_is_within_five_percent_of_the_best_shape(epsilon):
    e = math.exp(epsilon)
    t = np.exp(np.linspace(-2, epsilon + 1, 20_001))
    worst = (t + 1) / (e - 1) + (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    assert 0.999 * worst.min() <= Suboptimal(epsilon, -1, 1).variance(1.0) <= 1.05 * worst.min()


@pytest.mark.parametrize("kind", [Piecewise, Suboptimal])
def test_a_position_has_two_probabilities_whose_ratio_is_the_claim(kind):
    mechanism = kind(2.0)
    for position in (0, 17, mechanism.travel):
        _, chances = mechanism._position_law(position)
        likely = np.flatnonzero(chances > chances.min())
        assert likely.tolist() == list(range(position, position + WINDOW))
        assert math.log(chances.max() / chances.min()) == pytest.approx(2.0, abs=1e-12)


@pytest.mark.parametrize("kind", [Piecewise, Suboptimal, Hybrid, Laplace])
def test_reports_are_whole_numbers_among_those_of_the_law(kind):
    mechanism = kind(1.0, -1, 1)
    outputs, _ = mechanism.law(0.2)
    reports = mechanism.perturb(np.random.default_rng(0).uniform(-1, 1, 5000), np.random.default_rng(1))
    assert reports.dtype == np.int64
    assert np.isin(reports, outputs).all()


def test_positions_are_rounded_at_random_without_bias():
    mechanism = Piecewise(1.0, 0.0, 1.0)
    units = np.linspace(-1, 1, 1001)
    below, rest = mechanism._between(units)
    assert ((below >= 0) & (below < mechanism.travel)).all()
    assert below + rest == pytest.approx((units + 1) / 2 * mechanism.travel)
    assert set(mechanism._position(np.array([1.0]), Scripted(0.0, 0.999))) == {mechanism.travel}


def test_hybrid_is_duchi_below_its_threshold_and_flat_above():
    assert pytest.approx(0.61, abs=0.005) == DUCHI_ONLY_BELOW
    assert Hybrid(0.6).piecewise_probability == 0
    assert Hybrid(0.6).law(0.3)[1] == pytest.approx(Duchi(0.6).law(0.3)[1])
    values = np.linspace(-1, 1, 21)
    assert np.allclose(Hybrid(0.6, -1, 1).variance(values), Duchi(0.6, -1, 1).variance(values))
    flat = Hybrid(2.0, -1, 1).variance(values)
    assert np.ptp(flat) < 1e-3 * flat.max()


def test_hybrid_worst_variance_below_both_parts():
    values = np.linspace(-1, 1, 201)
    for epsilon in (0.7, 1.0, 2.0, 4.0):
        worst = Hybrid(epsilon, -1, 1).variance(values).max()
        assert worst <= Duchi(epsilon, -1, 1).variance(values).max() + 1e-9
        assert worst <= Piecewise(epsilon, -1, 1).variance(values).max() + 1e-9


def test_hybrid_reports_name_the_part_that_was_used():
    mechanism = Hybrid(2.0, -1, 1)
    estimates = mechanism.estimate(np.arange(mechanism.places + 2))
    assert estimates[-2:] == pytest.approx([-Duchi(2.0).bound, Duchi(2.0).bound])
    assert estimates[:-2] == pytest.approx(Piecewise(2.0, -1, 1).estimate(np.arange(mechanism.places)))


@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_laplace_noise_law_two_sided(scale, accepted):
    # Kolmogorov-Smirnov at p = 1e-6, seeded. One place is 1/64 of a scale or less, spread out before the test.
    mechanism, rng = Laplace(0.7, 2.0, 6.0), np.random.default_rng(3)
    step = (mechanism.high - mechanism.low) / mechanism.travel
    estimates = mechanism.estimate(mechanism.perturb(np.full(DRAWS, 3.0), rng)) + step * (rng.random(DRAWS) - 0.5)
    p_value = stats.kstest(estimates, stats.laplace(3.0, scale * mechanism.scale).cdf).pvalue
    assert (p_value > 1e-6) == accepted


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 9.0, 30.0])
def test_laplace_pays_for_its_logarithms_and_for_nothing_else(epsilon):
    mechanism = Laplace(epsilon)
    assert 0 < epsilon - mechanism.spent <= 1e-9
    assert mechanism.travel / epsilon >= SCALE
    assert realized_epsilon(mechanism) == pytest.approx(mechanism.spent, abs=1e-12)
    assert mechanism.scale == pytest.approx(1 / epsilon, rel=1e-6)


def test_geometric_counts_invert_the_tail_down_to_uniform_numbers_of_159_bits():
    mechanism = Laplace(1.0)
    decay = mechanism.spent / mechanism.travel
    for uniform in (0.999, 0.5, 0.01):
        assert mechanism._geometric((1,), Scripted(uniform))[0] == math.floor(-math.log(uniform) / decay)
    tiny = mechanism._geometric((1,), Scripted(0.0, 0.0, 0.5))[0]
    assert tiny == min(math.floor(107 * math.log(2) / decay), 2 * (mechanism.travel + mechanism.reach))
    assert mechanism._geometric((1,), Scripted(0.0))[0] == 2 * (mechanism.travel + mechanism.reach)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.3, 30.0])
def test_the_steps_of_the_inversion_lie_where_the_proof_needs_them(epsilon):
    # The true place of the step to k is r^k; the computed one may be off by 2^-43 of it up to 86 scales.
    mechanism = Laplace(epsilon)
    decay = mechanism.spent / mechanism.travel
    with localcontext() as context:
        context.prec = 60
        for count in np.unique(np.geomspace(1, 86 / decay, 400).astype(int)):
            step = (-Decimal(decay) * int(count)).exp()
            before, after = (float(step * (1 + Decimal(side) * Decimal(2) ** -43)) for side in (1, -1))
            found = [mechanism._geometric((1,), Scripted(uniform, 0.0, 0.0))[0] for uniform in (before, after)]
            assert found == [min(count + k, 2 * (mechanism.travel + mechanism.reach)) for k in (-1, 0)]


def test_laplace_refuses_an_epsilon_that_its_logarithms_would_use_up():
    with pytest.raises(InputError, match=r"at least 0\.0001"):
        Laplace(1e-5)
    assert Laplace(1e-4).spent > 0.999e-4
