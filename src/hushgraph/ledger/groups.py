"""Groups: runs whose plans are declared together, before the first of them, and compose as one plan.

What is declared is how much noise there will be and how often, as events. A run belongs to a group only if it is one of
the declared plans that has not been run yet, and the group costs all that was declared from its first run on, whether
or not all of it is run: so nothing that was seen on the way can decide what is counted (docs/proofs/filters.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.accounts import Account
from hushgraph.ledger.entries import Entry, History, canonical
from hushgraph.ledger.prices import Ways, loss_of
from hushgraph.privacy import events, units
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit


def plan_key(ways: Ways, delta: float) -> str:
    """What a declared plan is recognized by: its releases with their noise, and its delta."""
    content = canonical([[events.to_json(way) for way in ways], delta])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def declaration(name: str, plans: Sequence[Plan], unit: Unit) -> dict[str, Any]:
    """What is entered of a group: its plans as events, and what they cost together."""
    InputError.collect(_problems(name, plans, unit))
    delta = plans[0].budget.definite_delta
    declared = []
    for plan in plans:
        ways = plan.ways(unit)
        shown = {"method": plan.method, "ways": [events.to_json(way) for way in ways]}
        declared.append({**shown, "key": plan_key(ways, delta)})
    cost = loss_of([plan.ways(unit) for plan in plans], unit.relation).epsilon(delta)
    return {"unit": unit.as_dict(), "group": name, "plans": declared, "epsilon": cost, "delta": delta}


def _problems(name: str, plans: Sequence[Plan], unit: Unit) -> list[str]:
    problems = []
    if len({plan.budget.definite_delta for plan in plans}) > 1 or any(plan.unit != unit for plan in plans):
        problems.append(f"group '{name}': expected plans of one unit and one delta; got several")
    if any(plan.branches for plan in plans):
        problems.append(
            f"group '{name}': expected plans that are fixed beforehand; got one that chooses its way. Run it outside "
            "of the group: it is then added up"
        )
    if not all(plan.budget.is_private for plan in plans):
        problems.append(f"group '{name}': expected plans with a privacy budget; got one with epsilon inf")
    return problems


def require_new(account: Account, name: str) -> None:
    """Refuse a group that was declared before, or one that a limit makes useless."""
    if name in account.groups:
        raise InputError(f"group '{name}': expected a new name; it was declared before, and stays as it was declared")
    if account.phase is not None:
        raise InputError(f"group '{name}': expected no limit on the dataset; got one. Its filter adds up as well")


def place_in(account: Account, name: str, ways: Ways, delta: float) -> dict[str, str]:
    """The place of a run in its group, or an error where it was not declared, or is there already."""
    group, key = account.groups.get(name), plan_key(ways, delta)
    if group is None:
        raise InputError(
            f"group '{name}': expected one that was declared before its first run; got none. Declare it with all its "
            "plans (hushgraph ledger declare), or leave --group out: the run is then added up"
        )
    if key not in group["remaining"]:
        left = f"{len(group['remaining'])} of {len(group['remaining']) + len(group['runs'])}"
        raise InputError(
            f"group '{name}': expected a declared plan that was not run yet ({left} are left); got another one. Leave "
            "--group out: the run is then added up"
        )
    return {"name": name, "plan": key}


def declared_ways(history: History, dataset: str, name: str) -> list[Ways]:
    """All plans of a group, run or not."""
    for entry in history.of_kind("group"):
        if entry.dataset == dataset and entry.values["group"] == name:
            return _ways(entry)
    return []


def declaration_problems(entry: Entry, account: Account | None) -> list[str]:
    """What does not fit in the entry of a group: its price, the keys of its plans, or that there was one before."""
    values, unit = entry.values, units.from_dict(entry.values["unit"])
    ways, delta = _ways(entry), float(values["delta"])
    again = loss_of(ways, unit.relation).epsilon(delta)
    same = abs(float(values["epsilon"]) - again) <= 1e-6 * again
    same = same and [plan["key"] for plan in values["plans"]] == [plan_key(one, delta) for one in ways]
    problems = [] if same else [f"group '{values['group']}': its cost is not that of its plans"]
    if account is None or values["group"] in account.groups or account.phase is not None:
        problems.append(f"group '{values['group']}': was declared twice, or under a limit (entry {entry.number})")
    return problems


def _ways(entry: Entry) -> list[Ways]:
    return [[events.from_json(way) for way in plan["ways"]] for plan in entry.values["plans"]]
