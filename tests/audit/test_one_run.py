from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hushgraph.audit.bounds import (
    gaussian_curve,
    loss_curve,
    one_run_bound,
    one_run_f_bound,
    p_value,
    refutes,
    right_guesses,
)
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Relation


def respond(epsilon: float, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    planted = rng.random(count) < 0.5
    lie = rng.random(count) < 1.0 / (1.0 + math.exp(epsilon))
    return (planted ^ lie) + 1e-9 * rng.standard_normal(count), planted


def test_without_delta_the_p_value_is_a_binomial_tail() -> None:
    assert p_value(100, 60, 45, 1.0, 0.0) == pytest.approx(stats.binom.sf(44, 60, 1 / (1 + math.exp(-1.0))))


def test_delta_only_makes_guesses_likelier_and_epsilon_too() -> None:
    values = [p_value(1000, 100, 80, 0.5, delta) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert values == sorted(values)
    over_epsilon = [p_value(1000, 100, 80, eps, 1e-6) for eps in (0.1, 0.5, 1.0, 2.0)]
    assert over_epsilon == sorted(over_epsilon)


def test_guesses_are_counted_on_both_ends() -> None:
    scores, planted = np.arange(10.0), np.arange(10) >= 5
    assert right_guesses(scores, planted, 0.4) == (4, 4)
    assert right_guesses(-scores, planted, 0.4) == (0, 4)


def test_randomized_response_is_bounded_tightly_and_validly() -> None:
    rng = np.random.default_rng(0)
    bounds = [one_run_bound(*respond(2.0, 4000, rng), 0.0) for _ in range(40)]
    assert np.mean(bounds) > 1.7
    assert sum(bound > 2.0 for bound in bounds) <= 7  # at most 5% each: more than 7 of 40 has probability 1e-3


def test_the_curve_bound_beats_the_pointwise_one_on_gaussians_and_stays_valid() -> None:
    rng = np.random.default_rng(1)
    planted = rng.random(4000) < 0.5
    scores = rng.standard_normal(4000) + 1.4 * planted
    found = one_run_f_bound(scores, planted, gaussian_curve, 10.0)
    assert 0.8 < found < 1.4
    from hushgraph.audit.bounds import gaussian_epsilon

    assert gaussian_epsilon(found, 1e-6) > one_run_bound(scores, planted, 1e-6)


def test_the_true_curve_is_rarely_refuted() -> None:
    rng, refuted = np.random.default_rng(2), 0
    for _ in range(200):
        planted = rng.random(500) < 0.5
        right, guesses = right_guesses(rng.standard_normal(500) + 0.8 * planted, planted, 0.3)
        refuted += refutes(gaussian_curve(0.8), 500, guesses, right, 0.05)
    assert refuted <= 22  # at most 5% each: more than 22 of 200 has probability below 1e-3


def test_a_privacy_loss_gives_the_same_curve_as_its_formula() -> None:
    exact = gaussian_curve(1.0)
    measured = loss_curve(PrivacyLoss(events.gaussian(1.0), Relation.ADD_OR_REMOVE))
    for agree in (0.05, 0.3, 0.5, 0.8, 0.99):
        assert measured(agree) == pytest.approx(exact(agree), abs=2e-3)
        assert measured(agree) <= exact(agree) + 1e-9  # never stricter than the truth


def test_all_guesses_right_refute_little_privacy_loss() -> None:
    assert refutes(gaussian_curve(0.5), 1000, 100, 100, 0.05)
    assert not refutes(gaussian_curve(0.5), 1000, 100, 55, 0.05)
