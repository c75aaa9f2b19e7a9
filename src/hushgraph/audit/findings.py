"""From what stages said about canaries to findings: every bound that fits the evidence, against what is claimed.

First comes the bound for everything together, then stage by stage. What is claimed for some stages is priced for the
unit that the run states; bounds are taken for the unit that the canaries are changes of. Proofs: docs/proofs/audit.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hushgraph.audit import bounds
from hushgraph.audit.family import Family, family_bound, one_run_family_bound
from hushgraph.audit.result import Bound, Finding
from hushgraph.mechanisms.canaries import Evidence
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit

FALSE_ALARM = 1e-4
"""Of one finding: how often a correct mechanism may be called broken."""
_MOST_PARTS, _FEWEST_CANARIES = 2_000_000, 200
_LARGEST_MU = 20.0
_ROUNDING = 1e-9

Seen = tuple[Stage, Evidence]
AtLevel = Callable[[float], float]
"""A lower bound on epsilon for a confidence."""


@dataclass(frozen=True)
class Judge:
    """Weighs evidence about the stages of one plan, for one set of coins."""

    plan: Plan
    coins: np.ndarray
    confidence: float

    def findings(self, seen: Sequence[Seen]) -> list[Finding]:
        """All findings about stages with canaries."""
        if len(seen) == 1:
            return self._judged([seen[0][0]], seen[0][1], scaled=seen[0][1].parts is None, alone=True)
        found = []
        if seen:
            every = [evidence for _, evidence in seen]
            scaled = all(one.parts is None for one in every)
            found = self._judged([stage for stage, _ in seen], Evidence.together(every), scaled=scaled, alone=True)
        for stage, evidence in seen:
            found += self._judged([stage], evidence, scaled=evidence.parts is None, alone=False)
        return found

    def _judged(self, stages: Sequence[Stage], evidence: Evidence, *, scaled: bool, alone: bool) -> list[Finding]:
        """Every bound that fits. `scaled`: more noise would tell less; `alone`: with the bounds that assume less."""
        if evidence.parts is not None:
            found = self._of_parts(evidence.parts)
        elif not scaled:
            found = {Bound.ONE_RUN_PURE: self._one_run_pure(evidence.ratios)}
        elif evidence.normal is not None:
            found = self._of_normal(evidence.normal, alone)
        else:
            found = self._of_ratios(evidence, Family(stages, self.plan.unit), alone)
        claimed, parts = price(stages, self.plan.stated_unit, self.delta), _columns(evidence.parts)
        return [
            Finding(
                bound=bound,
                stages=tuple(stage.name for stage in stages),
                claimed=claimed,
                lower_bound=at(self.confidence),
                strict_bound=at(1.0 - FALSE_ALARM),
                canaries=len(self.coins),
                planted=evidence.planted,
                parts=parts,
            )
            for bound, at in found.items()
        ]

    @property
    def delta(self) -> float:
        """The delta of the plan."""
        return self.plan.budget.definite_delta

    def _of_normal(self, scores: np.ndarray, alone: bool) -> dict[Bound, AtLevel]:
        """Sums with Gaussian noise: scores are normal, which gives the sharpest bound."""
        coins, delta = self.coins, self.delta

        def dependent(level: float) -> float:
            mu = bounds.one_run_f_bound(scores, coins, bounds.gaussian_curve, _LARGEST_MU, level)
            return bounds.gaussian_epsilon(mu, delta)

        found: dict[Bound, AtLevel] = {Bound.GAUSSIAN: lambda level: bounds.gaussian_bound(scores, coins, delta, level)}
        if alone:
            found[Bound.ONE_RUN_CURVE] = dependent
            found[Bound.ONE_RUN] = lambda level: bounds.one_run_bound(scores, coins, delta, level)
            found[Bound.THRESHOLD] = lambda level: bounds.threshold_bound(scores, coins, delta, level)
        return found

    def _of_ratios(self, evidence: Evidence, family: Family, alone: bool) -> dict[Bound, AtLevel]:
        """Anything else: the curve of the mechanism itself, with its noise as the unknown."""
        coins, delta, first = self.coins, self.delta, np.atleast_2d(evidence.ratios)[0]

        def curve(ratios: np.ndarray) -> AtLevel:
            return lambda level: family_bound(ratios, coins, family, delta, level)

        found = {Bound.CURVE: curve(evidence.ratios)}
        if alone:
            found[Bound.ONE_RUN_CURVE] = lambda level: one_run_family_bound(first, coins, family, delta, level)
            found[Bound.ONE_RUN] = lambda level: bounds.one_run_bound(first, coins, delta, level)
        if evidence.repeated is not None:
            found[Bound.REPEATED] = curve(evidence.repeated)
        return found

    def _of_parts(self, parts: np.ndarray) -> dict[Bound, AtLevel]:
        """Reports: a bound for one part times their number, and one for the sum that assumes nothing about parts."""
        columns = _columns(parts)
        people = min(len(parts), max(_FEWEST_CANARIES, _MOST_PARTS // columns))
        each, named = parts[:people].reshape(-1), np.repeat(self.coins[:people], columns)

        def threshold(level: float) -> float:
            return columns * bounds.threshold_bound(each, named, 0.0, level)

        if columns == 1:
            return {Bound.THRESHOLD: threshold}
        return {Bound.PARTS: threshold, Bound.ONE_RUN_PURE: self._one_run_pure(parts.sum(axis=1))}

    def _one_run_pure(self, ratios: np.ndarray) -> AtLevel:
        return lambda level: bounds.one_run_bound(ratios, self.coins, 0.0, level)


def laws(plan: Plan, stages: Sequence[Stage]) -> list[Finding]:
    """What stages realize whose laws can be enumerated; all of them together first. No confidence is needed."""
    each = [(stage, _realized(stage, plan.unit)) for stage in stages]
    known = [(stage, realized) for stage, realized in each if realized is not None]
    groups = [[one] for one in known]
    if len(known) > 1:
        groups.insert(0, known)
    found = []
    for group in groups:
        claimed = price([stage for stage, _ in group], plan.stated_unit, plan.budget.definite_delta)
        realized = sum(epsilon for _, epsilon in group)
        names = tuple(stage.name for stage, _ in group)
        found.append(Finding(Bound.LAW, names, claimed, realized, within_rounding(realized, claimed)))
    return found


def price(stages: Sequence[Stage], unit: Unit, delta: float) -> float:
    """What these stages cost together, for `unit`."""
    return PrivacyLoss(events.composed([stage.event(unit) for stage in stages]), unit.relation).epsilon(delta)


def within_rounding(realized: float, claimed: float) -> float:
    """`realized`, or the claim where it is above it by rounding alone: sums of many numbers round."""
    return realized if realized > claimed * (1.0 + _ROUNDING) else min(realized, claimed)


def _realized(stage: Stage, unit: Unit) -> float | None:
    assert stage.scale is not None
    one = stage.mechanism.realized(unit, stage.scale)
    return None if one is None else stage.count * one


def _columns(parts: np.ndarray | None) -> int:
    return 1 if parts is None else int(parts.shape[1])
