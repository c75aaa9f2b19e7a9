from __future__ import annotations

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.audit.family import Family, family_bound
from hushgraph.audit.gradients import observe_training
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import GradientStage, Plan
from hushgraph.privacy.units import Node, NodeReplace, Unit


def plan_of(unit: Unit, steps: int, std: float, rate: float) -> tuple[Plan, GradientStage]:
    stage = GradientStage("classifier", steps, std, 1.0, rate)
    return Plan("test", unit, hg.Budget(200.0, 1e-5), (stage,), unit), stage


def test_full_batches_separate_canaries_as_one_gaussian_does() -> None:
    plan, stage = plan_of(Node(), 16, 8.0, 1.0)
    seen = observe_training(plan, stage, 4000, NoiseSource.seeded(0), np.random.default_rng(0))
    # The log ratio of N(mu, 1) against N(0, 1) has mean +-mu^2/2 and variance mu^2; here mu = sqrt(16)/8 = 1/2.
    assert seen.poisson[0][seen.planted].mean() == pytest.approx(0.125, abs=0.06)
    assert seen.poisson[0][~seen.planted].mean() == pytest.approx(-0.125, abs=0.06)
    assert seen.poisson[0][~seen.planted].std() == pytest.approx(0.5, abs=0.04)


def test_replacement_separates_twice_as_far() -> None:
    plan, stage = plan_of(NodeReplace(), 16, 8.0, 1.0)
    seen = observe_training(plan, stage, 4000, NoiseSource.seeded(1), np.random.default_rng(1))
    # The ratio of N(mu, 1) against N(-mu, 1) is 2 mu x: mean +-2 mu^2 and deviation 2 mu.
    assert seen.poisson[0][seen.planted].mean() == pytest.approx(0.5, abs=0.12)
    assert seen.poisson[0][~seen.planted].mean() == pytest.approx(-0.5, abs=0.12)


def test_the_ratio_of_sampled_batches_is_a_likelihood_ratio() -> None:
    plan, stage = plan_of(Node(), 20, 2.0, 0.2)
    seen = observe_training(plan, stage, 4000, NoiseSource.seeded(2), np.random.default_rng(2))
    # A likelihood ratio has mean 1 where the canary is absent; its deviation here is below 0.6.
    assert np.exp(seen.poisson[0][~seen.planted]).mean() == pytest.approx(1.0, abs=0.08)
    assert seen.poisson[0][seen.planted].mean() > seen.poisson[0][~seen.planted].mean() + 0.1


@pytest.mark.parametrize(
    ("unit", "steps", "std", "rate", "canaries"),
    [(Node(), 40, 2.0, 0.25, 4000), (NodeReplace(), 40, 2.0, 0.25, 4000), (Node(), 300, 1.0, 0.02, 10_000)],
)
def test_a_few_thousand_canaries_come_close_to_what_is_charged(
    unit: Unit, steps: int, std: float, rate: float, canaries: int
) -> None:
    plan, stage = plan_of(unit, steps, std, rate)
    family = Family([stage], unit)
    bounds = []
    for seed in range(3):
        seen = observe_training(plan, stage, canaries, NoiseSource.seeded(seed), np.random.default_rng(seed))
        bounds.append(family_bound(seen.poisson, seen.planted, family, 1e-5))
    # The median of three exceeds the truth with a chance of about 1 in 100.
    assert 0.75 * plan.epsilon < np.median(bounds) <= plan.epsilon
