"""The running total of one dataset for one unit, kept entry by entry.

Before a limit is set, runs are added up one by one (`plain`), or as the groups they were declared in. A limit starts a
*phase*: a privacy filter that was given what the limit leaves over. What is proved of a phase is what it was given
when it began, not what its runs happened to use. A limit that is raised ends the phase and begins another with the
rest; a limit that is lowered lets less through but proves no more. docs/proofs/filters.md says why.

An account is computed from the entries alone: `fold` does it for a whole history, `Account.apply` for one more entry.

A limit check reads the accounts from rows of the file instead of all entries. Each row has a keyed checksum and the
number of the last entry it has taken in; one that was changed, damaged, lost, or is older than the entries, is computed
again from the entries (`RunningTotals`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.ledger.entries import Entry, History, canonical, check_chain
from hushgraph.ledger.keys import Keys
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.store import Rows

PLAIN, GROUP, FILTER = "plain", "group", "filter"
LEFT_OUT, SEEDED, UNPROVED = "left out", "seeded", "unproved"
BASIC = "basic"
COUNTING = ("open", "close", "limit", "unit", "group")
"""The kinds of entries that change accounts of their dataset."""


@dataclass
class Sum:
    """Epsilons and deltas of runs, added up."""

    epsilon: float = 0.0
    delta: float = 0.0
    runs: int = 0


@dataclass
class Phase:
    """A filter at work. `epsilon` and `delta` are what it was given; the caps are what it lets through now.

    Its kind of `filter` is fixed by its first run; `wanted` can fix it earlier. `cost` is in the filter's own measure.
    """

    epsilon: float
    delta: float
    cap_epsilon: float
    cap_delta: float
    wanted: str | None = None
    filter: dict[str, Any] | None = None
    cost: float = 0.0
    cost_delta: float = 0.0
    runs: int = 0

    @property
    def kind(self) -> str | None:
        """gaussian, renyi or basic; None before the first run."""
        return None if self.filter is None else str(self.filter["kind"])


@dataclass
class Account:
    """What was spent on `dataset` for `unit`, as far as the entry `upto`."""

    dataset: str
    unit: dict[str, Any]
    runs: int = 0
    left_out: int = 0
    seeded: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    not_private: int = 0
    plain: Sum = field(default_factory=Sum)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    earlier: Sum = field(default_factory=Sum)
    phases: list[Phase] = field(default_factory=list)
    limit: dict[str, Any] | None = None
    upto: int = 0
    lost: list[int] = field(default_factory=list)
    """The entries that say that others were lost: nobody knows what those charged."""

    @property
    def phase(self) -> Phase | None:
        """The filter at work, if a limit is in force."""
        return self.phases[-1] if self.phases else None

    @property
    def is_private(self) -> bool:
        """False as soon as one run that counts has no proof, or noise that can be drawn again."""
        return self.not_private == 0

    @property
    def begun(self) -> dict[str, dict[str, Any]]:
        """The groups of which a run was opened."""
        return {name: group for name, group in self.groups.items() if group["runs"]}

    @property
    def unlimited(self) -> Sum:
        """The runs and groups from before any limit, added up; a group counts whole from its first run on."""
        groups = self.begun.values()
        return Sum(
            self.plain.epsilon + math.fsum(float(group["epsilon"]) for group in groups),
            self.plain.delta + math.fsum(float(group["delta"]) for group in groups),
            self.plain.runs + sum(len(group["runs"]) for group in groups),
        )

    def as_dict(self) -> dict[str, Any]:
        """The account as plain values; what was lost only where something was."""
        values = asdict(self)
        return values if self.lost else {name: value for name, value in values.items() if name != "lost"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Account:
        """The inverse of `as_dict`, after JSON."""
        read = dict(values)
        for name in ("plain", "earlier"):
            read[name] = Sum(**_floats(read[name], ("epsilon", "delta")))
        numbers = ("epsilon", "delta", "cap_epsilon", "cap_delta", "cost", "cost_delta")
        read["phases"] = [Phase(**_floats(phase, numbers)) for phase in read["phases"]]
        return cls(**read)

    # One more entry

    def apply(self, entry: Entry) -> None:
        """Take in an entry of this dataset; those that do not concern the unit change nothing."""
        values = entry.values
        if entry.kind in ("open", "close"):
            for price in values["prices"]:
                if price["unit"] == self.unit:
                    self._opened(values, price) if entry.kind == "open" else self._closed(price)
        elif entry.kind == "limit" and values["unit"] == self.unit:
            self._limited(values)
        elif entry.kind == "unit" and values["unit"] == self.unit:
            self.begin(values["earlier"])
        elif entry.kind == "group" and values["unit"] == self.unit:
            cost = {name: values[name] for name in ("epsilon", "delta")}
            self.groups[values["group"]] = {**cost, "runs": [], "remaining": [plan["key"] for plan in values["plans"]]}
        elif entry.kind == "lost":
            self.not_private += 1
            self.lost.append(entry.number)

    def _opened(self, values: dict[str, Any], price: dict[str, Any]) -> None:
        self.runs += 1
        counts, run = price["counts"], values["run"]
        if counts == LEFT_OUT:
            self.left_out += 1
        elif counts in (SEEDED, UNPROVED):
            self._not_private(self.seeded if counts == SEEDED else self.unproved, run)
        elif counts == PLAIN:
            _add(self.plain, price)
        elif counts == GROUP:
            name, plan = price["group"]["name"], price["group"]["plan"]
            group = self.groups.setdefault(name, {"epsilon": math.inf, "delta": 0.0, "runs": [], "remaining": []})
            group["runs"].append(run)
            group["remaining"] = _without_one(group["remaining"], plan)
        elif counts == FILTER and self.phase is not None:
            self.phase.filter = price["filter"]
            self.phase.cost += price["cost"]
            self.phase.cost_delta += price["cost_delta"]
            self.phase.runs += 1

    def _not_private(self, runs: list[str], run: str) -> None:
        self.not_private += 1
        if len(runs) < 3:
            runs.append(run)

    def _closed(self, price: dict[str, Any]) -> None:
        """Give back what was planned and not used, unless the phase has ended and others were given the rest."""
        if price["phase"] != len(self.phases):
            return
        if price["counts"] == PLAIN:
            self.plain.epsilon = max(0.0, self.plain.epsilon - price["was"]["epsilon"] + price["epsilon"])
            self.plain.delta = max(0.0, self.plain.delta - price["was"]["delta"] + price["delta"])
        elif price["counts"] == FILTER and self.phase is not None:
            self.phase.cost = max(0.0, self.phase.cost - price["was"]["cost"] + price["cost"])
            self.phase.cost_delta = max(0.0, self.phase.cost_delta - price["was"]["cost_delta"] + price["cost_delta"])

    def _limited(self, values: dict[str, Any]) -> None:
        self.limit = {name: values[name] for name in ("epsilon", "delta", "operator", "purpose")}
        if self.phase is not None and values["change"] == "lowered":
            self.phase.cap_epsilon, self.phase.cap_delta = float(values["cap_epsilon"]), float(values["cap_delta"])
            return
        if self.phase is not None and self.phase.runs == 0:
            self.phases.pop()
        self.earlier = Sum(**_floats(values["earlier"], ("epsilon", "delta")))
        given = float(values["cap_epsilon"]), float(values["cap_delta"])
        self.phases.append(Phase(*given, *given, wanted=values["filter"]))

    def begin(self, earlier: dict[str, Any]) -> None:
        """Runs for other units that were there before this unit was first asked for."""
        self.runs += earlier["runs"]
        self.left_out += earlier["left_out"]
        for name in ("seeded", "unproved"):
            getattr(self, name).extend(earlier[name][:3])
        self.not_private += earlier["not_private"]
        self.plain = Sum(earlier["epsilon"], earlier["delta"], earlier["counted"])


def _add(total: Sum, price: dict[str, Any]) -> None:
    total.epsilon += price["epsilon"]
    total.delta += price["delta"]
    total.runs += 1


def _without_one(names: list[str], name: str) -> list[str]:
    at = names.index(name) if name in names else len(names)
    return [*names[:at], *names[at + 1 :]]


def _floats(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The values with infinities read back from their JSON form."""
    return {key: float(value) if key in names else value for key, value in values.items()}


