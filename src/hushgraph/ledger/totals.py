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
from hushgraph.text import counted, listed, rounded_up


class Kind(StrEnum):
    """The argument behind a total."""

    NONE = "none"
    BASIC = "basic composition"
    DECLARED = "declared together"
    FILTER = "filter"
    RAISED = "filters under raised limits"


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
    raised: int = 0
    """How often the limit was raised after a run was let in under it."""
    unnamed: int = 0
    """How many more runs have seeded noise or no proof than are named."""

    @property
    def reason(self) -> str:
        """Why the total is what it is, in one or two sentences."""
        return " ".join(word for word in (self._why(), self._left_out()) if word)

    def _why(self) -> str:
        if not self.private:
            return " ".join(f"Not private: {cause}." for cause in self._causes())
        return _WHY[self.kind].format(
            filter=_FILTER_NAMES.get((self.filter or {}).get("kind", ""), ""),
            earlier=f", after {counted(self.earlier, 'earlier run')}, added to it" if self.earlier else "",
            raised="once" if self.raised == 1 else f"{self.raised} times",
        )

    def _causes(self) -> list[str]:
        found = []
        if self.seeded:
            noise = "was seeded" if len(self.seeded) == 1 else "were seeded"
            found.append(f"the noise of {_runs(self.seeded)} {noise} and can be drawn again")
        if self.unproved:
            found.append(f"nothing is proved about {_runs(self.unproved)} for this unit")
        if self.lost:
            entries = listed([str(number) for number in self.lost[:_NAMED]])
            found.append(f"nobody knows what was charged by entries that were lost (entry {entries})")
        if self.unnamed:
            found.append(f"the same holds for {counted(self.unnamed, 'more run')}")
        return found

    def _left_out(self) -> str:
        if not self.left_out:
            return ""
        return f"{counted(self.left_out, 'run')} declared unpublished {'is' if self.left_out == 1 else 'are'} left out."

    def as_dict(self) -> dict[str, Any]:
        """The total as plain values."""
        return {**vars(self), "kind": self.kind.value, "reason": self.reason, "words": str(self)}

    def __str__(self) -> str:
        if not self.private:
            return f"NOT PRIVATE over {counted(self.runs, 'run')}"
        at = f"at delta {self.delta:.3g}" if self.delta else "so far"
        if self.kind in (Kind.FILTER, Kind.RAISED):
            used = f"{rounded_up(self.used)} used, at most {rounded_up(self.epsilon)} {at} is proved"
            return f"epsilon {used} ({self.kind.value}, {counted(self.runs, 'run')})"
        return f"epsilon {rounded_up(self.epsilon)} {at} ({self.kind.value}, {counted(self.runs, 'run')})"


_NAMED = 3


def _runs(names: tuple[str, ...]) -> str:
    return f"{'run' if len(names) == 1 else 'runs'} {listed(names)}"


_FILTER_NAMES = {"gaussian": "Gaussian", "renyi": "Renyi", "basic": "basic"}
_WHY = {
    Kind.NONE: "Nothing that counts was spent.",
    Kind.BASIC: "Epsilons and deltas of the runs are added up, which holds however each was chosen.",
    Kind.DECLARED: "All runs were declared together, with their plans, before the first one: they compose as one plan.",
    Kind.FILTER: "A {filter} filter under a limit set beforehand holds however each run was chosen{earlier}.",
    Kind.RAISED: "The limit was raised {raised} in view of results: each of its filters holds however each run was "
    "chosen, and what they were given is added up{earlier}. This bounds what was spent; no limit set beforehand does.",
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
        raised=max(0, len(account.phases) - 1),
        unnamed=account.not_private - len(account.seeded) - len(account.unproved) - len(account.lost),
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
        return Kind.FILTER if len(account.phases) == 1 else Kind.RAISED
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
