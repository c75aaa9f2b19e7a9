"""What the ledger writes down of a plan. All that it knows about plans and stages is in this file."""

from __future__ import annotations

from typing import Any

from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.text import plain


def described(plan: Plan) -> dict[str, Any]:
    """The plan as its entry says it: whole, and the parts that can be read without any mechanism."""
    accountant = plan.loss.accountant if plan.paper is None else plan.paper.accountant
    claim = {
        "unit": plan.stated_unit.as_dict(),
        "epsilon": plan.epsilon if plan.paper is None else plan.paper.epsilon,
        "delta": plan.budget.definite_delta,
        "accountant": accountant,
    }
    found: dict[str, Any] = plain(
        {
            "method": plan.method,
            "unit": plan.unit.as_dict(),
            "paper_mode": plan.paper is not None,
            "claim": claim,
            **_parts(plan, plan.unit),
            "branches": [{"method": branch.method, **_parts(branch, plan.unit)} for branch in plan.branches],
            "plan": plan.as_dict(),
        }
    )
    return found


def _parts(plan: Plan, unit: Unit) -> dict[str, Any]:
    return {
        "stages": [stage_facts(stage, unit) for stage in plan.stages],
        "public": [note.as_dict() for note in plan.public],
        "unprotected": [note.as_dict() for note in plan.unprotected],
    }


def stage_facts(stage: Stage, unit: Unit) -> dict[str, Any]:
    """Name, mechanism, law, sampling, count, noise and bound of a stage."""
    return {
        "name": stage.name,
        "mechanism": stage.mechanism.name,
        "law": stage.mechanism.law,
        "sampling": stage.mechanism.sampling,
        "count": stage.count,
        "scale": stage.scale,
        "sensitivity": plain(stage.sensitivity(unit)),
    }
