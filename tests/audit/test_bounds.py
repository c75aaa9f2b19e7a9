from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.audit.bounds import (
    gaussian_bound,
    gaussian_epsilon,
    gaussian_mu_bound,
    threshold_bound,
)
from hushgraph.errors import InputError


def draw(mu: float, count: int, rng: np.random.Generator, std: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    planted = rng.random(count) < 0.5
    return std * (rng.standard_normal(count) + mu * planted), planted


def test_the_limit_of_mu_exceeds_the_truth_as_often_as_the_confidence_says() -> None:
    rng = np.random.default_rng(1)
    above = sum(gaussian_mu_bound(*draw(0.5, 400, rng), 0.95) > 0.5 for _ in range(200))
    # Binomial(200, 0.05): outside 1..22 with probability below 1e-3.
    assert 1 <= above <= 22


def test_the_limit_of_mu_does_not_depend_on_the_unit_of_the_scores() -> None:
    scores, planted = draw(0.8, 1000, np.random.default_rng(2))
    assert gaussian_mu_bound(7.0 * scores, planted) == pytest.approx(gaussian_mu_bound(scores, planted), rel=1e-6)


def test_half_the_noise_doubles_mu() -> None:
    scores, planted = draw(1.0, 20_000, np.random.default_rng(3), std=1.0)
    halved = scores - 0.5 * (scores - planted)
    assert gaussian_mu_bound(halved, planted) == pytest.approx(2 * gaussian_mu_bound(scores, planted), rel=0.05)


def test_noise_free_scores_give_infinity_and_silent_ones_nothing() -> None:
    planted = np.arange(10) < 5
    assert gaussian_mu_bound(planted.astype(float), planted) == math.inf
    assert gaussian_mu_bound(np.zeros(10), planted) == 0.0
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_epsilon(0.0, 1e-6) == 0.0


def test_the_bound_of_a_gaussian_release_is_close_and_below() -> None:
    mu = 1.424  # epsilon 8 at delta 1e-7
    scores, planted = draw(mu, 10_000, np.random.default_rng(6))
    assert 7.0 < gaussian_bound(scores, planted, 1e-7) < 8.0


def test_thresholds_bound_randomized_response_and_never_much_more_than_the_truth() -> None:
    rng = np.random.default_rng(5)
    bounds = []
    for _ in range(20):
        planted = rng.random(4000) < 0.5
        lie = rng.random(4000) < 1.0 / (1.0 + math.exp(2.0))
        bounds.append(threshold_bound((planted ^ lie).astype(float), planted, 0.0))
    assert np.mean(bounds) > 1.5
    assert sum(bound > 2.0 for bound in bounds) <= 5  # Binomial(20, 0.05) exceeds 5 with probability 3e-4


@pytest.mark.parametrize(
    ("scores", "planted", "confidence"),
    [
        (np.zeros(4), np.array([True] * 4), 0.95),
        (np.array([np.nan, 0, 0, 0]), np.array([True, True, False, False]), 0.95),
        (np.zeros(4), np.array([True, True, False, False]), 1.0),
        (np.zeros(3), np.array([True, True, False, False]), 0.95),
    ],
)
def test_scores_that_bound_nothing_are_refused(scores: np.ndarray, planted: np.ndarray, confidence: float) -> None:
    with pytest.raises(InputError, match="expected"):
        gaussian_bound(scores, planted, 1e-6, confidence)
