"""A run: a plan at work on a ledger. Mechanisms charge here before they release.

`open_run` enters the whole plan, or refuses it where a limit of the dataset would be exceeded, before private data is
read. `Run.charge` lets through only what the plan foresaw and returns when the charge is on the disk; `Run.close` gives
back what was planned and not used.
"""

from __future__ import annotations

import secrets
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hushgraph.errors import BudgetError, LedgerError, UnprovenError
from hushgraph.ledger.accounts import FILTER, PLAIN
from hushgraph.ledger.certificate import Certificate, certify_run
from hushgraph.ledger.checking import check_history
from hushgraph.ledger.entries import FIRST_LINK, Entry, History
from hushgraph.ledger.ledger import InMemoryLedgerWarning, Ledger
from hushgraph.ledger.limits import Refusal, Request, closing_price, price_run
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.prices import Ways, epsilon_of, spent
from hushgraph.ledger.store import Rows
from hushgraph.privacy import events, units
from hushgraph.privacy.events import Event
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit

__all__ = ["CoveredCharges", "Run", "check_history", "open_run", "spent"]


@dataclass(frozen=True)
class _SoFar:
    """What the entries of a run say: all that decides whether more may be charged. Runs and processes share them."""

    entries: list[Entry]

    @property
    def charges(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == "charge"]

    @property
    def events(self) -> list[Event]:
        return [events.from_json(entry.values["event"]) for entry in self.charges]

    @property
    def choices(self) -> list[str]:
        return [entry.values["option"] for entry in self.entries if entry.kind == "choice"]

    @property
    def is_closed(self) -> bool:
        return any(entry.kind == "close" for entry in self.entries)

    def require_open(self, stage: str) -> None:
        for entry in self.entries:
            if entry.kind == "close":
                how = "was closed by somebody else" if "abandoned" in entry.values else "is closed"
                raise BudgetError(f"the run {how}: '{stage}' cannot be charged any more")

    def used(self, stage: str) -> int:
        return sum(entry.values["count"] for entry in self.charges if entry.values["stage"] == stage)


@dataclass
class Run:
    """One use of a dataset under one plan. It keeps no count of its own: what was charged is what the ledger says."""

    ledger: Ledger
    plan: Plan
    identity: str
    seeded: bool
    dataset: str
    prices: list[dict[str, Any]] = field(default_factory=list)

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Write to the ledger that `count` releases of `stage` (default: all) are about to leave the vault.

        When this returns the charge is on the disk; that is why it is refused inside a transaction of the caller. What
        was charged before is read in the same transaction, so that threads and processes cannot charge past the plan.
        """
        if self.ledger.in_transaction:
            raise LedgerError("a charge must be on the disk when it returns: expected no open transaction; got one")
        count = stage.count if count is None else count
        with self.ledger.transaction() as rows:
            planned = self._chargeable(stage, count, self._so_far(rows))
            facts = planned.facts(self.plan.unit)
            event = replace(planned, count=count).event(self.plan.unit)
            self._append("charge", {**facts, "stage": facts["name"], "count": count, "event": events.to_json(event)})

    def _chargeable(self, stage: Stage, count: int, so_far: _SoFar) -> Stage:
        """The stage as it was planned, if `count` more releases of it were."""
        planned, used = self._planned(stage.name, so_far), so_far.used(stage.name)
        so_far.require_open(stage.name)
        if replace(planned, count=stage.count) != stage:
            raise BudgetError(f"'{stage.name}' is not the stage that was planned: expected {planned}; got {stage}")
        if count < 1 or used + count > planned.count:
            raise BudgetError(
                f"'{stage.name}' was planned {planned.count} times, used {used}; {count} more are refused"
            )
        return planned

    def _planned(self, name: str, so_far: _SoFar) -> Stage:
        """The stage called `name` of the plan, or of the branch that was chosen."""
        branches = [stage for option in so_far.choices for stage in self.plan.branch(option).stages]
        return next((stage for stage in (*self.plan.stages, *branches) if stage.name == name), None) or self.plan[name]

    def choose(self, branch: str, reason: Note) -> Plan:
        """Write to the ledger which branch of the plan follows.

        From then on its stages can be charged, and no other branch's. `reason` may name released values only.
        """
        chosen = self.plan.branch(branch)
        with self.ledger.transaction() as rows:
            so_far = self._so_far(rows)
            if so_far.is_closed or so_far.choices:
                raise BudgetError(f"the run is closed or has chosen already: '{branch}' cannot be chosen any more")
            if any(so_far.used(stage.name) < stage.count for stage in self.plan.stages):
                raise BudgetError(f"'{branch}' cannot be chosen before what the choice is made from was charged")
            self._append("choice", {"option": branch, "reason": reason.as_dict()})
        return chosen

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Write down that a charged stage is carried out again on examples of other records only: no further cost."""
        with self.ledger.transaction() as rows:
            self._so_far(rows).require_open(stage.name)
            self._append("parallel", {"stage": stage.name, "examples": examples})

    def certificate(self) -> Certificate:
        """What this run promises, from its own entries and the running total of its dataset as they are now."""
        with self.ledger.reading() as rows:
            total, last = self.ledger.total(self.dataset, self.plan.unit), rows.last()
            own = History(tuple(rows.of_run(self.identity)), self.ledger.folder is None)
        return certify_run(own, self.identity, total, FIRST_LINK if last is None else last.hash, self.plan.unit)

    def close(self, *, tensors_hash: str | None = None) -> None:
        """The run is done: only what was charged stays spent. `tensors_hash` is that of the model it ended with."""
        with self.ledger.transaction() as rows:
            so_far = self._so_far(rows)
            if so_far.is_closed:
                return
            prices = self._final_prices(so_far)
            model = {} if tensors_hash is None else {"tensors_hash": tensors_hash}
            self._append("close", {"prices": prices, "charges": len(so_far.charges), **model})

    def _so_far(self, rows: Rows) -> _SoFar:
        return _SoFar(rows.of_run(self.identity))

    def _append(self, kind: str, values: dict[str, Any]) -> None:
        self.ledger.append(kind, {"run": self.identity, "dataset": self.dataset, **values})

    def _final_prices(self, so_far: _SoFar) -> list[dict[str, Any]]:
        """What the charges cost for the unit they were charged for; other units keep the price of the whole plan.

        A run that chose its way gives back what the costliest way would have cost under a filter alone: there, what
        counts are the releases that were made, however each was chosen (docs/proofs/filters.md). A group counts whole.
        """
        unit = self.plan.unit
        opened = next(price for price in self.prices if price["unit"] == unit.as_dict())
        if opened["counts"] not in ((FILTER,) if self.plan.branches else (PLAIN, FILTER)):
            return []
        final = {**opened, **closing_price(opened, [events.composed(so_far.events)], unit)}
        return [{**final, "was": {key: opened[key] for key in ("epsilon", "delta", "cost", "cost_delta")}}]


