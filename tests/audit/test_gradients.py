from __future__ import annotations

import numpy as np
import pytest

from audit_plans import gradient_plan, observed
from hushgraph.audit.family import Family, family_bound
from hushgraph.privacy.units import Node, NodeReplace, Unit


def test_full_batches_separate_canaries_as_one_gaussian_does() -> None:
    coins, evidence = observed(gradient_plan(Node(), 16, 8.0, 1.0), 4000, seed=0)
    ratio = evidence.ratios[0]
    # The log ratio of N(mu, 1) against N(0, 1) has mean +-mu^2/2 and variance mu^2; here mu = sqrt(16)/8 = 1/2.
    assert ratio[coins].mean() == pytest.approx(0.125, abs=0.06)
    assert ratio[~coins].mean() == pytest.approx(-0.125, abs=0.06)
    assert ratio[~coins].std() == pytest.approx(0.5, abs=0.04)
    assert evidence.repeated is None  # nothing is drawn that could repeat


def test_replacement_separates_twice_as_far() -> None:
    coins, evidence = observed(gradient_plan(NodeReplace(), 16, 8.0, 1.0), 4000, seed=1)
    # The ratio of N(mu, 1) against N(-mu, 1) is 2 mu x: mean +-2 mu^2 and deviation 2 mu.
    assert evidence.ratios[0][coins].mean() == pytest.approx(0.5, abs=0.12)
    assert evidence.ratios[0][~coins].mean() == pytest.approx(-0.5, abs=0.12)


def test_the_ratio_of_sampled_batches_is_a_likelihood_ratio() -> None:
    coins, evidence = observed(gradient_plan(Node(), 20, 2.0, 0.2), 4000, seed=2)
    ratio = evidence.ratios[0]
    # A likelihood ratio has mean 1 where the canary is absent; its deviation here is below 0.6.
    assert np.exp(ratio[~coins]).mean() == pytest.approx(1.0, abs=0.08)
    assert ratio[coins].mean() > ratio[~coins].mean() + 0.1
    assert evidence.repeated is not None


@pytest.mark.parametrize(
    ("unit", "steps", "scale", "rate", "canaries"),
    [(Node(), 40, 2.0, 0.25, 4000), (NodeReplace(), 40, 2.0, 0.25, 4000), (Node(), 300, 1.0, 0.02, 10_000)],
)
def test_a_few_thousand_canaries_come_close_to_what_is_charged(
    unit: Unit, steps: int, scale: float, rate: float, canaries: int
) -> None:
    plan = gradient_plan(unit, steps, scale, rate)
    bounds = []
    for seed in range(3):
        coins, evidence = observed(plan, canaries, seed)
        bounds.append(family_bound(evidence.ratios, coins, Family(plan.stages, unit), 1e-5))
    # Seeded. The median of three exceeds the truth with a chance of about 1 in 100.
    assert 0.75 * plan.epsilon < np.median(bounds) <= plan.epsilon


def test_fewer_canaries_are_watched_through_many_steps() -> None:
    few, many = (gradient_plan(Node(), steps, 1.0, 0.1).stages[0] for steps in (100, 10_000))
    assert many.mechanism.most_canaries(many, Node()) == 2_000
    assert few.mechanism.most_canaries(few, Node()) == 200_000
