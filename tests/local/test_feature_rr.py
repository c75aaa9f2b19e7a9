from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.local import FeatureRR, from_dict, realized_epsilon, unified_scores
from hushgraph.local.feature_rr import LEAST_EPSILON, PARTS_OF_ONE, bin_law


def as_published(epsilon: float, bins: int) -> np.ndarray:
    """Eqs 8 and 9 with sigma = (k - 1) / (k eps), term by term."""
    sigma = (bins - 1) / (bins * epsilon)
    table = np.array([[math.exp(-abs(u - t) / (bins * sigma)) for u in range(bins)] for t in range(bins)])
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("bins", [2, 3, 10, 100])
def test_the_law_is_the_published_one_and_realizes_its_epsilon(epsilon, bins):
    law = bin_law(epsilon, bins)
    assert (law.sum(axis=1) == PARTS_OF_ONE).all()
    assert law / PARTS_OF_ONE == pytest.approx(as_published(epsilon, bins), rel=1e-9)
    realized = np.log(law.max(axis=0) / law.min(axis=0)).max()
    assert epsilon - 1e-9 < realized <= epsilon


@settings(max_examples=150, deadline=None)
@given(epsilon=st.floats(1e-12, 30.0), bins=st.integers(2, 60))
def test_whole_numbers_never_exceed_the_claim(epsilon, bins):
    # The comparison is exact: a / b <= e^epsilon in whole numbers, with e^epsilon rounded down.
    law = [[int(part) for part in row] for row in bin_law(epsilon, bins)]
    bound = int(math.exp(epsilon) * (1 - 2**-50) * 2**80) if epsilon >= LEAST_EPSILON else 2**80
    for column in zip(*law):
        assert max(column) << 80 <= min(column) * bound


def test_every_vector_of_bins_enumerated():
    mechanism = FeatureRR(2.0, (0.5, 0.3, 0.2), bins=4)
    middles = (np.arange(4) + 0.5) / 4
    vectors = [np.array(vector) for vector in itertools.product(middles, repeat=3)]
    assert realized_epsilon(mechanism, vectors) == pytest.approx(2.0, abs=1e-9)
    assert mechanism.realized_by_feature() == pytest.approx((1.0, 0.6, 0.4), abs=1e-9)
    assert sum(mechanism.epsilons) <= 2.0
    for vector in vectors[::7]:
        assert mechanism.law(vector)[1].sum() == pytest.approx(1.0)


def test_a_scale_without_the_bins_is_caught():
    # The mistake: exp(-|u - t| eps) instead of exp(-|u - t| eps / (k - 1)).
    distance = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    wrong = np.exp(-distance * 1.0)
    wrong /= wrong.sum(axis=1, keepdims=True)
    assert np.log(wrong.max(axis=0) / wrong.min(axis=0)).max() > 3.9


@pytest.mark.parametrize("bins", [2, 7, 20])
def test_draws_follow_the_law_and_not_another(bins):
    # Chi-square over the bins of one feature at 5 sigma; the seed is fixed.
    mechanism = FeatureRR(3.0, (0.7, 0.3), bins, low=-1.0, high=1.0)
    people, value = 40_000, np.array([-0.4, 0.9])
    report = mechanism.perturb(np.tile(value, (people, 1)), np.random.default_rng(bins))

    def distance(other: FeatureRR, feature: int) -> float:
        chances = other.laws[feature, other.bins_of(value)[0, feature]] / PARTS_OF_ONE
        seen = np.bincount(report[:, feature], minlength=bins)
        return float(((seen - people * chances) ** 2 / (people * chances)).sum())

    limit = (bins - 1) + 5 * math.sqrt(2 * (bins - 1)) + 10
    for feature in (0, 1):
        assert distance(mechanism, feature) < limit
        for wrong in (2 / 3, 3 / 2):
            assert distance(FeatureRR(3.0 * wrong, (0.7, 0.3), bins, -1.0, 1.0), feature) > limit


def test_stated_bias_and_variance_are_those_of_the_law():
    mechanism = FeatureRR(2.5, (0.2, 0.8), bins=5, low=2.0, high=4.0)
    value = np.array([2.1, 3.7])
    reports, chances = mechanism.law(value)
    estimates = mechanism.estimate(reports)
    mean = chances @ estimates
    assert mean - value == pytest.approx(mechanism.bias(value)[0], abs=1e-9)
    assert chances @ (estimates - mean) ** 2 == pytest.approx(mechanism.variance(value)[0], rel=1e-9)
    assert estimates.min() >= 2.0
    assert estimates.max() <= 4.0


def test_scores_by_the_published_formula():
    importance, sensitivity = [3.0, -1.0, 0.0], [0.0, 1.0, -1.0]
    alpha, beta = np.array([0.75, 0.25, 0.0]), np.array([0.0, 0.5, 0.5])
    theta = 0.4 * alpha + 0.6 * (0.0 + (0.5 - beta))
    assert unified_scores(importance, sensitivity, 0.4) == pytest.approx(theta / theta.sum())
    assert unified_scores([1, 1], [0, 0], 0.5) == (0.5, 0.5)
    with pytest.raises(InputError, match="as many importances"):
        unified_scores([1, 1], [1, 1, 1])
    with pytest.raises(InputError, match="average over records"):
        unified_scores(np.ones((4, 2)), [1, 1])


def test_a_feature_without_a_score_is_not_looked_at():
    mechanism = FeatureRR(1.0, (1.0, 0.0), bins=3)
    assert (mechanism.laws[1] == mechanism.laws[1, 0]).all()
    assert mechanism.realized_by_feature()[1] == 0.0


def test_parameters_are_checked_together_and_read_back():
    with pytest.raises(InputError, match=r"(?s)bins.*sum to 1"):
        FeatureRR(1.0, (0.5, 0.6), bins=1)
    with pytest.raises(InputError, match="for one feature"):
        FeatureRR(60.0, (0.9, 0.1))
    mechanism = FeatureRR(1.0, (0.25, 0.75), 6, -2.0, 3.0)
    assert from_dict(mechanism.as_dict()) == mechanism
    assert FeatureRR.even(1.0, 4).epsilons == (0.25,) * 4
