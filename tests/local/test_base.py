"""Promises shared by every mechanism for one number: privacy, no bias, known variance, clipping, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import SCALARS, Duchi, OneBit, ThreeOutput, realized_epsilon
from hushgraph.local.base import share_of, small_side

ALL = list(SCALARS.values())
BITS = [OneBit, Duchi, ThreeOutput]
DRAWS = 40_000


def z_of_mean(estimates, value, variance):
    return (estimates.mean() - value) / math.sqrt(variance / len(estimates))


def z_of_second_moment(estimates, value, variance):
    """How far the mean squared error is from `variance`, in its own standard errors."""
    squares = (estimates - value) ** 2
    return (squares.mean() - variance) / (squares.std() / math.sqrt(len(squares)) + 1e-12)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.05, 0.6, 0.7, 1.0, 1.7, 1.8, 4.0, 9.0])
def test_realized_epsilon_is_the_claim(kind, epsilon):
    # The inputs have the ends of the range, so they reach the supremum: neither above nor below the claim.
    assert realized_epsilon(kind(epsilon, -3.0, 2.0)) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("kind", ALL)
def test_a_mechanism_that_claims_too_little_is_caught(kind):
    assert realized_epsilon(kind(1.5)) > 1.0 + 0.4


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(ALL),
    epsilon=st.floats(0.01, 10.0),
    low=st.floats(-100, 100),
    width=st.floats(1e-3, 1e3),
    data=st.data(),
)
def test_any_two_values_stay_within_epsilon(kind, epsilon, low, width, data):
    mechanism = kind(epsilon, low, low + width)
    inputs = data.draw(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=5))
    assert realized_epsilon(mechanism, inputs) <= epsilon + 1e-9


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("value", [-2.0, -0.4, 1.5, 3.1, 5.0])
def test_unbiased_and_variance_two_sided(kind, epsilon, value):
    # 105 cases, two z-tests each at 4.5 sigma; the seeds are fixed.
    mechanism = kind(epsilon, -2.0, 5.0)
    rng = np.random.default_rng([7, ALL.index(kind), int(10 * epsilon), int(10 * value + 50)])
    estimates = mechanism.estimate(mechanism.perturb(np.full(DRAWS, value), rng))
    variance = float(mechanism.variance(value))
    assert abs(z_of_mean(estimates, value, variance)) < 4.5
    assert abs(z_of_second_moment(estimates, value, variance)) < 4.5


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("scale", [2 / 3, 3 / 2])
def test_wrong_epsilon_is_rejected_by_the_variance(kind, scale):
    # Draw at `scale` times the epsilon but test against the right law: the statistic must be far outside 4.5 sigma.
    right, wrong = kind(1.0, -1.0, 1.0), kind(scale, -1.0, 1.0)
    rng = np.random.default_rng(11)
    estimates = wrong.estimate(wrong.perturb(np.zeros(DRAWS), rng))
    assert abs(z_of_second_moment(estimates, 0.0, float(right.variance(0.0)))) > 20


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("scale", [2 / 3, 3 / 2])
def test_wrong_rectifier_is_biased(kind, scale):
    rng = np.random.default_rng(12)
    report = kind(1.0, -1.0, 1.0).perturb(np.full(DRAWS, 0.8), rng)
    wrong = kind(scale, -1.0, 1.0)
    estimates = wrong.estimate(report)
    assert abs(z_of_mean(estimates, 0.8, float(wrong.variance(0.8)))) > 10


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("value", [0.0, 0.2, 0.5, 0.83, 1.0])
def test_draws_follow_the_written_law(kind, value):
    # Chi-square over at most 40 groups of reports at p = 1e-7, seeded; 3/2 of the epsilon is rejected at the ends.
    mechanism = kind(1.3)
    outputs, probabilities = mechanism.law(value)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(outputs.astype(int)) > 0).all()
    reports = mechanism.perturb(np.full(DRAWS, value), np.random.default_rng(5))
    assert np.isin(reports, outputs).all()
    counts = np.bincount(np.searchsorted(outputs, reports), minlength=len(outputs))
    assert grouped_p_value(counts, probabilities) > 1e-7
    if value in (0.0, 1.0):
        other_outputs, other = kind(1.3 * 1.5).law(value)
        if len(other_outputs) == len(outputs):
            assert grouped_p_value(counts, other) < 1e-7


def grouped_p_value(counts, probabilities, groups=40):
    """Neighboring reports are put together until each group expects a fortieth of all draws."""
    group = np.minimum((np.cumsum(probabilities) - probabilities) * groups, groups - 1).astype(int)
    seen, expected = (np.bincount(group, weights=part) for part in (counts, probabilities))
    kept = expected > 0
    return stats.chisquare(seen[kept], counts.sum() * expected[kept] / expected.sum()).pvalue


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1.5, 6.0])
@pytest.mark.parametrize("value", [-3.0, 0.25, 1.0, 7.0])
def test_law_has_the_stated_mean_and_variance(kind, epsilon, value):
    mechanism = kind(epsilon, -3.0, 7.0)
    outputs, probabilities = mechanism.law(value)
    estimates = mechanism.estimate(outputs)
    assert probabilities @ estimates == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert probabilities @ (estimates - value) ** 2 == pytest.approx(float(mechanism.variance(value)), rel=1e-9)


@pytest.mark.parametrize("kind", ALL)
def test_log_ratios_are_those_of_the_law_and_reach_epsilon(kind):
    mechanism = kind(1.7, -1.0, 4.0)
    outputs, top = mechanism.law(4.0)
    ratios = mechanism.log_ratio(outputs, *mechanism.extreme_inputs())
    assert ratios.shape == (len(outputs), 1)
    assert ratios[:, 0] == pytest.approx(np.log(top / mechanism.law(-1.0)[1]), abs=1e-12)
    assert ratios.max() == pytest.approx(1.7, abs=1e-9)
    assert ratios.min() == pytest.approx(-1.7, abs=1e-9)
    assert (mechanism.parts, mechanism.one_part) == (1, mechanism)
    beyond = np.array([int(outputs.max()) + 1])
    assert mechanism.log_ratio(beyond, 4.0, -1.0)[0] == ratios[-1]


@pytest.mark.parametrize("kind", ALL)
def test_values_are_clipped_to_the_public_range(kind):
    mechanism = kind(1.0, 0.0, 1.0)
    seeds = [np.random.default_rng(3) for _ in range(2)]
    far = mechanism.perturb(np.full(500, 1e9), seeds[0])
    edge = mechanism.perturb(np.full(500, 1.0), seeds[1])
    assert np.array_equal(far, edge)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_missing_values_are_refused(kind, bad):
    with pytest.raises(InputError, match="finite"):
        kind(1.0).perturb(np.array([0.5, bad]))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 30.1])
def test_bad_epsilon_is_refused(kind, epsilon):
    with pytest.raises(InputError, match="epsilon"):
        kind(epsilon)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_bad_range_is_refused(kind, bounds):
    with pytest.raises(InputError, match="range"):
        kind(1.0, *bounds)


@pytest.mark.parametrize("kind", ALL)
def test_shapes_are_kept_and_parameters_are_frozen(kind):
    mechanism = kind(1.0)
    assert mechanism.perturb(0.3).shape == ()
    assert mechanism.perturb(np.zeros((2, 3, 4))).shape == (2, 3, 4)
    assert mechanism.perturb(np.zeros((0, 4))).shape == (0, 4)
    with pytest.raises(AttributeError):
        mechanism.epsilon = 2.0


@pytest.mark.parametrize("kind", ALL)
def test_default_randomness_is_fresh(kind):
    mechanism = kind(0.5)
    values = np.full(400, 0.5)
    assert not np.array_equal(mechanism.perturb(values), mechanism.perturb(values))


def test_a_report_without_any_probability_says_nothing():
    assert ThreeOutput(0.3).law(0.1)[1][1] == 0.0
    assert ThreeOutput(0.3).log_ratio(np.array([0]), 1.0, 0.0)[0, 0] == 0.0


def test_unlikely_reports_are_not_rounded_away_at_a_large_epsilon():
    for kind in BITS:
        for value in (0.0, 1.0):
            assert kind(30.0).law(value)[1].min() == pytest.approx(math.exp(-30.0), rel=1e-6)
    assert small_side(30.0) == pytest.approx(math.exp(-30.0))


@settings(max_examples=200, deadline=None)
@given(total=st.floats(1e-3, 1e5), parts=st.integers(1, 5000))
def test_shares_never_add_up_to_more_than_the_total(total, parts):
    share = share_of(total, parts)
    assert parts * share <= total
    assert parts * share == pytest.approx(total, rel=1e-12)
