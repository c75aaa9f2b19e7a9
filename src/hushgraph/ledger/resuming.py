"""A run that goes on after its process was stopped: what it charged before is not charged again.

The pipeline of a method is carried out again from its beginning. Where a charge, a note or a choice is in the ledger
already, in the order in which it was made, it is passed over; what is new is entered as ever.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.entries import canonical
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.project import default_ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import Plan, Stage


@dataclass
class ResumedRun(Run):
    """`charged` and `noted` are what the ledger holds of each stage and was not met again yet."""

    charged: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    chosen: list[str] = field(default_factory=list)

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Charge what was not charged before."""
        wanted = stage.count if count is None else count
        if self.charged[stage.name] >= wanted:
            self.charged[stage.name] -= wanted
            return
        super().charge(stage, count)

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Note what was not noted before."""
        if self.noted[stage.name]:
            self.noted[stage.name] -= 1
            return
        super().note_parallel(stage, examples)

    def choose(self, branch: str, reason: Note) -> Plan:
        """The branch that was chosen before, or a new choice."""
        if self.chosen and self.chosen != [branch]:
            raise BudgetError(f"the run chose '{self.chosen[0]}' before it was stopped; got '{branch}'")
        return self.plan.branch(branch) if self.chosen else super().choose(branch, reason)


def enter_plan(
    graph: Any,
    plan: Plan,
    ledger: Ledger | str | os.PathLike[str] | None,
    *,
    seeded: bool,
    identity: str | None = None,
) -> Run:
    """Enter `plan` in the ledger, which may refuse it; the run called `identity` goes on where it is there already."""
    book = (ledger if isinstance(ledger, Ledger) else default_ledger(ledger)).recognizing(graph)
    if identity is not None and book.folder is None:
        raise InputError("checkpoint: expected a ledger on the disk, which remembers the run; got one in memory")
    known = None if identity is None else resumed_run(book, plan, identity, seeded=seeded)
    return known or open_run(book, plan, graph.metadata.name, seeded=seeded, identity=identity)


def resumed_run(ledger: Ledger, plan: Plan, identity: str, *, seeded: bool) -> ResumedRun | None:
    """The run called `identity`, ready to go on; None where it was never entered. Another plan is refused."""
    if not ledger.exists:
        return None
    with ledger.reading() as rows:
        entries = rows.of_run(identity)
    if not entries:
        return None
    opened = next(entry for entry in entries if entry.kind == "open").values
    if canonical(opened["plan"]) != canonical(plan.as_dict()) or bool(opened["seeded"]) != seeded:
        raise InputError(f"run {identity}: expected the plan that it was opened with; got another. Begin a new run")
    occasion = ledger.occasion
    if (opened.get("unpublished", False), opened.get("group")) != (occasion.unpublished, occasion.group):
        raise InputError(f"run {identity}: expected it to be published and grouped as it was entered; got another word")
    if any("abandoned" in entry.values for entry in entries if entry.kind == "close"):
        raise InputError(f"run {identity} was closed by somebody else: it cannot go on. Begin a new run")
    charged: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    for entry in entries:
        if entry.kind == "charge":
            charged[entry.values["stage"]] += entry.values["count"]
        elif entry.kind == "parallel":
            noted[entry.values["stage"]] += 1
    chosen = [entry.values["option"] for entry in entries if entry.kind == "choice"]
    return ResumedRun(
        ledger, plan, identity, seeded, opened["dataset"], opened["prices"], charged=charged, noted=noted, chosen=chosen
    )
