from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.local import (
    SCALARS,
    Duchi,
    OneBit,
    PerFeature,
    Piecewise,
    SampledFeatures,
    ThreeOutput,
    realized_epsilon,
)
from hushgraph.local.base import OsRandom
from hushgraph.local.vectors import best_sampled, sample_dimensions

KINDS = list(SCALARS.values())


@settings(max_examples=60, deadline=None)
@given(people=st.integers(0, 30), dimensions=st.integers(1, 60), data=st.data())
def test_sampled_features_are_different_sorted_and_in_range(people, dimensions, data):
    sampled = data.draw(st.integers(1, dimensions))
    index = sample_dimensions(people, dimensions, sampled, OsRandom())
    assert index.shape == (people, sampled)
    assert (np.diff(index, axis=1) > 0).all()
    assert ((index >= 0) & (index < dimensions)).all()


@pytest.mark.parametrize("sampled", [1, 2, 5, 8, 9])
def test_every_feature_is_equally_likely(sampled):
    # z-tests on 10 counts and 45 pair counts at 5 sigma; the seeds are fixed.
    n, d = 20_000, 10
    index = sample_dimensions(n, d, sampled, np.random.default_rng(sampled))
    chosen = np.zeros((n, d))
    np.put_along_axis(chosen, index.astype(int), 1.0, axis=1)
    rate = sampled / d
    assert np.abs((chosen.mean(axis=0) - rate) / np.sqrt(rate * (1 - rate) / n)).max() < 5
    pair = rate * (sampled - 1) / (d - 1)
    together = (chosen.T @ chosen / n)[np.triu_indices(d, 1)]
    assert np.abs((together - pair) / np.sqrt(pair * (1 - pair) / n + 1e-12)).max() < 5


@pytest.mark.parametrize("kind", KINDS)
def test_total_is_respected_and_estimates_are_unbiased(kind):
    # 7 x 12 z-tests of the mean at 5 sigma and a 3% test of the variance; the seeds are fixed.
    vector = SampledFeatures.with_total(kind, 3.0, 12, -1.0, 2.0, sampled=2)
    assert vector.epsilon == pytest.approx(3.0)
    assert vector.mechanism.epsilon == pytest.approx(1.5)
    value = np.linspace(-1, 2, 12)
    n = 30_000
    estimates = vector.estimate(vector.perturb(np.tile(value, (n, 1)), np.random.default_rng(KINDS.index(kind))))
    assert np.abs((estimates.mean(axis=0) - value) / np.sqrt(vector.variance(value) / n)).max() < 5
    ratio = ((estimates - value) ** 2).mean() / vector.variance(value).mean()
    assert abs(ratio - 1) < 0.03


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.2, 2.0, 6.0, 13.0])
def test_chosen_number_of_features_is_the_best(kind, epsilon):
    values = np.linspace(0, 1, 101)
    chosen = best_sampled(lambda share: kind(share), epsilon, 9)
    worst = [SampledFeatures(kind(epsilon / m), 9, m).variance(values).max() for m in range(1, 10)]
    assert worst[chosen - 1] <= min(worst) * (1 + 1e-9)


def test_per_feature_names_its_total():
    vector = PerFeature(OneBit(1.0), 1433)
    assert vector.epsilon == 1433.0
    assert (vector.parts, vector.one_part) == (1433, OneBit(1.0))
    assert PerFeature.with_total(OneBit, 3.0, 6).mechanism.epsilon == pytest.approx(0.5)
    report = vector.perturb(np.zeros((4, 1433)))
    assert report.shape == vector.estimate(report).shape == (4, 1433)


def test_sampling_beats_sending_everything_at_the_same_total():
    sampled = SampledFeatures.with_total(Piecewise, 1.0, 100)
    everything = PerFeature.with_total(Piecewise, 1.0, 100)
    assert sampled.variance(np.array(0.5)) < everything.variance(0.5)


VECTORS = [
    *(PerFeature(kind(0.7, -1.0, 1.0), 3) for kind in (OneBit, Duchi, ThreeOutput)),
    *(SampledFeatures(kind(0.7, -1.0, 1.0), 4, m) for kind in (OneBit, ThreeOutput) for m in (1, 2, 4)),
    PerFeature(Piecewise(1.0, -1.0, 1.0), 1),
]


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_epsilon_by_enumeration_of_every_report(vector):
    corners = [np.array(corner) for corner in itertools.product((-1.0, 0.2, 1.0), repeat=vector.dimensions)]
    assert realized_epsilon(vector, corners) == pytest.approx(vector.epsilon, abs=1e-9)
    assert realized_epsilon(vector) == pytest.approx(vector.epsilon, abs=1e-9)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_law_has_the_stated_mean_and_variance(vector):
    value = np.linspace(-0.8, 1.0, vector.dimensions)
    reports, probabilities = vector.law(value)
    estimates = vector.estimate(reports)
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities @ estimates == pytest.approx(value, abs=1e-9)
    assert probabilities @ (estimates - value) ** 2 == pytest.approx(vector.variance(value), rel=1e-9)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_log_ratios_of_the_parts_add_up_to_that_of_the_report(vector):
    high, low = np.linspace(1.0, 0.4, vector.dimensions), np.linspace(-0.2, -1.0, vector.dimensions)
    reports, top = vector.law(high)
    together = vector.log_ratio(reports, high, low).sum(axis=1)
    assert together == pytest.approx(np.log(top / vector.law(low)[1]), abs=1e-9)


def test_a_share_that_is_not_divided_is_caught():
    # The mistake: two features at the whole epsilon each.
    assert realized_epsilon(SampledFeatures(OneBit(1.0), 3, 2)) > 1.0 + 0.9


def test_refusals():
    with pytest.raises(InputError, match="sampled"):
        SampledFeatures(OneBit(1.0), 3, 4)
    with pytest.raises(InputError, match="rows of 3"):
        SampledFeatures(OneBit(1.0), 3, 1).perturb(np.zeros(4))
    with pytest.raises(InputError, match="dimensions"):
        PerFeature(OneBit(1.0), 0)
    with pytest.raises(InputError, match="single numbers"):
        PerFeature(PerFeature(OneBit(1.0), 2), 3)
    for epsilon in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="epsilon > 0"):
            SampledFeatures.with_total(OneBit, epsilon, 3)
