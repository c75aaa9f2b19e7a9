"""Plans of a few stages, and what their canaries say, for the tests of audits."""

from __future__ import annotations

import numpy as np

from hushgraph.audit.run import VaultMaker
from hushgraph.mechanisms import Gradient, RootedGradient
from hushgraph.mechanisms.canaries import Evidence, flip_coins
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit

SIZES = Metadata(20_000, 15_000, num_edges=1_000_000)
"""Public sizes of a large graph."""
PEOPLE = Metadata(500, 250, 125, 125, 12, 5, 2000)
"""Public sizes of a small study with twelve features and five classes."""


def plan_of(unit: Unit, *stages: Stage, delta: float = 1e-5) -> Plan:
    """A plan of stages that have their noise already."""
    return Plan("test", SIZES, unit, Budget(500.0, delta), stages)


def sums_plan(unit: Unit, mechanism: Mechanism, count: int, multiplier: float) -> Plan:
    """`count` sums with noise of `multiplier` times their sensitivity."""
    return plan_of(unit, Stage("sums", mechanism, count, scale=multiplier * mechanism.sensitivity(unit)), delta=1e-6)


def gradient_plan(unit: Unit, steps: int, scale: float, rate: float) -> Plan:
    """Private training with clip norm 1."""
    return plan_of(unit, Stage("classifier", Gradient(1.0, rate, steps), scale=scale))


def rooted_plan(unit: Unit, steps: int, scale: float, rate: float, degree: int, layers: int) -> Plan:
    """Private training on roots with clip norm 1."""
    return plan_of(unit, Stage("network", RootedGradient(1.0, rate, steps, degree, layers), scale=scale))


def weighted_plan(unit: Unit, steps: int, scale: float, rate: float, support: int) -> Plan:
    """Private training on rows of others with clip norm 1."""
    return plan_of(unit, Stage("network", WeightedGradient(1.0, rate, steps, support), scale=scale))


def observed(plan: Plan, canaries: int, seed: int, noise: NoiseSource | None = None) -> tuple[np.ndarray, Evidence]:
    """The coins, and what the only stage of `plan` said about them."""
    (stage,), rng = plan.stages, np.random.default_rng(seed)
    coins = flip_coins(min(canaries, stage.mechanism.most_canaries(stage, plan.unit)), rng)
    maker = VaultMaker(plan, stage, noise if noise is not None else NoiseSource.seeded(seed))
    evidence = stage.mechanism.canary(stage, plan.unit, coins, maker, rng)
    assert evidence is not None
    return coins, evidence
