"""A name that was given a limit before any data of it was seen, and data that was known under another name.

When both meet they are joined: the limit binds all runs on that data, those before it included, and the name means the
data from then on. A limit that the earlier runs exceed refuses all further ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hushgraph.ledger.accounts import Account, Books
from hushgraph.ledger.datasets import JOINED
from hushgraph.ledger.entries import Entry, History
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.store import Rows
from hushgraph.privacy.units import from_dict

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger


def join(ledger: Ledger, rows: Rows, pending: str, dataset: str) -> None:
    """Enter that the name `pending` means `dataset`, and set its limits there; a part of a transaction."""
    ledger.append(JOINED, {"dataset": pending, "name": pending, "into": dataset, **ledger.occasion.who})
    for account in ledger.accounts(pending):
        target = ledger.begin_unit(rows, dataset, from_dict(account.unit))
        if account.limit is not None and not _binds(target.limit, account.limit):
            _inherit(ledger, target, account)


def _inherit(ledger: Ledger, target: Account, source: Account) -> None:
    """The limit of `source`, or the stricter of both where `target` has one; who set it stays."""
    limits = [limit for limit in (source.limit, target.limit) if limit is not None]
    epsilon, delta = (min(float(limit[name]) for limit in limits) for name in ("epsilon", "delta"))
    wanted = source.phase.wanted if source.phase is not None and target.phase is None else None
    who = {name: limits[0][name] for name in ("operator", "purpose")}
    ledger.enter_limit(target, epsilon, delta, wanted, {**who, "joined": source.dataset})


def _binds(limit: dict[str, Any] | None, other: dict[str, Any]) -> bool:
    """Whether a limit is at least as strict as another."""
    return limit is not None and all(float(limit[name]) <= float(other[name]) for name in ("epsilon", "delta"))


# What verification asks


def join_problems(history: History) -> list[str]:
    """Limits on a name that did not reach the data that is called so."""
    found = _Names()
    for entry in history.entries:
        found.take_in(entry)
    late = [f"the limit of '{name}' was not set on '{into}' when they were joined" for name, into, *_ in found.owed]
    split = [
        f"'{name}' has a limit, and '{dataset}' is called so too, whose runs are not bound by it. The next run on data "
        "that is called so joins them"
        for name, dataset in found.split.items()
    ]
    return [*found.problems, *late, *split]


@dataclass
class _Names:
    """The limits of names without data, as far as the entries were read."""

    books: Books = field(default_factory=Books)
    pending: set[str] = field(default_factory=set)
    split: dict[str, str] = field(default_factory=dict)
    owed: list[tuple[str, str, str, dict[str, Any]]] = field(default_factory=list)
    """Name, dataset, unit and limit of what was joined, until the limit is set."""
    problems: list[str] = field(default_factory=list)

    def take_in(self, entry: Entry) -> None:
        """Read one more entry."""
        dataset = entry.dataset or ""
        if entry.kind == "dataset" and entry.values.get("sketch") is None:
            self.pending.add(dataset)
        elif entry.kind in ("identified", "continues"):
            self.pending.discard(dataset)
        if entry.kind in ("alias", "continues"):
            self._called(entry.values["name"], dataset)
        elif entry.kind == JOINED:
            self._joined(dataset, entry.values["into"])
        elif entry.kind == "open" and (late := [one for one in self.owed if one[1] == dataset]):
            self.problems.append(f"run {entry.run}: was let in before the limit of '{late[0][0]}' was set on its data")
        self.books.take_in(entry)
        self.owed = [one for one in self.owed if not self._is_set(*one[1:])]

    def _limited(self, dataset: str) -> list[Account]:
        return [one for one in self.books.accounts.values() if one.dataset == dataset and one.limit is not None]

    def _called(self, name: str, dataset: str) -> None:
        """A split that was decided (runs that were entered by name only) has no limit to bind, or runs of its own."""
        if name in self.pending and name != dataset and any(not account.runs for account in self._limited(name)):
            self.split[name] = dataset

    def _joined(self, name: str, into: str) -> None:
        self.pending.discard(name)
        self.split.pop(name, None)
        for account in self._limited(name):
            assert account.limit is not None
            self.owed.append((name, into, unit_key(account.unit), account.limit))

    def _is_set(self, dataset: str, unit: str, limit: dict[str, Any]) -> bool:
        account = self.books.accounts.get((dataset, unit))
        return account is not None and _binds(account.limit, limit)