@dataclass
class CoveredCharges:
    """Stands in a vault where a run would, if another entry covers it or nobody's data is in it.

    Charges are counted in memory and held to the plan.
    """

    made: Counter[str] = field(default_factory=Counter)

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Count the releases; more than planned would tell more than was claimed, and are refused."""
        self.made[stage.name] += stage.count if count is None else count
        if self.made[stage.name] > stage.count:
            raise BudgetError(f"'{stage.name}': expected at most {stage.count} releases; got more")

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Other records only: no further charge."""


def open_run(
    ledger: Ledger,
    plan: Plan,
    dataset: str,
    *,
    seeded: bool,
    operator: str | None = None,
    purpose: str | None = None,
    command: str | None = None,
    unpublished: bool | None = None,
    group: str | None = None,
    identity: str | None = None,
) -> Run:
    """Enter the whole plan in the ledger, or refuse it where it would exceed a limit of the dataset.

    `dataset` is a name, or an id from `Ledger.dataset_for`. What is not given is taken from `Ledger.occasion`; where
    that holds the data itself, the dataset is recognized by it. A refusal is entered, too. `identity` is the run's
    own name, which is random otherwise.
    """
    given = {"operator": operator, "purpose": purpose, "command": command, "unpublished": unpublished, "group": group}
    occasion = replace(ledger.occasion, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
    if ledger.warns:
        warnings.warn(
            "a ledger in memory: charges end with this process, and other runs on the same data are not added up. "
            "Pass ledger=hushgraph.default_ledger() or Ledger(folder)",
            InMemoryLedgerWarning,
            stacklevel=3,
        )
    facts = plan.facts()
    epsilon_of(plan.ways(plan.unit), plan.unit.relation, plan.budget.definite_delta)  # slow: before others have to wait
    arrays = occasion.arrays
    content = None if arrays is None or not ledger.exists else ledger.identify(arrays)  # slow, too
    with ledger.transaction() as rows:
        book = ledger.on(occasion)
        if arrays is None:
            known = book.dataset_named(dataset)
        else:
            known = book.dataset_for(content or ledger.identify(arrays), dataset)  # a new ledger has its keys by now
        entered = _enter(book, rows, plan, facts, known, seeded, identity or secrets.token_hex(8))
    if isinstance(entered, Refusal):
        raise BudgetError(str(entered))
    return Run(ledger, plan, entered["run"], seeded, known, entered["prices"])


def _enter(
    ledger: Ledger, rows: Rows, plan: Plan, facts: dict[str, Any], dataset: str, seeded: bool, run: str
) -> dict[str, Any] | Refusal:
    """Write the run down with its price for every unit of the dataset, or the refusal of the first limit it exceeds."""
    occasion, own = ledger.occasion, plan.unit
    ledger.begin_unit(rows, dataset, own)
    prices = []
    for account in ledger.accounts(dataset):
        unit = own if account.unit == facts["unit"] else units.from_dict(account.unit)
        request = _request(plan, unit, seeded, occasion)
        price = price_run(account, request)
        if isinstance(price, Refusal):
            _write_refusal(ledger, plan, dataset, price)
            return price
        if unit is not own:
            price["ways"] = None if request.ways is None else [events.to_json(way) for way in request.ways]
        prices.append(price)
    values = {"run": run, "dataset": dataset, "seeded": seeded, **occasion.as_dict(), **facts}
    ledger.append("open", {**values, "prices": prices})
    return {"run": run, "prices": prices}


def _request(plan: Plan, unit: Unit, seeded: bool, occasion: Occasion) -> Request:
    try:
        ways: Ways | None = list(plan.ways(unit))
    except UnprovenError:
        ways = None
    group = occasion.group if unit == plan.unit else None
    return Request(unit, ways, plan.budget.definite_delta, seeded, occasion.unpublished, group)


def _write_refusal(ledger: Ledger, plan: Plan, dataset: str, refusal: Refusal) -> None:
    values = {"dataset": dataset, "method": plan.method, **ledger.occasion.as_dict()}
    facts = {name: getattr(refusal, name) for name in ("unit", "limit", "epsilon", "before", "after", "cause")}
    ledger.append("refused", {**values, **facts, "delta": plan.budget.definite_delta})
