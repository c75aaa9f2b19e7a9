"""What the ledger writes down of a plan. All that it knows about plans and stages is in this file."""

from __future__ import annotations

import math
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.prices import loss_of
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.text import plain_json


def branches_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans among which a run chooses after its own stages."""
    found: tuple[Plan, ...] = getattr(plan, "branches", ()) or getattr(plan, "options", ())
    return found


def branch_named(plan: Plan, method: str) -> Plan:
    """The branch of that method."""
    for branch in branches_of(plan):
        if branch.method == method:
            return branch
    raise InputError(f"the plan of {plan.method} has no option '{method}'")


def stage_named(plan: Plan, name: str) -> Stage:
    """The stage called `name` among the plan's own."""
    for stage in plan.stages:
        if stage.name == name:
            return stage
    raise InputError(f"the plan of {plan.method} has no stage '{name}'")


def described(plan: Plan) -> dict[str, Any]:
    """The plan as its entry says it: whole, and the parts that certificates show."""
    unit = plan.charged_unit
    return {
        "method": plan.method,
        "unit": unit.as_dict(),
        "paper_mode": plan.paper_mode,
        "claim": _claim(plan),
        **_parts(plan, unit),
        "branches": [{"method": branch.method, **_parts(branch, unit)} for branch in branches_of(plan)],
        "plan": plain_json(plan.as_dict()),
    }


def _parts(plan: Plan, unit: Unit) -> dict[str, Any]:
    return {
        "stages": [stage_facts(stage, unit) for stage in plan.stages],
        "assumed_public": list(getattr(plan, "assumptions", ())),
        "not_protected": list(getattr(plan, "not_protected", ())),
    }


def stage_facts(stage: Stage, unit: Unit) -> dict[str, Any]:
    """Name, mechanism, count, noise and bound of a stage."""
    mechanism: Any = stage.mechanism
    std: Any = getattr(stage, "std", getattr(stage, "scale", None))
    return {
        "name": stage.name,
        "mechanism": mechanism if isinstance(mechanism, str) else mechanism.name,
        "count": stage.count,
        "std": std,
        "sensitivity": finite(stage.sensitivity(unit)),
    }


def _claim(plan: Plan) -> dict[str, Any]:
    renyi = getattr(plan, "paper_accountant", "") == "renyi"
    accountant = "RDP" if renyi else loss_of([plan.ways(plan.charged_unit)], plan.charged_unit.relation).accountant
    return {
        "unit": plan.unit.as_dict(),
        "epsilon": finite(plan.epsilon),
        "delta": plan.budget.definite_delta,
        "accountant": accountant,
    }


def finite(value: float) -> float | str:
    """A number as JSON can hold it."""
    return value if math.isfinite(value) else str(value)