@dataclass
class Books:
    """All accounts, as the entries so far have made them."""

    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    lost: list[Entry] = field(default_factory=list)

    def account(self, dataset: str, unit: dict[str, Any]) -> Account:
        """The account of a dataset for a unit, opened if there is none."""
        key = (dataset, unit_key(unit))
        if key not in self.accounts:
            self.accounts[key] = new_account(dataset, unit, self.lost)
        return self.accounts[key]

    def take_in(self, entry: Entry) -> None:
        """Let an entry change the accounts it concerns."""
        if entry.kind == "lost":
            self.lost.append(entry)
            for account in self.accounts.values():
                account.apply(entry)
        elif entry.dataset is not None and entry.kind in COUNTING:
            for unit in units_named(entry):
                self.account(entry.dataset, unit).apply(entry)
            for account in self.accounts.values():
                if account.dataset == entry.dataset:
                    account.upto = entry.number


def new_account(dataset: str, unit: dict[str, Any], lost: list[Entry]) -> Account:
    """An account without runs; entries that were lost may have been about any dataset, also one that looks new."""
    account = Account(dataset, unit)
    for entry in lost:
        account.apply(entry)
    return account


def fold(history: History) -> Books:
    """All accounts of a history, from its entries alone."""
    books = Books()
    for entry in history.entries:
        books.take_in(entry)
    return books


