"""The record of a run against its plan, field by field: no canary is needed to see that they do not fit.

The record is the run's certificate. What it claims must cover what it lists as charged, priced for the unit and the
delta that it states; and each charge must be the planned one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hushgraph.audit.findings import price, within_rounding
from hushgraph.audit.result import Bound, Finding, Reason, Skipped
from hushgraph.errors import InputError
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import from_dict


@dataclass(frozen=True)
class Record:
    """What a certificate says: its run, what it claims, and the stages it lists as charged (None: it lists none)."""

    plan: Plan
    certificate: dict[str, Any]
    charged: tuple[Stage, ...] | None

    @classmethod
    def read(cls, plan: Plan, certificate: dict[str, Any]) -> Record:
        """The record beside the plan of the same run."""
        charges = certificate.get("charges")
        return cls(plan, certificate, None if charges is None else _together(map(Stage.from_dict, charges)))

    @property
    def run(self) -> str:
        """The run's number."""
        return str(self.certificate["run"])

    @property
    def epsilon(self) -> float:
        """What the run claims: the publication's number in paper mode."""
        claim = self.certificate.get("claimed") if self.plan.paper else None
        return float(self.certificate["epsilon"] if claim is None else claim["epsilon"])

    @property
    def outside(self) -> tuple[Stage, ...]:
        """Stages that were charged and are no part of the plan of the model that was kept (questions before it)."""
        planned = self._planned()
        return tuple([stage for stage in self.charged or () if stage.name not in planned])

    def findings(self) -> list[Finding]:
        """Where the record contradicts itself or the plan."""
        return [*self._less_noise(), *self._claims_less()]

    def skipped(self) -> list[Skipped]:
        """What could not be compared, and what differs without costing more."""
        if self.charged is None:
            return [Skipped(Reason.NO_RECORD)]
        caught = {name for finding in self._less_noise() for name in finding.stages}
        return [Skipped(Reason.RECORD_DIFFERS, made.name) for _, made in self._differ() if made.name not in caught]

    def _planned(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.plan.stages}

    def _differ(self) -> list[tuple[Stage, Stage]]:
        """Planned stages, cut to the number of releases on record, with charges that are not exactly they."""
        planned = self._planned()
        made = [stage for stage in self.charged or () if stage.name in planned]
        pairs = [(replace(planned[one.name], count=min(one.count, planned[one.name].count)), one) for one in made]
        return [(plan, one) for plan, one in pairs if _fields(plan) != _fields(one)]

    def _less_noise(self) -> list[Finding]:
        """Charges that cost more than what was planned under their name."""
        unit, delta, found = self.plan.stated_unit, self.plan.budget.definite_delta, []
        for planned, made in self._differ():
            claimed, real = _price([planned], unit, delta), _price([made], unit, delta)
            if real > claimed:
                found.append(Finding(Bound.NOISE_ON_RECORD, (made.name,), claimed, real, real))
        return found

    def _claims_less(self) -> list[Finding]:
        """An epsilon below what its own stages cost; a planned stage that is not on record counts as planned."""
        stated, delta = from_dict(self.certificate["unit"]), float(self.certificate["delta"])
        listed = {stage.name for stage in self.charged or ()}
        stages = [*(self.charged or ()), *(stage for stage in self.plan.stages if stage.name not in listed)]
        pairs = [(float(self.certificate["epsilon"]), _price(stages, stated, delta))]
        if self.plan.paper is not None:
            pairs.append((self.epsilon, self.plan.paper.epsilon))
        names = tuple(dict.fromkeys(stage.name for stage in stages))
        return [
            Finding(Bound.EPSILON_ON_RECORD, names, claimed, real, real)
            for claimed, real in pairs
            if within_rounding(real, claimed) > claimed
        ]


def _together(charges: Iterable[Stage]) -> tuple[Stage, ...]:
    """Charges of equal stages, which are made one release at a time, as one."""
    counted: Counter[Stage] = Counter()
    for stage in charges:
        counted[replace(stage, count=1)] += stage.count
    return tuple(replace(stage, count=count) for stage, count in counted.items())


def _fields(stage: Stage) -> tuple[Mechanism, int, float | None]:
    """What a release does: everything that its price depends on."""
    return stage.mechanism, stage.count, stage.scale


def _price(stages: Sequence[Stage], unit: Any, delta: float) -> float:
    """What stages cost for `unit`; infinite where nothing is proved for it."""
    try:
        return price(stages, unit, delta)
    except InputError:
        return math.inf
