"""The record of a run against its plan, field by field: no canary is needed to see that they do not fit.

The record is the run's certificate. Each charge that it lists must be the planned one, and what it claims must cover
what the plan, with the noise on record, costs for the unit and the delta that it states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hushgraph.audit.findings import price, within_rounding
from hushgraph.audit.result import Bound, Finding, Reason, Skipped
from hushgraph.errors import InputError
from hushgraph.ledger.certificate import Certificate, Charge
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class Record:
    """A certificate beside the plan of the model that was kept, and that of the whole run if `plan` is its branch."""

    certificate: Certificate
    plan: Plan
    run_plan: Plan | None = None

    @property
    def epsilon(self) -> float:
        """What the run claims: the publication's number in paper mode."""
        paper = self.certificate.paper
        return self.certificate.epsilon if paper is None else paper.epsilon

    @property
    def before(self) -> tuple[Stage, ...]:
        """The stages that came before the choice of `plan`, where there was one."""
        return () if self.run_plan is None or self._selected is not None else self.run_plan.stages

    @property
    def _selected(self) -> Plan | None:
        """The plan that covers `plan` as one of the runs it made, where there is one (private selection)."""
        whole = self.run_plan
        return whole if whole is not None and any(stage.mechanism.whole_runs for stage in whole.stages) else None

    @property
    def _charged_stages(self) -> tuple[Stage, ...]:
        """The stages that the record has to list."""
        return (*self.before, *self.plan.stages) if self._selected is None else self._selected.stages

    def findings(self) -> list[Finding]:
        """Where the record contradicts itself or the plan."""
        return [*self._less_noise, *self._claims_less()]

    def skipped(self) -> list[Skipped]:
        """What could not be compared, and what differs without costing more."""
        planned, charged = self._planned, {charge.stage for charge in self.certificate.charges}
        caught = {name for finding in self._less_noise for name in finding.stages}
        outside = [Skipped(Reason.OUTSIDE_PLAN, name) for name in sorted(charged - planned.keys())]
        missing = [stage.name for stage in planned.values() if self._is_missing(stage, charged)]
        differ = [stage.name for stage, charge in self._pairs if _differ(stage, charge, self.plan.unit)]
        unaudited = () if self._selected is None else self._selected.stages
        return [
            *(Skipped(Reason.NO_CANARY, stage.name) for stage in unaudited),
            *outside,
            *(Skipped(Reason.NOT_ON_RECORD, name) for name in missing),
            *(Skipped(Reason.RECORD_DIFFERS, name) for name in differ if name not in caught),
        ]

    def _is_missing(self, stage: Stage, charged: set[str]) -> bool:
        return stage.name not in charged and not stage.is_free(self.plan.unit)

    @cached_property
    def _planned(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self._charged_stages}

    @property
    def _pairs(self) -> list[tuple[Stage, Charge]]:
        """Every charge with the stage that was planned under its name."""
        return [(self._planned[one.stage], one) for one in self.certificate.charges if one.stage in self._planned]

    @cached_property
    def _less_noise(self) -> list[Finding]:
        """Charges that cost more than what was planned under their name."""
        unit, delta, found = self.plan.stated_unit, self.plan.budget.definite_delta, []
        for stage, charge in self._pairs:
            if _differ(stage, charge, self.plan.unit):
                planned = replace(stage, count=min(stage.count, charge.count))
                made = _as_charged(stage, charge, self.plan.unit)
                claimed, real = (_price([one], unit, delta) for one in (planned, made))
                if real > claimed:
                    found.append(Finding(Bound.NOISE_ON_RECORD, (stage.name,), claimed, real, real))
        return found

    def _claims_less(self) -> list[Finding]:
        """An epsilon below what its stages cost; a planned stage that is not on record counts as planned."""
        certificate = self.certificate
        costliest = max(_price(way, certificate.unit, certificate.delta) for way in self._ways())
        pairs = [(certificate.epsilon, costliest)]
        if self.plan.paper is not None:
            pairs.append((self.epsilon, self.plan.paper.epsilon))
        return [
            Finding(Bound.EPSILON_ON_RECORD, tuple(self._planned), claimed, real, real)
            for claimed, real in pairs
            if within_rounding(real, claimed) > claimed
        ]

    def _ways(self) -> list[list[Stage]]:
        """The stages with what is on record: of the way that was taken, and of the other ways as they were planned."""
        made = {stage.name: _as_charged(stage, charge, self.plan.unit) for stage, charge in self._pairs}
        if self._selected is not None:
            return [[made.get(stage.name, stage) for stage in self._selected.stages]]
        before = [made.get(stage.name, stage) for stage in self.before]
        taken = [made.get(stage.name, stage) for stage in self.plan.stages]
        branches = () if self.run_plan is None else self.run_plan.branches
        others = [branch.stages for branch in branches if branch.method != self.plan.method]
        return [[*before, *taken], *([*before, *other] for other in others)]


def _differ(stage: Stage, charge: Charge, unit: Unit) -> bool:
    """Whether a charge is not exactly the planned stage, or a part of its releases."""
    planned = (stage.mechanism.name, stage.scale, stage.sensitivity(unit))
    return planned != (charge.mechanism, charge.scale, charge.sensitivity) or charge.count > stage.count


def _as_charged(stage: Stage, charge: Charge, unit: Unit) -> Stage:
    """The stage with the count and the noise on record; a larger bound on record is as much less noise."""
    bound = stage.sensitivity(unit)
    share = 1.0 if charge.sensitivity == bound else bound / charge.sensitivity
    return replace(stage, count=charge.count, scale=charge.scale * share)


def _price(stages: Sequence[Stage], unit: Unit, delta: float) -> float:
    """What stages cost for `unit`; infinite where nothing is proved for it."""
    try:
        return price(stages, unit, delta)
    except InputError:
        return math.inf
