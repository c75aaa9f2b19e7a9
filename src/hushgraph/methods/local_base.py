"""What methods for local differential privacy share: the public range, the local unit, and exact sums of epsilon.

Every person sends one randomized report; all that follows is computed from reports and from the public graph. The
report's price is known without any accountant: epsilons add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError, PrivateAccessError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.devices import Range
from hushgraph.methods.base import Method, TrainedModel
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import LocalStage, Plan
from hushgraph.privacy.units import Local, Unit
from hushgraph.vault import Progress, Vault

Bound = float | tuple[float, ...]


@dataclass(frozen=True)
class LocalMethod(Method):
    """Base of local methods. `low` and `high` are the public range of the features: one number, or one per column.

    Values outside are clipped. In paper mode the range is taken from the raw data, as publications do, and the
    certificate says that nothing is proved.
    """

    low: Bound | None = None
    high: Bound | None = None

    units = frozenset({"local"})

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, name, tuple(float(item) for item in value))
        if self.low is not None and self.high is not None:
            low, high = np.asarray(self.low), np.asarray(self.high)
            if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
                raise InputError(f"low, high: expected finite numbers with low < high; got {self.low!r}, {self.high!r}")

    @property
    def reads_features(self) -> bool:
        """Whether people are asked about their features."""
        return True

    def default_unit(self) -> Local:
        """The unit used when none is named."""
        return Local()

    def plan(self, facts: PublicFacts, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The reports and their price, from public facts only."""
        if budget.is_private and not paper_mode and self.reads_features:
            self.public_range()
        plan = super().plan(facts, unit, budget, paper_mode=paper_mode)
        if not paper_mode or not self.reads_features or not budget.is_private:
            return plan
        assert isinstance(unit, Local)
        return replace(plan, charged_unit=replace(unit, range_from_data=True))

    def assumptions(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """As for every method, and the range."""
        known = super().assumptions(facts, unit)
        if not self.reads_features or self.low is None or self.high is None:
            return known
        shown = f"[{_shown(self.low)}, {_shown(self.high)}]"
        return (*known, f"the range of the features, {shown}; values outside it are clipped on the device")

    def fit(
        self,
        graph: Any,
        unit: Unit | None = None,
        budget: Budget | None = None,
        *,
        ledger: Ledger | None = None,
        paper_mode: bool = False,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> TrainedModel:
        """As `Method.fit`; without `unit`, the local one."""
        unit = self.default_unit() if unit is None else unit
        return super().fit(graph, unit, budget, ledger=ledger, paper_mode=paper_mode, seed=seed, progress=progress)

    def public_range(self) -> tuple[Range, Range]:
        """The stated range; an error where there is none."""
        if self.low is None or self.high is None:
            raise InputError(
                "low, high: expected the public range of the features; got none. State it from what the features mean, "
                "without looking at the data (paper mode takes it from the data, and then nothing is proved)"
            )
        return _array(self.low), _array(self.high)

    def range_for(self, vault: Vault, plan: Plan) -> tuple[Range, Range]:
        """The range to clip to: the raw one in paper mode, the public one otherwise."""
        return vault.raw_range() if plan.paper_mode else self.public_range()


def within(total: float, shares: int = 1, taken: float = 0.0) -> float:
    """The largest epsilon e with `shares` * e + `taken` <= `total` in floating point: never a hair over budget."""
    share = (total - taken) / shares
    while share > 0.0 and not shares * share + taken <= total:
        share = math.nextafter(share, 0.0)
    if share <= 0.0:
        raise InputError(f"epsilon: expected more than {taken:g} in total; got {total:g}. Raise the budget")
    return share


def local_stage(plan: Plan, name: str) -> LocalStage:
    """The local stage called `name`."""
    stage = plan.stage(name)
    if not isinstance(stage, LocalStage):
        raise PrivateAccessError(f"the stage '{name}' is not a local report")
    return stage


def _array(bound: Bound) -> Range:
    return np.asarray(bound, dtype=np.float64) if isinstance(bound, tuple) else float(bound)


def _shown(bound: Bound) -> str:
    return "one value per column" if isinstance(bound, tuple) else f"{bound:g}"
