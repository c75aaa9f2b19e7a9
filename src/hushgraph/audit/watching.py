"""Which canaries go with which releases: everything a plan does is run on canaries with one set of coins.

A canary stands for one unit, and so its coin is the same in every stage. What the stages say about it adds up: the sum
of their log likelihood ratios is the best score there is for the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hushgraph.audit.canaries import aggregation_stages, observe_sums, plant_coins
from hushgraph.audit.family import SCALES
from hushgraph.audit.gradients import GradientScores, most_gradient_canaries, observe_training
from hushgraph.audit.label_canaries import label_stages, most_label_canaries, observe_label_sums, plant_label_coins
from hushgraph.audit.layout import Evidence, flip_coins, most_canaries
from hushgraph.audit.rooted import most_rooted_canaries, observe_rooted_training
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.label_sum import LabelSumStage
from hushgraph.privacy.plan import (
    AggregationStage,
    GradientStage,
    LocalStage,
    Plan,
    RootedGradientStage,
    Stage,
    UnprotectedStage,
)

KNOWN = (AggregationStage, LabelSumStage, GradientStage, RootedGradientStage, LocalStage, UnprotectedStage)


@dataclass(frozen=True)
class Watched:
    """What some stages said about every canary.

    `ratios` are log likelihood ratios, one row for each of `family.SCALES`. Sums have `normal` scores of variance 1 as
    well; gradients one more ratio for `repeated` batches, where the plan draws batches at all.
    """

    name: str
    stages: Sequence[Stage]
    ratios: np.ndarray
    normal: np.ndarray | None = None
    repeated: np.ndarray | None = None


def watch(plan: Plan, canaries: int, noise: NoiseSource, rng: np.random.Generator) -> tuple[np.ndarray, list[Watched]]:
    """The coins, and what each kind of release of `plan` said about the canaries."""
    if not canary_stages(plan):
        return np.zeros(0, dtype=bool), []
    coins = flip_coins(min([canaries, *_room(plan)]), rng)
    return coins, list(_watch(plan, coins, noise, rng))


def canary_stages(plan: Plan) -> list[Stage]:
    """The stages that are watched with canaries: sums, and gradients where an example is part of the unit."""
    sums = (AggregationStage, LabelSumStage, RootedGradientStage)
    return [s for s in plan.stages if isinstance(s, sums) or (isinstance(s, GradientStage) and _costs(plan))]


def _costs(plan: Plan) -> bool:
    return plan.charged_unit.examples_touched() > 0


def _room(plan: Plan) -> Iterator[int]:
    """How many canaries each stage has room for."""
    if aggregation_stages(plan):
        yield most_canaries(plan.charged_unit)
    if label_stages(plan):
        yield most_label_canaries(plan)
    for stage in canary_stages(plan):
        if isinstance(stage, GradientStage):
            yield most_gradient_canaries(stage)
        if isinstance(stage, RootedGradientStage):
            yield most_rooted_canaries(plan, stage)


def _watch(plan: Plan, coins: np.ndarray, noise: NoiseSource, rng: np.random.Generator) -> Iterator[Watched]:
    kind = "node" if any(isinstance(s, RootedGradientStage) for s in plan.stages) or _costs(plan) else "edge"
    if sums := aggregation_stages(plan):
        seen = observe_sums(plan, plant_coins(plan.charged_unit, coins, rng), noise)
        yield _of_sums(f"{kind} canaries in noisy sums", sums, seen)
    if labels := label_stages(plan):
        seen = observe_label_sums(plan, plant_label_coins(plan, coins, rng), noise)
        yield _of_sums(f"{kind} canaries in sums of labels", labels, seen)
    for stage in canary_stages(plan):
        own = noise.stream(f"audit/{stage.name}")
        if isinstance(stage, GradientStage):
            yield _of_steps("gradient canaries", stage, observe_training(plan, stage, coins, own, rng))
        if isinstance(stage, RootedGradientStage):
            yield _of_steps("rooted canaries", stage, observe_rooted_training(plan, stage, coins, own, rng))


def _of_sums(name: str, stages: Sequence[Stage], seen: Evidence) -> Watched:
    return Watched(name, stages, np.stack([seen.ratios(scale) for scale in SCALES]), normal=seen.scores())


def _of_steps(kind: str, stage: GradientStage | RootedGradientStage, seen: GradientScores) -> Watched:
    draws = stage.sample_rate < 1.0 and bool(seen.periodic.any())
    return Watched(f"{kind} in '{stage.name}'", [stage], seen.poisson, repeated=seen.periodic if draws else None)
