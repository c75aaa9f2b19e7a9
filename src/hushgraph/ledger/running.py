"""Running totals as rows of the file: what a limit check reads instead of all entries.

Each row has a keyed checksum and the number of the last entry it has taken in. A row that was changed, damaged, lost,
or is older than the entries, is computed again from the entries.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.ledger.accounts import COUNTING, Account, Books, fold
from hushgraph.ledger.entries import Entry, History, canonical, check_chain
from hushgraph.ledger.keys import Keys
from hushgraph.ledger.prices import unit_key
from hushgraph.ledger.store import Rows

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
                if account.upto == self._last_number(dataset) and len(account.lost) == len(self.rows.of_kind("lost")):
                    return account
        _LOG.warning("the running total of '%s' was changed or damaged; computed again from the entries", dataset)
        found = self._from_entries().accounts.get((dataset, unit))
        if found is None:
            raise LedgerError(f"{self.rows.store.where}: a running total belongs to no entry: the file was changed")
        return found

    def _last_number(self, dataset: str) -> int:
        last = [entry.number for kind in COUNTING for entry in self.rows.of_kind(kind, last=1, dataset=dataset)]
        return max(last, default=0)

    def _from_entries(self) -> Books:
        entries = self.rows.all()
        check_chain(entries, self.rows.store.where)
        return fold(History(tuple(entries)))

    def _checksum(self, dataset: str, unit: str, state: str) -> str:
        return self.keys.checksum(canonical([dataset, unit, state]))
