"""A budget for each type of edge: how much more noise a type gets, and what an edge of it costs.

One edge of one type moves the sums of that type alone. Where these have `factor` times the noise of the least noisy
type, the edge costs a Gaussian with `factor` times its multiplier; what is promised for one edge of any type is the
largest of these costs. Proof: docs/proofs/aggregation.md, Types.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import special

from hushgraph.errors import InputError
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Unit

if TYPE_CHECKING:
    from hushgraph.privacy.plan import Plan, Stage

_ROOM = 1.0 + 1e-9


def noise_factors(types: tuple[str, ...], budget: Budget, unit: Unit) -> tuple[float, ...]:
    """One factor of at least 1 for each type: 1 for all, unless each has a budget of its own; none without types."""
    if not budget.relations:
        return (1.0,) * len(types)
    given = dict(budget.relations)
    problems = []
    if set(given) != set(types):
        known = ", ".join(types) or "none: data.edge_type is not set"
        problems.append(f"budget: expected an epsilon for each type of edge ({known}); got {', '.join(given)}")
    if unit.footprint.records or not unit.footprint.incident or not budget.is_private:
        problems.append(
            f"budget: expected one epsilon for the unit '{unit.name}'; got one for each type of edge, which is about "
            "one edge of that type. Use the unit undirected-edge or directed-edge, or give one number"
        )
    InputError.collect(problems)
    largest = gaussian_mu(budget.epsilon, budget.definite_delta)
    mus = (gaussian_mu(given[name], budget.definite_delta) for name in types)
    return tuple(1.0 if mu >= largest else _ROOM * largest / mu for mu in mus)


def epsilons(plan: Plan) -> dict[str, float]:
    """What one edge of each type costs, all releases of the plan together; empty where nothing is promised of types."""
    types, unit = plan.metadata.edge_types, plan.unit
    charged = [stage for stage in plan.stages if not stage.is_free(unit)]
    factors = [getattr(stage.mechanism, "noise_factors", ()) for stage in charged]
    told = charged and not unit.footprint.records and all(len(found) == len(types) for found in factors)
    if not (types and told and plan.budget.is_private) or plan.branches:
        return {}
    costs = {}
    for number, name in enumerate(types):
        parts = [_cost(stage, found[number], unit) for stage, found in zip(charged, factors)]
        costs[name] = PrivacyLoss(events.composed(parts), unit.relation).epsilon(plan.budget.definite_delta)
    return costs


def factors(plan: Plan) -> tuple[float, ...]:
    """The noise of the sums of each type, in multiples of what their stage says; none without types."""
    found = (getattr(stage.mechanism, "noise_factors", ()) for stage in plan.stages)
    return next((several for several in found if several), ())


def require_kept(plan: Plan) -> None:
    """Refuse a budget for each type of edge that a plan does not keep to, or knows nothing of."""
    given = dict(plan.budget.relations)
    if not given:
        return
    costs = epsilons(plan)
    if costs.keys() != given.keys() or any(cost > given[name] for name, cost in costs.items()):
        raise InputError(
            f"budget: expected one epsilon for {plan.method}; got one for each type of edge, which auto, "
            "chorus, gap and progap take in a graph with data.edge_type"
        )


def _cost(stage: Stage, factor: float, unit: Unit) -> Event:
    assert stage.scale is not None
    return events.repeated(events.gaussian(factor * stage.scale / stage.sensitivity(unit)), stage.count)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu, from below, with which a Gaussian release is (epsilon, delta)-DP."""

    def log_delta(mu: float) -> float:
        upper = float(special.log_ndtr(mu / 2 - epsilon / mu))
        lower = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
        return upper + math.log1p(-math.exp(lower - upper)) if lower < upper else -math.inf

    low, high = 0.0, 1.0
    while log_delta(high) <= math.log(delta):
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_delta(middle) <= math.log(delta) else (low, middle)
    return low
