from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.audit.family import Family, family_bound, one_run_family_bound
from hushgraph.mechanisms import Gradient, NeighborSum
from hushgraph.mechanisms.canaries import SCALES
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import DirectedEdge, Node

DELTA = 1e-5


def normal_ratios(mu: float, canaries: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood ratios of N(mu, 1) against N(0, 1), and the coins."""
    coins = rng.random(canaries) < 0.5
    scores = rng.standard_normal(canaries) + mu * coins
    return np.stack([(mu * scores - mu**2 / 2.0) / scale**2 for scale in SCALES]), coins


def gaussian_family(mu: float) -> Family:
    return Family([Stage("sums", NeighborSum(), scale=1.0 / mu)], DirectedEdge())


def test_scaling_the_noise_scales_a_gaussian() -> None:
    family = gaussian_family(0.8)
    assert family.epsilon(2.0, DELTA) == pytest.approx(gaussian_family(0.4).epsilon(1.0, DELTA))
    # The total variation between N(mu, 1) and N(0, 1) is 2 Phi(mu/2) - 1.
    assert family.distance(1.0) == pytest.approx(math.erf(0.4 / math.sqrt(2.0)), rel=1e-6)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_bounds_come_close_and_rarely_exceed_the_truth(mu: float) -> None:
    family = gaussian_family(mu)
    truth = family.epsilon(1.0, DELTA)
    found = [family_bound(*normal_ratios(mu, 4000, np.random.default_rng(s)), family, DELTA) for s in range(40)]
    assert np.median(found) > (0.6 if mu < 0.5 else 0.85) * truth
    assert sum(bound > truth for bound in found) <= 7  # Binomial(40, 0.05) exceeds 7 with probability 1e-3


@pytest.mark.parametrize("less", [0.5, 2.0])
def test_a_family_that_is_off_by_a_scale_finds_the_scale(less: float) -> None:
    """Scores of one mechanism, judged against a plan that states another noise: the bound is the mechanism's."""
    ratios, coins = normal_ratios(1.0, 20_000, np.random.default_rng(0))
    truth = gaussian_family(1.0).epsilon(1.0, DELTA)
    found = family_bound(ratios, coins, gaussian_family(less), DELTA)
    assert 0.9 * truth < found < truth


def test_scores_that_say_nothing_prove_nothing() -> None:
    rng = np.random.default_rng(3)
    coins = rng.random(4000) < 0.5
    family = Family([Stage("steps", Gradient(1.0, 0.1, 100), scale=2.0)], Node())
    assert family_bound(rng.standard_normal(4000), coins, family, DELTA) < 0.2 * family.epsilon(1.0, DELTA)


def test_needing_no_independence_costs_but_stays_valid() -> None:
    ratios, coins = normal_ratios(1.0, 4000, np.random.default_rng(1))
    family = gaussian_family(1.0)
    loose = one_run_family_bound(ratios[0], coins, family, DELTA)
    assert 0.4 * family.epsilon(1.0, DELTA) < loose < family_bound(ratios, coins, family, DELTA)


def test_a_mechanism_without_noise_is_bounded_by_the_last_scale_looked_at() -> None:
    coins = np.random.default_rng(0).random(2000) < 0.5
    perfect = np.where(coins, 1.0, -1.0)
    family = gaussian_family(1.0)
    assert family_bound(perfect, coins, family, DELTA) > 4.0 * family.epsilon(1.0, DELTA)
