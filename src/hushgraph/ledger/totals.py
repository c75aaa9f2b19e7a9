"""What all runs on a dataset add up to, for a unit, and which argument proves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from hushgraph.ledger.accounts import BASIC, FILTER, PLAIN, Account, Phase
from hushgraph.ledger.entries import History
from hushgraph.ledger.groups import declared_ways
from hushgraph.ledger.limits import Curve, split_epsilon, used_epsilon
from hushgraph.ledger.prices import Ways, loss_of, unit_key, ways_of_run
from hushgraph.privacy import filters, units
from hushgraph.privacy.units import Relation
from hushgraph.text import rounded_up


class Kind(StrEnum):
    """The argument behind a total."""

    NONE = "none"
    BASIC = "basic composition"
    DECLARED = "declared together"
    FILTER = "filter"


@dataclass(frozen=True)
class Total:
    """What is proved of all runs together: (epsilon, delta), whatever was planned in view of earlier results.

    `used` is how much of a limit the runs have used so far. Under a filter that is bookkeeping: what is proved is what
    the filter was given, because the runs could have gone on until then.
    """

    dataset: str
    unit: dict[str, Any]
    epsilon: float
    delta: float
    kind: Kind
    private: bool
    runs: int
    left_out: int
    used: float
    seeded: tuple[str, ...]
    unproved: tuple[str, ...]
    lost: tuple[int, ...]
    groups: int
    earlier: int
    filter: dict[str, Any] | None
    limit: dict[str, Any] | None

    @property
    def reason(self) -> str:
        """Why the total is what it is, in one or two sentences."""
        return " ".join(word for word in (self._why(), self._left_out()) if word)

    def _why(self) -> str:
        if self.seeded:
            return f"Not private: the noise of run {self.seeded[0]} was seeded and can be drawn again."
        if self.unproved:
            return f"Not private: nothing is proved for this unit of run {self.unproved[0]}."
        if self.lost:
            return f"Not private: nobody knows what was charged by entries that were lost (entry {self.lost[0]})."
        return _WHY[self.kind].format(
            runs=self.runs,
            groups=self.groups,
            filter=_FILTER_NAMES.get((self.filter or {}).get("kind", ""), ""),
            earlier=f", after {self.earlier} earlier run(s), which are added" if self.earlier else "",
        )

    def _left_out(self) -> str:
        return f"{self.left_out} run(s) declared unpublished are left out." if self.left_out else ""

    def as_dict(self) -> dict[str, Any]:
        """The total as plain values."""
        return {**vars(self), "kind": self.kind.value, "reason": self.reason, "words": str(self)}

    def __str__(self) -> str:
        if not self.private:
            return f"NOT PRIVATE over {self.runs} run(s)"
        at = f"at delta {self.delta:.3g}" if self.delta else "so far"
        if self.kind is Kind.FILTER:
            used = f"{rounded_up(self.used)} used, at most {rounded_up(self.epsilon)} {at} is proved"
            return f"epsilon {used} ({self.kind.value}, {self.runs} run(s))"
        return f"epsilon {rounded_up(self.epsilon)} {at} ({self.kind.value}, {self.runs} run(s))"


_FILTER_NAMES = {"gaussian": "Gaussian", "renyi": "Renyi", "basic": "basic"}
_WHY = {
    Kind.NONE: "Nothing that counts was spent.",
    Kind.BASIC: "Epsilons and deltas of the runs are added up, which holds however each was chosen.",
    Kind.DECLARED: "All runs were declared together, with their plans, before the first one: they compose as one plan.",
    Kind.FILTER: "A {filter} filter under a limit set beforehand holds however each run was chosen{earlier}.",
}


def total_of(account: Account, delta: float | None, curves: Callable[[], list[Curve]]) -> Total:
    """The total of an account: at the deltas its parts have, or at `delta` if these add up to more than that."""
    epsilon, natural = _proved(account)
    if not account.is_private:
        epsilon, natural = math.inf, delta if delta is not None else natural
    elif delta is not None and natural > delta * (1.0 + 1e-12):
        epsilon, natural = split_epsilon(found, delta) if len(found := curves()) > 1 else found[0](delta), delta
    counted = account.runs - account.left_out
    return Total(
        dataset=account.dataset,
        unit=account.unit,
        epsilon=epsilon,
        delta=natural,
        kind=_kind(account),
        private=account.is_private,
        runs=counted,
        left_out=account.left_out,
        used=used_epsilon(account) if account.is_private else math.inf,
        seeded=tuple(account.seeded),
        unproved=tuple(account.unproved),
        lost=tuple(account.lost),
        groups=len(account.begun),
        earlier=account.unlimited.runs if account.phase is not None else 0,
        filter=None if account.phase is None else account.phase.filter,
        limit=account.limit,
    )


def _proved(account: Account) -> tuple[float, float]:
    """(epsilon, delta) of all parts as they stand."""
    phase = account.phase
    if phase is None:
        before = account.unlimited
        return before.epsilon, before.delta
    earlier = account.earlier
    if phase.filter is None:
        return earlier.epsilon, earlier.delta
    own = (phase.cost, phase.cost_delta) if phase.kind == BASIC else (phase.epsilon, phase.delta)
    return earlier.epsilon + own[0], earlier.delta + own[1]


def _kind(account: Account) -> Kind:
    if any(phase.kind not in (None, BASIC) for phase in account.phases):
        return Kind.FILTER
    before = account.unlimited
    if not before.runs and not any(phase.filter for phase in account.phases):
        return Kind.NONE
    only_group = len(account.begun) == 1 and not account.plain.runs and not account.phases
    return Kind.DECLARED if only_group else Kind.BASIC


# Parts as functions of delta


def curves_of(history: History, account: Account) -> list[Curve]:
    """Each part of an account as a function of delta: runs, groups, and filters."""
    relation = units.from_dict(account.unit).relation
    singles: dict[int, list[str]] = {}
    for run, price in _prices(history, account):
        if price["counts"] == PLAIN or (price["counts"] == FILTER and (price["filter"] or {}).get("kind") == BASIC):
            singles.setdefault(price["phase"], []).append(run)
    found = [_of_runs(history, account, [run], relation) for run in singles.get(0, [])]
    found += [loss_of(declared_ways(history, account.dataset, name), relation).epsilon for name in account.begun]
    for number, phase in enumerate(account.phases, start=1):
        if phase.kind == BASIC:
            found += [_of_runs(history, account, [run], relation) for run in singles.get(number, [])]
        elif phase.filter is not None:
            found.append(phase_curve(phase))
    return found


def _prices(history: History, account: Account) -> list[tuple[str, dict[str, Any]]]:
    """Every run that counts in an account, with what its entry says of it."""
    found = []
    for entry in history.of_kind("open"):
        if entry.dataset != account.dataset:
            continue
        priced = {unit_key(price["unit"]): price for price in entry.values["prices"]}
        price = priced.get(unit_key(account.unit), {"counts": PLAIN, "phase": 0, "filter": None})
        found.append((entry.values["run"], price))
    return found


def _of_runs(history: History, account: Account, runs: list[str], relation: Relation) -> Curve:
    ways: list[Ways | None] = [ways_of_run(history, run, account.unit) for run in runs]
    known = [one for one in ways if one is not None]
    if len(known) < len(ways):
        return lambda delta: math.inf
    return loss_of(known, relation).epsilon


def phase_curve(phase: Phase) -> Curve:
    """Epsilon at any delta of all that a filter could have let through since it began."""
    chosen = filters.from_dict(phase.filter or {})
    capacity = chosen.capacity(phase.epsilon, phase.delta) * (1.0 + 1e-9)  # from the safe side
    return partial(chosen.epsilon, capacity)
