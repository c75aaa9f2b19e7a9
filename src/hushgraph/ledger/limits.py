"""Whether a run may be let in under the limit of its dataset, and what a limit that is set or changed leaves over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.accounts import BASIC, FILTER, GROUP, LEFT_OUT, PLAIN, SEEDED, UNPROVED, Account, Phase, Sum
from hushgraph.ledger.groups import place_in
from hushgraph.ledger.prices import Ways, epsilon_of
from hushgraph.privacy import events, filters
from hushgraph.privacy.filters import GaussianFilter, RenyiFilter, worst_cost
from hushgraph.privacy.units import Unit

FILTERS = (GaussianFilter.kind, RenyiFilter.kind, BASIC)
_ROUNDING = 1e-12
"""Two ways to add up the same numbers may differ in the last digits; a run that meets its limit exactly is let in."""

Curve = Callable[[float], float]
"""Epsilon as a function of delta."""


@dataclass(frozen=True)
class Request:
    """A run that asks to be let in, seen under one unit. `ways` is None where nothing is proved for that unit.

    `group` is None for other units than the run's own: there it is added up.
    """

    unit: Unit
    ways: Ways | None
    delta: float
    seeded: bool = False
    unpublished: bool = False
    group: str | None = None


class Cause(StrEnum):
    """Why a run is refused."""

    SEEDED = "seeded"
    UNPROVED = "unproved"
    NOT_PRIVATE_BEFORE = "not-private-before"
    NO_FILTER = "no-filter"
    FULL = "full"


@dataclass(frozen=True)
class Refusal:
    """Why a run was not let in: what would be used of the limit with it, and what is used without."""

    unit: dict[str, Any]
    limit: dict[str, Any]
    epsilon: float
    before: float
    after: float
    cause: Cause

    def __str__(self) -> str:
        limit = f"epsilon {self.limit['epsilon']:g} at delta {self.limit['delta']:g} for the unit '{self.unit['name']}'"
        used = f"used {self.before:.4g}, and {self.after:.4g} with this run"
        if not math.isfinite(self.after):
            used = cause_in_words(self.cause)
        return (
            f"refused: the dataset's limit is {limit}; {used}. Nothing was read by any mechanism. {_ADVICE[self.cause]}"
        )


_CAUSES = {
    Cause.SEEDED: "a run with seeded noise is not private",
    Cause.UNPROVED: "nothing is proved about this run for that unit (epsilon is infinite)",
    Cause.NOT_PRIVATE_BEFORE: "what was spent before is not private already",
    Cause.NO_FILTER: "the filter under this limit has no bound for the releases of this run",
    Cause.FULL: "the limit would be exceeded",
}
_ADVICE = {
    Cause.SEEDED: "Leave out the seed, or declare that nothing of the run will be published (--unpublished)",
    Cause.UNPROVED: "Choose a method with a proof for it, or declare that nothing will be published (--unpublished)",
    Cause.NOT_PRIVATE_BEFORE: "No limit can be kept on this dataset and unit any more: only runs of which "
    "nothing will be published are let in (--unpublished)",
    Cause.NO_FILTER: "Raise the limit: that begins a new filter with the rest (--filter renyi takes all kinds)",
    Cause.FULL: "Use a smaller epsilon, or raise the limit",
}


def cause_in_words(code: str) -> str:
    """A cause for people; entries of older versions hold the words themselves."""
    return _CAUSES[Cause(code)] if code in set(Cause) else code


def price_run(account: Account, request: Request) -> dict[str, Any] | Refusal:
    """What the run adds to an account, as its entry will say, or why it is refused."""
    epsilon = epsilon_of(request.ways, request.unit.relation, request.delta)
    price: dict[str, Any] = {
        "unit": request.unit.as_dict(),
        "epsilon": epsilon,
        "delta": request.delta,
        "phase": len(account.phases),
        "filter": None,
        "cost": 0.0,
        "cost_delta": 0.0,
        "group": None,
    }
    unproved = not math.isfinite(epsilon)
    if request.unpublished and (request.seeded or unproved):
        return {**price, "counts": LEFT_OUT}
    if account.phase is not None:
        return _under_limit(account, account.phase, request, price)
    if request.seeded or unproved:
        return {**price, "counts": SEEDED if request.seeded else UNPROVED}
    if request.group is not None:
        assert request.ways is not None
        return {**price, "counts": GROUP, "group": place_in(account, request.group, request.ways, request.delta)}
    return {**price, "counts": PLAIN}


def closing_price(opened: dict[str, Any], ways: Ways, unit: Unit) -> dict[str, Any]:
    """What a run that is over cost by its charges, in the measure that it was let in by."""
    nothing = not events.flatten(ways[0])
    epsilon = 0.0 if nothing else epsilon_of(ways, unit.relation, opened["delta"])
    price = {"epsilon": epsilon, "delta": 0.0 if nothing else opened["delta"], "cost": 0.0, "cost_delta": 0.0}
    if opened["filter"] is None or nothing:
        return price
    if opened["filter"]["kind"] == BASIC:
        return {**price, "cost": price["epsilon"], "cost_delta": price["delta"]}
    return {**price, "cost": worst_cost(filters.from_dict(opened["filter"]), ways, unit.relation)}


def _under_limit(account: Account, phase: Phase, request: Request, price: dict[str, Any]) -> dict[str, Any] | Refusal:
    assert account.limit is not None
    facts = (price["unit"], account.limit, price["epsilon"], used_epsilon(account))
    for wrong, cause in (
        (not account.is_private, Cause.NOT_PRIVATE_BEFORE),
        (request.seeded, Cause.SEEDED),
        (not math.isfinite(price["epsilon"]), Cause.UNPROVED),
    ):
        if wrong:
            return Refusal(*facts, math.inf, cause)
    assert request.ways is not None
    if not any(events.flatten(way) for way in request.ways):  # epsilon 0 is not enough: it may cost delta
        return {**price, "counts": FILTER, "filter": phase.filter}
    offers = [_offer(phase, kind, request, price) for kind in _kinds(phase, request.unit)]
    for offer, after in offers:
        if after <= phase.cap_epsilon * (1.0 + _ROUNDING):
            return {**price, "counts": FILTER, **offer}
    after = account.earlier.epsilon + min(after for _, after in offers)
    return Refusal(*facts, after, Cause.FULL if math.isfinite(after) else Cause.NO_FILTER)


def _kinds(phase: Phase, unit: Unit) -> list[str]:
    """The filters to try, in order. The first run under a limit fixes the kind, before anything is released.

    Where features and labels are public all releases are Gaussian or pure; elsewhere sampled ones are to be expected,
    for which only the Renyi filter has a bound. A single run that fills the limit goes by its own epsilon.
    """
    if phase.kind is not None:
        return [phase.kind]
    if phase.wanted is not None:
        return [phase.wanted]
    gaussian = unit.public >= {"features", "labels"}
    return (
        [GaussianFilter.kind, RenyiFilter.kind, BASIC] if gaussian else [RenyiFilter.kind, GaussianFilter.kind, BASIC]
    )


def _offer(phase: Phase, kind: str, request: Request, price: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """What the run costs under a kind of filter, and the epsilon of the phase with it (infinite: does not fit)."""
    assert request.ways is not None
    if phase.cap_epsilon <= 0.0 or phase.cap_delta <= 0.0:
        return {}, math.inf
    if kind == BASIC:
        offer = {"filter": {"kind": BASIC}, "cost": price["epsilon"], "cost_delta": price["delta"]}
        within = phase.cost_delta + price["delta"] <= phase.cap_delta * (1.0 + _ROUNDING)
        return offer, phase.cost + price["epsilon"] if within else math.inf
    relation = request.unit.relation
    if phase.filter is not None:
        chosen = filters.from_dict(phase.filter)
    elif kind == RenyiFilter.kind:
        chosen = RenyiFilter.for_limit(phase.cap_epsilon, phase.cap_delta, request.ways, relation)
    else:
        chosen = GaussianFilter()
    cost = worst_cost(chosen, request.ways, relation)
    after = chosen.used(phase.cost + cost, phase.cap_epsilon, phase.cap_delta)
    return {"filter": chosen.as_dict(), "cost": cost}, after


def used_epsilon(account: Account) -> float:
    """How much of the limit is used, as an epsilon; bookkeeping, not a proof (see `totals`)."""
    phase = account.phase
    if phase is None:
        return account.unlimited.epsilon
    if not account.is_private:
        return math.inf
    if phase.filter is None:
        return account.earlier.epsilon
    if phase.kind == BASIC:
        return account.earlier.epsilon + phase.cost
    used = filters.from_dict(phase.filter).used(phase.cost, phase.cap_epsilon, phase.cap_delta)
    return account.earlier.epsilon + used


# Setting a limit


def weights(count: int) -> list[float]:
    """Shares of a delta that never add up to more than all of it, however many parts there will be: 6 / (pi k)^2."""
    return [6.0 / (math.pi * k) ** 2 for k in range(1, count + 1)]


def split_epsilon(curves: Sequence[Curve], delta: float) -> float:
    """The plain sum of epsilons of several parts whose deltas add up to at most `delta`."""
    return math.fsum(curve(delta * share) for curve, share in zip(curves, weights(len(curves))))


def require_purpose(account: Account, epsilon: float, delta: float, purpose: str) -> None:
    """Refuse to raise a limit without a reason: whoever reads the ledger later has to find it there."""
    before = account.limit
    if before is None or (epsilon <= before["epsilon"] and delta <= before["delta"]) or purpose.strip():
        return
    raise InputError(
        f"purpose: expected why the limit is raised from epsilon {before['epsilon']:g} at delta {before['delta']:g} to "
        f"{epsilon:g} at {delta:g}; got none. Say it (--why REASON, Occasion(purpose=REASON)); it is entered and shown"
    )


def new_limit(
    account: Account, epsilon: float, delta: float, kind: str | None, curves: Callable[[], Sequence[Curve]]
) -> dict[str, Any]:
    """What a limit that is set now gives to the filter of the runs that follow.

    Runs from before any limit keep the deltas they have, if these leave half of delta; else they are stated at the
    shares of it that they would have without a limit (`weights`), and the filter gets the rest. `curves` gives them as
    functions of delta. A filter that has let something through keeps what it was given: a raised limit needs more
    epsilon *and* more delta than that (docs/proofs/filters.md says why).
    """
    InputError.collect(_limit_problems(epsilon, delta, kind))
    phase, over = account.phase, over_before(account)
    if phase is not None and phase.filter is not None:
        caps = epsilon - account.earlier.epsilon, delta - account.earlier.delta
        if caps[0] <= phase.epsilon and caps[1] <= phase.delta and kind in (None, phase.kind):
            return _limit("lowered", account.earlier, *caps, kind)
    if over.runs and not account.is_private:
        over = Sum(math.inf, 0.0, over.runs)
    elif _has_filtered(account):
        _require_delta(over, delta)
    elif over.delta > 0.5 * delta:
        parts = curves()
        over = Sum(split_epsilon(parts, delta), delta * math.fsum(weights(len(parts))), over.runs)
    change = "raised" if _has_filtered(account) else "set"
    return _limit(change, over, epsilon - over.epsilon, delta - over.delta, kind)


def _has_filtered(account: Account) -> bool:
    """Whether a run was let in under a limit."""
    return any(phase.filter is not None for phase in account.phases)


def _require_delta(over: Sum, delta: float) -> None:
    if over.delta >= delta:
        raise InputError(
            f"delta: expected more than {over.delta:g}, which was given to the runs under the limit so far; got "
            f"{delta:g}. A raised limit begins another filter, which needs a delta of its own, such as --delta "
            f"{2.0 * over.delta:g}"
        )


def _limit_problems(epsilon: float, delta: float, kind: str | None) -> list[str]:
    problems = []
    if not 0.0 < epsilon < math.inf:
        problems.append(f"epsilon: expected a positive, finite number; got {epsilon!r}")
    if not 0.0 < delta < 1.0:
        problems.append(f"delta: expected a number above 0 and below 1; got {delta!r}")
    if kind is not None and kind not in FILTERS:
        problems.append(f"filter: expected one of {', '.join(FILTERS)}; got {kind!r}")
    return problems


def over_before(account: Account) -> Sum:
    """Everything before the filter that is about to begin."""
    phase, earlier = account.phase, account.earlier
    if phase is None or not _has_filtered(account):
        before = account.unlimited
        return Sum(before.epsilon, before.delta, account.runs)
    if phase.filter is None:
        return Sum(earlier.epsilon, earlier.delta, account.runs)
    given = (phase.cost, phase.cost_delta) if phase.kind == BASIC else (phase.epsilon, phase.delta)
    return Sum(earlier.epsilon + given[0], earlier.delta + given[1], account.runs)


def _limit(change: str, earlier: Sum, cap_epsilon: float, cap_delta: float, kind: str | None) -> dict[str, Any]:
    before = {"epsilon": earlier.epsilon, "delta": earlier.delta, "runs": earlier.runs}
    return {
        "change": change,
        "earlier": before,
        "cap_epsilon": cap_epsilon,
        "cap_delta": cap_delta,
        "filter": kind,
    }
