"""Whether the entries of a ledger fit one another: charges their plans, prices their events, runs their limits.

Everything is computed again from the entries alone, without torch.

A check verifies each point, cannot check it, or contradicts it (`Finding`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.accounts import FILTER, Account, Books, Sum
from hushgraph.ledger.entries import Entry, History
from hushgraph.ledger.groups import declaration_problems
from hushgraph.ledger.joining import join_problems
from hushgraph.ledger.limits import Refusal, Request, cause_in_words, closing_price, over_before, price_run
from hushgraph.ledger.prices import Ways, unit_key
from hushgraph.privacy import events, units
from hushgraph.text import counted

_TOLERANCE = 1e-6
"""Relative; versions of the accountants may differ in the last digits."""


def check_history(history: History) -> None:
    """Refuse entries that do not fit one another, with everything that was found."""
    problems = history_problems(history)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise LedgerError(problems[0] if len(problems) == 1 else f"{len(problems)} problems:\n{listed}")


def history_problems(history: History) -> list[str]:
    """What does not fit, in the order of the entries."""
    problems = _unknown_runs(history)
    if problems:
        return problems
    for run in history.runs():
        problems += run_problems(history, run)
    return problems + _price_problems(history) + join_problems(history)


def _unknown_runs(history: History) -> list[str]:
    known = Counter(history.runs())
    twice = [f"the run {run} was opened {count} times" for run, count in known.items() if count > 1]
    orphans = [
        f"entry {entry.number} names the run {entry.run}, which was never opened"
        for entry in history.entries
        if entry.run is not None and entry.run not in known
    ]
    return twice + orphans


def run_problems(history: History, run: str) -> list[str]:
    """Charges that were not planned, choices that were not offered, and entries after the end."""
    opened = history.opened(run)
    choices = [entry.values["option"] for entry in history.of_run(run, "choice")]
    offered = {branch["method"]: branch for branch in opened["branches"]}
    if len(choices) > 1 or any(choice not in offered for choice in choices):
        return [f"run {run}: a choice does not fit its plan"]
    stages = [*opened["stages"], *(stage for choice in choices for stage in offered[choice]["stages"])]
    planned = {stage["name"]: stage for stage in stages}
    used: Counter[str] = Counter()
    problems = []
    for entry in history.of_run(run, "charge"):
        values = entry.values
        stage = planned.get(values["stage"])
        used[values["stage"]] += values["count"]
        if stage is None or used[values["stage"]] > stage["count"] or values["scale"] != stage["scale"]:
            problems.append(f"run {run}: a charge for '{values['stage']}' does not fit its plan (entry {entry.number})")
    closed = history.of_run(run, "close")
    after = [e for e in history.of_run(run) if closed and e.number > closed[0].number and e.kind in _DURING]
    if len(closed) > 1 or after:
        problems.append(f"run {run}: entries follow its end")
    if closed and closed[0].values["charges"] != len(history.of_run(run, "charge")):
        problems.append(f"run {run}: was closed with another number of charges than it has")
    return problems


_DURING = ("charge", "choice", "parallel", "close")


# Prices and limits


def _price_problems(history: History) -> list[str]:
    books = Books()
    problems: list[str] = []
    for entry in history.entries:
        if entry.kind == "open":
            problems += _open_problems(books, entry)
        elif entry.kind == "close":
            problems += _close_problems(history, entry)
        elif entry.kind == "limit":
            problems += _limit_problems(books, entry)
        elif entry.kind == "group":
            account = books.accounts.get((entry.dataset or "", unit_key(entry.values["unit"])))
            problems += declaration_problems(entry, account)
        books.take_in(entry)
    return problems


def _open_problems(books: Books, entry: Entry) -> list[str]:
    values, found = entry.values, []
    expected = {key for (dataset, key) in books.accounts if dataset == entry.dataset}
    if missing := expected - {unit_key(price["unit"]) for price in values["prices"]}:
        found.append(f"run {values['run']}: has no cost for {counted(len(missing), 'unit')} of its dataset")
    for price in values["prices"]:
        account = books.account(entry.dataset or "", price["unit"])
        own = price["unit"] == values["unit"]
        try:
            again = price_run(account, _request(values, price, own))
        except InputError as error:
            found.append(f"run {values['run']}: {error}")
            continue
        if isinstance(again, Refusal):
            found.append(f"run {values['run']}: was let in over the limit ({cause_in_words(again.cause)})")
        elif not _same_price(price, again):
            found.append(f"run {values['run']}: its cost for '{price['unit']['name']}' is not that of its events")
    return found


def _request(values: dict[str, Any], price: dict[str, Any], own: bool) -> Request:
    stored = values["ways"] if own else price["ways"]
    ways: Ways | None = None if stored is None else [events.from_json(way) for way in stored]
    unit, delta = units.from_dict(price["unit"]), values["claim"]["delta"]
    return Request(unit, ways, delta, values["seeded"], values["unpublished"], values["group"] if own else None)


def _same_price(stored: dict[str, Any], again: dict[str, Any]) -> bool:
    exact = all(stored[name] == again[name] for name in ("counts", "phase", "filter", "delta", "group"))
    return exact and all(_close(float(stored[name]), again[name]) for name in ("epsilon", "cost", "cost_delta"))


def _close_problems(history: History, entry: Entry) -> list[str]:
    """What a run gives back at its end must be what its charges leave over."""
    run = entry.values["run"]
    opened = {unit_key(price["unit"]): price for price in history.opened(run)["prices"]}
    own, had_choice = history.opened(run)["unit"], len(history.opened(run)["ways"]) > 1
    ways = [events.composed([events.from_json(charge.values["event"]) for charge in history.of_run(run, "charge")])]
    for price in entry.values["prices"]:
        before, unit = opened.get(unit_key(price["unit"])), units.from_dict(price["unit"])
        if before is None or price["unit"] != own:
            return [f"run {run}: its end names a unit it was not charged for"]
        if had_choice and before["counts"] != FILTER:
            return [f"run {run}: gives back at its end what it could have chosen, which only a filter allows"]
        again = closing_price(before, ways, unit)
        same = all(price[name] == before[name] for name in ("counts", "phase", "filter"))
        same = same and all(price["was"][name] == before[name] for name in ("epsilon", "delta", "cost", "cost_delta"))
        if not same or not all(_close(price[name], again[name]) for name in again):
            return [f"run {run}: gives back at its end what its charges do not leave over"]
    return []


def _limit_problems(books: Books, entry: Entry) -> list[str]:
    """A limit may give to its filter only what earlier runs leave; what these cost may be stated at smaller deltas."""
    values = entry.values
    account = books.accounts.get((entry.dataset or "", unit_key(values["unit"])))
    if account is None:
        return [f"entry {entry.number}: a limit for a dataset and unit that were not entered"]
    earlier = {name: float(values["earlier"][name]) for name in ("epsilon", "delta")}
    least = account.earlier if values["change"] == "lowered" else over_before(account)
    given = _close(float(values["cap_epsilon"]), values["epsilon"] - earlier["epsilon"])
    given = given and _close(float(values["cap_delta"]), values["delta"] - earlier["delta"])
    if values["change"] == "raised" and earlier["delta"] < least.delta * (1.0 - _TOLERANCE) and account.is_private:
        given = False  # a filter keeps the delta that it was given
    if not given or not _covers(earlier, least, account):
        return [f"entry {entry.number}: the limit gives more to the runs that follow than earlier runs leave"]
    return []


def _covers(earlier: dict[str, float], least: Sum, account: Account) -> bool:
    enough = account.is_private or not least.runs or math.isinf(earlier["epsilon"])
    return enough and earlier["epsilon"] >= least.epsilon * (1.0 - _TOLERANCE) and earlier["delta"] >= 0.0


def _close(stored: float, again: float) -> bool:
    return stored == again or math.isclose(stored, again, rel_tol=_TOLERANCE, abs_tol=1e-12)


class Status(StrEnum):
    """The outcome of one check, or of all of them together (the worst)."""

    VERIFIED = "verified"
    NOT_CHECKED = "not checked"
    NOT_VERIFIED = "not verified"
    REJECTED = "rejected"
    CONTRADICTED = "contradicted"


EXIT_CODES = {Status.VERIFIED: 0, Status.NOT_VERIFIED: 5, Status.REJECTED: 6, Status.CONTRADICTED: 4}
_WORST_FIRST = (Status.CONTRADICTED, Status.REJECTED, Status.NOT_VERIFIED)


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it came out, and what was found."""

    what: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return f"{self.status.value:<13} {self.what}: {self.detail}"


