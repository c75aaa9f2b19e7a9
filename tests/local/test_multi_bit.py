from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.local import MultiBit, OneBit, SampledFeatures, best_bits, realized_epsilon

CORNERS = [np.array(corner, dtype=float) for corner in itertools.product((0, 0.5, 1), repeat=3)]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5, 4.0, 6.0])
@pytest.mark.parametrize("sampled", [None, 1, 2, 3])
def test_epsilon_by_enumeration_of_every_report(epsilon, sampled):
    mechanism = MultiBit(epsilon, 3, sampled=sampled)
    assert realized_epsilon(mechanism, CORNERS) == pytest.approx(epsilon, rel=1e-9)
    for corner in CORNERS:
        assert mechanism.law(corner)[1].sum() == pytest.approx(1.0)


def test_spending_the_whole_epsilon_on_each_bit_is_caught():
    # The mistake: two bits at epsilon each instead of epsilon/2 each.
    broken = MultiBit(2.0, 3, sampled=2)
    assert realized_epsilon(broken, CORNERS) > 1.0 + 0.9


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 7.0])
def test_law_has_the_stated_mean_and_variance(epsilon):
    mechanism = MultiBit(epsilon, 4, -1.0, 3.0)
    value = np.array([-1.0, 0.2, 2.0, 3.0])
    reports, probabilities = mechanism.law(value)
    estimates = mechanism.estimate(reports)
    assert probabilities @ estimates == pytest.approx(value, abs=1e-9)
    assert probabilities @ (estimates - value) ** 2 == pytest.approx(mechanism.variance(value), rel=1e-9)


@pytest.mark.parametrize("sampled", [1, 3, 40, 50])
def test_draws_are_unbiased_with_the_stated_variance(sampled):
    # 4 x 50 two-sided z-tests of the mean at 5 sigma; the seeds are fixed.
    mechanism = MultiBit(4.0, 50, sampled=sampled)
    value = np.random.default_rng(0).uniform(0, 1, 50)
    n = 20_000
    estimates = mechanism.estimate(mechanism.perturb(np.tile(value, (n, 1)), np.random.default_rng(sampled)))
    z = (estimates.mean(axis=0) - value) / np.sqrt(mechanism.variance(value) / n)
    assert np.abs(z).max() < 5
    ratio = ((estimates - value) ** 2).mean() / mechanism.variance(value).mean()
    assert abs(ratio - 1) < 0.02
    for wrong in (2 / 3, 3 / 2):
        other = MultiBit(4.0 * wrong, 50, sampled=sampled)
        assert abs(other.variance(value).mean() / mechanism.variance(value).mean() - 1) > 0.05


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(0.01, 30.0), dimensions=st.integers(1, 40))
def test_number_of_bits_is_the_best_one_and_never_worse_than_the_floor(epsilon, dimensions):
    chosen = best_bits(epsilon, dimensions)
    assert 1 <= chosen <= dimensions

    def worst(m):
        return MultiBit(epsilon, dimensions, sampled=m).variance(0.5)

    everything = min(worst(m) for m in range(1, dimensions + 1))
    assert worst(chosen) <= everything * (1 + 1e-9)
    floor = max(1, min(dimensions, math.floor(epsilon / 2.18)))
    assert worst(chosen) <= worst(floor) * (1 + 1e-12)


def test_reference_encoder_on_small_input():
    # The paper's Algorithm 2 written naively, with the same law: compare the full tables of probabilities.
    mechanism = MultiBit(3.0, 3, sampled=2)
    value = np.array([0.1, 0.7, 1.0])
    e = math.exp(1.5)
    chance = 1 / (e + 1) + value * (e - 1) / (e + 1)
    reports, probabilities = mechanism.law(value)
    for report, probability in zip(reports.dense(np.int8), probabilities):
        sent = np.nonzero(report)[0]
        naive = math.prod(chance[i] if report[i] > 0 else 1 - chance[i] for i in sent) / 3
        assert probability == pytest.approx(naive)


def test_all_features_is_one_bit_at_an_equal_share():
    whole, single = MultiBit(3.0, 6, sampled=6), OneBit(0.5)
    values = np.linspace(0, 1, 6)
    assert whole.variance(values) == pytest.approx(single.variance(values))
    report = whole.perturb(values, np.random.default_rng(0))
    assert report.dense(np.int8).min() in (-1, 1)
    assert np.allclose(whole.estimate(report)[0], single.estimate((report.value[0] > 0).astype(int)))


def test_same_variance_as_sampling_the_one_bit_mechanism():
    multi = MultiBit(5.0, 20)
    sampled = SampledFeatures.with_total(OneBit, 5.0, 20)
    assert sampled.sampled == multi.bits
    assert sampled.variance(np.linspace(0, 1, 20)) == pytest.approx(multi.variance(np.linspace(0, 1, 20)))


def test_compact_and_dense_reports_rectify_equally():
    mechanism = MultiBit(6.0, 30)
    report = mechanism.perturb(np.random.default_rng(1).uniform(size=(10, 30)), np.random.default_rng(2))
    assert np.array_equal(mechanism.estimate(report), mechanism.estimate(report.dense(np.int8)))
    assert mechanism.estimate(report, np.float32).dtype == np.float32


def test_large_totals_are_allowed_when_shared_over_many_bits():
    # Nine per feature on 1,433 features, as in the private-graph-convolution table, is a total of 12,897.
    assert MultiBit(12_897.0, 1433, sampled=1433).epsilon_per_bit == pytest.approx(9.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0.0, "dimensions": 3},
        {"epsilon": math.nan, "dimensions": 3},
        {"epsilon": 1.0, "dimensions": 0},
        {"epsilon": 1.0, "dimensions": 3, "sampled": 4},
        {"epsilon": 1.0, "dimensions": 3, "sampled": 0},
        {"epsilon": 1.0, "dimensions": 3, "low": 1.0, "high": 1.0},
    ],
)
def test_impossible_parameters_are_refused(arguments):
    with pytest.raises(InputError):
        MultiBit(**arguments)


def test_wrong_shape_and_missing_values_are_refused():
    with pytest.raises(InputError, match="rows of 3"):
        MultiBit(1.0, 3).perturb(np.zeros((2, 4)))
    with pytest.raises(InputError, match="finite"):
        MultiBit(1.0, 3).perturb(np.array([0.0, np.nan, 1.0]))
