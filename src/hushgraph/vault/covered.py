"""Charges of a run that needs no entry of its own: another entry covers it, or nobody's data is in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hushgraph.errors import BudgetError
from hushgraph.privacy.plan import Stage


@dataclass
class CoveredCharges:
    """Stands in a vault where the run on a ledger would: charges are counted in memory and held to the plan."""

    made: Counter[str] = field(default_factory=Counter)

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Count the releases; more than planned would tell more than was claimed, and are refused."""
        self.made[stage.name] += stage.count if count is None else count
        if self.made[stage.name] > stage.count:
            raise BudgetError(f"'{stage.name}': expected at most {stage.count} releases; got more")

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Other records only: no further charge."""
