"""The ledger: what has been spent on every dataset of a project, written before anything is released.

A ledger is a folder with one file of chained entries (`store`), keys (`keys`) and a lock (`lock`). What is appended is
on the disk before `append` returns, and mechanisms append before they hand anything out: a crash can lose a release,
never a charge. All datasets and units of a project are in one ledger; `Ledger.total` adds up one dataset for one unit.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger import groups, joining, old
from hushgraph.ledger.accounts import Account, fold, new_account
from hushgraph.ledger.chain import Chain
from hushgraph.ledger.datasets import (
    JOINED,
    Dataset,
    decide,
    known_datasets,
    read_sketches,
    resolve,
    sketch_text,
)
from hushgraph.ledger.entries import History
from hushgraph.ledger.identity import DatasetIdentity, GraphArrays, arrays_of, features_alone, identify
from hushgraph.ledger.limits import new_limit, require_purpose
from hushgraph.ledger.lock import TIMEOUT
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.prices import earlier_runs
from hushgraph.ledger.store import Rows
from hushgraph.ledger.totals import Total, curves_of, total_of
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit, from_dict


class InMemoryLedgerWarning(UserWarning):
    """Charges are kept in memory: nothing adds them up beyond this process."""


class Ledger(Chain):
    """The ledger in `folder`, or one in memory (`folder=None`) that adds up nothing beyond this process."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, lock_timeout: float = TIMEOUT) -> None:
        super().__init__(folder, lock_timeout=lock_timeout)
        self.occasion = Occasion()
        self.warns = folder is None

    @classmethod
    def in_memory(cls, *, warn: bool = True) -> Ledger:
        """A ledger that ends with this process; `warn=False` for data made up on the spot, such as an audit's."""
        ledger = cls()
        ledger.warns = warn
        return ledger

    def on(self, occasion: Occasion) -> Ledger:
        """The same ledger, with another occasion for the runs that are opened on it."""
        view = copy.copy(self)
        view.occasion = occasion
        return view

    def recognizing(self, graph: Any) -> Ledger:
        """The same ledger, told the data itself, so that it finds the dataset under any name; not in memory."""
        if self.folder is None or self.occasion.arrays is not None:
            return self
        return self.on(replace(self.occasion, arrays=arrays_of(graph)))

    def readable(self) -> Ledger:
        """This ledger; for one of format 1, what it says as a ledger of today in memory."""
        return old.replayed(self.folder) if self.is_old and self.folder is not None else self

    def history(self) -> History:
        """All entries, each checked to follow from the one before; those of format 1 as of today."""
        return replace(self.readable().history(), in_memory=False) if self.is_old else super().history()

    # Datasets

    def identify(self, arrays: GraphArrays) -> DatasetIdentity:
        """What recognizes a dataset by its content, under this ledger's secret."""
        if not self.store.is_there:
            with self.transaction():
                pass  # a new ledger gets its keys
        return identify(arrays, self.keys.derived("identity"))

    def dataset_for(
        self, identity: DatasetIdentity, name: str, continues: str | None = None, separate: str | None = None
    ) -> str:
        """The id of the dataset with this content, entered if it is new. Nothing is charged.

        Data that resembles a known dataset needs a decision: the name that it `continues`, or why it is `separate`;
        where neither is given, the occasion's.
        """
        if continues is None and separate is None:
            continues, separate = self.occasion.continues, self.occasion.separate
        with self.transaction() as rows:
            decision = decide(rows, identity, name, continues, separate)
            if decision.kind is not None:
                content, link = sketch_text(identity)
                if decision.values.get("sketch") is not None:
                    rows.add_sketch(link, content)
                self.append(decision.kind, {**decision.values, **self.occasion.who})
            for pending in decision.joins:
                joining.join(self, rows, pending, decision.dataset)
            return decision.dataset

    def dataset_named(self, name: str) -> str:
        """The id of the dataset called `name`, entered by its name alone if there is none yet."""
        with self.transaction() as rows:
            if rows.of_kind("dataset", last=1, dataset=name) and not rows.of_kind(JOINED, last=1, dataset=name):
                return name
            known = known_datasets(rows)
            if any(name in dataset.names for dataset in known.values()):
                return resolve(known, name)
            self.append("dataset", {"dataset": name, "name": name, "sketch": None, **self.occasion.who})
            return name

    def recognizes_records(self, run: str, features: Any) -> bool | None:
        """Whether these are the records a run was made on, as far as the sketches tell; None where they do not."""
        with self.reading() as rows:
            known, sketches = known_datasets(rows), read_sketches(rows)
            opened = next((one for one in rows.of_kind("open") if one.values["run"] == run), None)
        dataset = None if opened is None else known.get(opened.values["dataset"])
        of_run = [] if dataset is None else dataset.sketches
        stored = [sketches[link].records for link in of_run if link in sketches and sketches[link].records.size]
        if not stored:
            return None
        return self.identify(features_alone(features)).records in stored

    def datasets(self) -> dict[str, Dataset]:
        """All datasets of the ledger by their id."""
        with self.reading() as rows:
            return known_datasets(rows)

    def find_dataset(self, name: str) -> str:
        """The id of a known dataset, from its id or one of its names."""
        return resolve(self.datasets(), name)

    def create(self, dataset: str, unit: dict[str, Any]) -> str:
        """Enter a dataset by its name, to be protected for `unit`, before anything is run on it; no limit yet."""
        with self.transaction() as rows:
            found = self.dataset_named(dataset)
            self.begin_unit(rows, found, from_dict(unit))
        return found

    # Totals

    def accounts(self, dataset: str | None = None) -> list[Account]:
        """The running totals of all datasets, or of one, for every unit that was charged or limited."""
        if self.is_old:
            return self.readable().accounts(dataset)
        with self.reading() as rows:
            try:
                self._find_keys()
            except LedgerError:  # a copy of the file without its keys: running totals cannot be checked, entries can
                found = fold(self.history()).accounts.values()
                return [account for account in found if dataset in (None, account.dataset)]
            return self._running(rows).all(dataset)

    def total(self, dataset: str, unit: Unit, delta: float | None = None) -> Total:
        """What all runs on a dataset add up to for `unit`, whether or not they were charged for it."""
        book = self.readable()
        dataset = book.find_dataset(dataset)
        found = [account for account in book.accounts(dataset) if account.unit == unit.as_dict()]
        if found:
            account = found[0]
        else:
            history = book.history()
            account = new_account(dataset, unit.as_dict(), history.of_kind("lost"))
            account.begin(earlier_runs(history, dataset, unit))
        return total_of(account, delta, lambda: curves_of(book.history(), account))

    def set_limit(
        self,
        epsilon: float,
        delta: float,
        *,
        dataset: str | None = None,
        unit: Unit | None = None,
        filter: str | None = None,
    ) -> dict[str, Any]:
        """Declare (raise, lower) the limit on a dataset for a unit; runs over it are refused from now on.

        Dataset and unit may be left out where the ledger has one of each. A dataset that is known by its name alone has
        a *pending* limit: it binds the first data used under that name. Raising a limit needs the occasion's purpose.
        Returns what was entered.
        """
        with self.transaction() as rows:
            account = self._one_account(rows, dataset, unit)
            require_purpose(account, epsilon, delta, self.occasion.purpose)
            values = self.enter_limit(account, epsilon, delta, filter, self.occasion.who)
            pending = not (account.runs or known_datasets(rows)[account.dataset].sketches)
            return {**values, "runs": account.runs, "pending": pending}

    def enter_limit(
        self, account: Account, epsilon: float, delta: float, filter: str | None, who: dict[str, Any]
    ) -> dict[str, Any]:
        """Write a limit down, with what earlier runs leave of it; a part of a transaction."""
        given = new_limit(account, epsilon, delta, filter, lambda: curves_of(self.history(), account))
        values = {"dataset": account.dataset, "unit": account.unit, "epsilon": epsilon, "delta": delta, **given}
        self.append("limit", {**values, **who})
        return values

    def declare_group(self, name: str, plans: Sequence[Plan], *, dataset: str) -> dict[str, Any]:
        """Declare runs on a dataset together, with all their plans, before the first of them; they compose as one plan.

        Returns what was entered. Runs join it by `group=name`, in any order, each once; other plans are refused there.
        """
        if not plans:
            raise InputError(f"group '{name}': expected the plans of its runs; got none")
        values = groups.declaration(name, plans, plans[0].unit)
        with self.transaction() as rows:
            found = self.dataset_named(dataset)
            groups.require_new(self.begin_unit(rows, found, plans[0].unit), name)
            self.append("group", {"dataset": found, **values, **self.occasion.who})
        return {"dataset": found, **values}

    def begin_unit(self, rows: Rows, dataset: str, unit: Unit) -> Account:
        """The account of a dataset for a unit, opened if there is none, with what earlier runs cost under the unit."""
        own = unit.as_dict()
        account = self._running(rows).find(dataset, own)
        if account is None:
            known = bool(rows.of_kind("open", last=1, dataset=dataset))
            history = self.history() if known else History(())
            earlier = earlier_runs(history, dataset, unit)
            self.append("unit", {"dataset": dataset, "unit": own, "earlier": earlier})
            account = self._running(rows).find(dataset, own)
            assert account is not None
        return account

    def _one_account(self, rows: Rows, dataset: str | None, unit: Unit | None) -> Account:
        known = known_datasets(rows)
        if dataset is None and len(known) != 1:
            raise InputError(f"dataset: expected a name, because the ledger has {len(known)}: {', '.join(known)}")
        chosen = next(iter(known)) if dataset is None else self.dataset_named(dataset)
        if unit is not None:
            return self.begin_unit(rows, chosen, unit)
        found = self._running(rows).all(chosen)
        if len(found) != 1:
            names = ", ".join(account.unit["name"] for account in found) or "none"
            raise InputError(f"unit: expected one, because '{chosen}' was charged for {len(found)} ({names})")
        return found[0]