def good(what: str, detail: str) -> Finding:
    """It was checked and holds."""
    return Finding(what, Status.VERIFIED, detail)


def missing(what: str, detail: str) -> Finding:
    """It could not be checked."""
    return Finding(what, Status.NOT_VERIFIED, detail)


def outside(what: str, detail: str) -> Finding:
    """It is no part of what is checked, and says nothing for or against it."""
    return Finding(what, Status.NOT_CHECKED, detail)


def rejected(what: str, detail: str) -> Finding:
    """A person said no."""
    return Finding(what, Status.REJECTED, detail)


def bad(what: str, detail: str) -> Finding:
    """It does not hold."""
    return Finding(what, Status.CONTRADICTED, detail)


@dataclass(frozen=True)
class Verification:
    """All findings about one thing."""

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst that was found: contradicted, rejected by a person, not verified; else verified."""
        found = {finding.status for finding in self.findings}
        return next((status for status in _WORST_FIRST if status in found), Status.VERIFIED)

    @property
    def headline(self) -> str:
        """The outcome in one line; of a run that a person rejected, who did, and how the rest came out."""
        if self.status is not Status.REJECTED:
            return self.status.value.upper()
        rest = Verification(tuple(one for one in self.findings if one.status is not Status.REJECTED))
        who = "; ".join(finding.detail for finding in self.having(Status.REJECTED))
        return f"REJECTED ({who}); all else is {rest.status.value}"

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0 verified, 5 not verified, 6 rejected, 4 contradicted."""
        return EXIT_CODES[self.status]

    def having(self, status: Status) -> list[Finding]:
        """The findings that came out so."""
        return [finding for finding in self.findings if finding.status is status]

    def as_dict(self) -> dict[str, Any]:
        """The verification as plain JSON values."""
        shown = [{"what": f.what, "status": f.status.value, "detail": f.detail} for f in self.findings]
        return {"status": self.status.value, "headline": self.headline, "findings": shown}
