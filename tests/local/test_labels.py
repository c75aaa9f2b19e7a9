from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import RandomizedResponse, UnaryEncoding, realized_epsilon

MAKERS = {
    "k-rr": RandomizedResponse,
    "symmetric": lambda epsilon, classes: UnaryEncoding(epsilon, classes, "symmetric"),
    "optimized": lambda epsilon, classes: UnaryEncoding(epsilon, classes, "optimized"),
}
N = 40_000


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
def test_epsilon_by_enumeration(name, classes, epsilon):
    mechanism = MAKERS[name](epsilon, classes)
    assert realized_epsilon(mechanism) == pytest.approx(epsilon, rel=1e-9)
    assert realized_epsilon(MAKERS[name](epsilon * 1.5, classes)) > epsilon * 1.4


@pytest.mark.parametrize("name", MAKERS)
def test_law_has_the_stated_mean_and_variance(name):
    mechanism = MAKERS[name](1.2, 4)
    for label in range(4):
        outputs, probabilities = mechanism.law(label)
        estimates = mechanism.estimate(outputs)
        assert probabilities.sum() == pytest.approx(1.0)
        assert probabilities @ estimates == pytest.approx(np.eye(4)[label], abs=1e-12)
        spread = probabilities @ (estimates - np.eye(4)[label]) ** 2
        assert spread == pytest.approx(mechanism.variance(np.array(label)))


@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_randomized_response_frequencies_two_sided(scale, accepted):
    # Chi-square at p = 1e-6 on one draw of 40,000 reports.
    reports = RandomizedResponse(1.0, 5).perturb(np.full(N, 2), np.random.default_rng(1))
    counts = np.bincount(reports, minlength=5)
    expected = N * RandomizedResponse(scale, 5).law(2)[1]
    assert (stats.chisquare(counts, expected).pvalue > 1e-6) == accepted


@pytest.mark.parametrize("kind", ["symmetric", "optimized"])
@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_unary_bits_two_sided(kind, scale, accepted):
    # All 2^3 bit rows, chi-square at p = 1e-6: also rejects bits that are drawn together.
    reports = UnaryEncoding(1.0, 3, kind).perturb(np.full(N, 1), np.random.default_rng(2))
    counts = np.bincount(reports @ np.array([4, 2, 1]), minlength=8)
    expected = N * UnaryEncoding(scale, 3, kind).law(1)[1]
    assert (stats.chisquare(counts, expected).pvalue > 1e-6) == accepted


@pytest.mark.parametrize("name", MAKERS)
def test_frequency_estimate_is_unbiased(name):
    rng = np.random.default_rng(3)
    labels = rng.choice(4, size=N, p=[0.1, 0.2, 0.3, 0.4])
    mechanism = MAKERS[name](1.0, 4)
    error = mechanism.estimate(mechanism.perturb(labels, rng)).mean(axis=0) - np.bincount(labels) / N
    # 3 x 4 z-tests at 5 sigma.
    assert (np.abs(error) < 5 * np.sqrt(mechanism.variance(labels).mean(axis=0) / N)).all()


def test_transition_matrix_is_a_law_and_matches_the_formula():
    mechanism = RandomizedResponse(1.0, 6)
    assert mechanism.transition.sum(axis=1) == pytest.approx(np.ones(6))
    assert mechanism.true_probability == pytest.approx(np.e / (np.e + 5))


def test_optimized_beats_symmetric_for_absent_classes():
    optimized, symmetric = UnaryEncoding(1.0, 20), UnaryEncoding(1.0, 20, "symmetric")
    assert optimized.variance(np.array(0))[5] < symmetric.variance(np.array(0))[5]


def test_shapes():
    assert RandomizedResponse(1.0, 3).perturb(2).shape == ()
    assert RandomizedResponse(1.0, 3).perturb(np.zeros((2, 5), dtype=int)).shape == (2, 5)
    assert UnaryEncoding(1.0, 3).perturb(np.zeros(5, dtype=int)).shape == (5, 3)
    assert UnaryEncoding(1.0, 3).perturb(1).shape == (3,)


@pytest.mark.parametrize("bad", [np.array([3]), np.array([-1]), np.array([0.5]), np.array([np.nan])])
@pytest.mark.parametrize("name", MAKERS)
def test_labels_outside_the_class_list_are_refused(name, bad):
    with pytest.raises(InputError):
        MAKERS[name](1.0, 3).perturb(bad)


@pytest.mark.parametrize("name", MAKERS)
def test_bad_parameters_are_refused(name):
    for epsilon, classes in ((0.0, 3), (np.inf, 3), (1.0, 1)):
        with pytest.raises(InputError):
            MAKERS[name](epsilon, classes)
    with pytest.raises(InputError, match="kind"):
        UnaryEncoding(1.0, 3, "other")


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_log_ratios_are_those_of_the_law(name, classes):
    mechanism = MAKERS[name](1.3, classes)
    outputs, top = mechanism.law(1)
    ratios = mechanism.log_ratio(outputs, *mechanism.extreme_inputs())
    assert ratios[:, 0] == pytest.approx(np.log(top / mechanism.law(0)[1]), abs=1e-12)
    assert ratios.max() == pytest.approx(1.3)


@pytest.mark.parametrize("kind", ["symmetric", "optimized"])
def test_two_labels_differ_in_two_bits_whatever_the_number_of_classes(kind):
    many = UnaryEncoding(0.9, 500, kind)
    assert many.one_part == UnaryEncoding(0.9, 2, kind)
    assert realized_epsilon(many.one_part) == pytest.approx(0.9, abs=1e-12)
    assert np.abs(many.log_ratio(many.perturb(np.full(300, 7)), 7, 3)).max() <= 0.9 + 1e-9