def units_named(entry: Entry) -> list[dict[str, Any]]:
    """The units whose accounts an entry changes."""
    if entry.kind in ("open", "close"):
        return [price["unit"] for price in entry.values["prices"]]
    return [entry.values["unit"]] if entry.kind in ("limit", "unit", "group") else []


_LOG = logging.getLogger("hushgraph.ledger")


@dataclass(frozen=True)
class RunningTotals:
    """The accounts in the rows of an open transaction."""

    rows: Rows
    keys: Keys

    def all(self, dataset: str | None = None) -> list[Account]:
        """The accounts that have a row, and those that the entries name: neither can hide one from the other."""
        found = {row[:2]: self._read(*row) for row in self.rows.accounts(dataset)}
        for entry in self.rows.of_kind("unit", dataset=dataset):
            key = (entry.values["dataset"], unit_key(entry.values["unit"]))
            if key not in found and (account := self._from_entries().accounts.get(key)):
                found[key] = account
        return list(found.values())

    def find(self, dataset: str, unit: dict[str, Any]) -> Account | None:
        """The account of a dataset for a unit, if there is one."""
        return next((account for account in self.all(dataset) if account.unit == unit), None)

    def take_in(self, entry: Entry) -> None:
        """Let a new entry change the accounts it concerns. The entry is not among the rows yet."""
        books = Books()
        if entry.kind == "lost" or (entry.kind in COUNTING and entry.dataset is not None):
            for account in self.all(None if entry.kind == "lost" else entry.dataset):
                books.accounts[account.dataset, unit_key(account.unit)] = account
            books.lost = self.rows.of_kind("lost")
            books.take_in(entry)
        for account in books.accounts.values():
            self.write(account)

    def write(self, account: Account) -> None:
        """Replace the row of an account."""
        unit, state = unit_key(account.unit), canonical(account.as_dict())
        self.rows.set_account(account.dataset, unit, state, self._checksum(account.dataset, unit, state))

    def is_row_of(self, row: tuple[str, str, str, str], account: Account) -> bool:
        """Whether a row holds exactly this account, with the checksum that belongs to it."""
        dataset, unit, state, checksum = row
        return state == canonical(account.as_dict()) and checksum == self._checksum(dataset, unit, state)

    def _read(self, dataset: str, unit: str, state: str, checksum: str) -> Account:
        if checksum == self._checksum(dataset, unit, state):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                account = Account.from_dict(json.loads(state))
                upto, lost = self.rows.last_number(COUNTING, dataset), self.rows.count("lost")
                if (account.upto, len(account.lost)) == (upto, lost):
                    return account
        _LOG.warning("the running total of '%s' was changed or damaged; computed again from the entries", dataset)
        found = self._from_entries().accounts.get((dataset, unit))
        if found is None:
            raise LedgerError(f"{self.rows.store.where}: a running total belongs to no entry: the file was changed")
        return found

    def _from_entries(self) -> Books:
        entries = self.rows.all()
        check_chain(entries, self.rows.store.where)
        return fold(History(tuple(entries)))

    def _checksum(self, dataset: str, unit: str, state: str) -> str:
        return self.keys.checksum(canonical([dataset, unit, state]))
