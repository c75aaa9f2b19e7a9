"""What methods for local differential privacy share: the public range, the local unit, and exact sums of epsilon.

Every person sends one randomized report; all that follows is computed from reports and from the public graph. What a
report costs is known without any accountant: epsilons add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.mechanisms.local_report import LocalReport, Range
from hushgraph.methods.base import Method
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Local, Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.loop import BestEpoch
from hushgraph.training.losses import mean_loss
from hushgraph.training.whole_graph import at_inference, fresh_start, train_on_graph
from hushgraph.vault import Vault


@dataclass(frozen=True)
class LocalMethod(Method):
    """Base of local methods. `low` and `high` are the public range of the features: one number, or one per column.

    Values outside are clipped. In paper mode the range is taken from the raw data, as publications do, and the
    certificate says that nothing is proved.
    """

    trust = "local"

    low: Range | None = setting(None, help="least value of the features, from what they mean")
    high: Range | None = setting(None, help="largest value of the features, from what they mean")

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, name, tuple(float(item) for item in value))
        super().__post_init__()

    def problems(self) -> list[str]:
        """As for every method, and the range."""
        found = super().problems()
        if self.low is not None and self.high is not None:
            low, high = np.asarray(self.low), np.asarray(self.high)
            if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
                found.append(f"low, high: expected finite numbers with low < high; got {self.low!r}, {self.high!r}")
        return found

    @property
    def reads_features(self) -> bool:
        """Whether people are asked about their features."""
        return True

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """The local one."""
        return Local()

    def report(self, name: str, randomizer: Any, part: str = "features") -> Stage:
        """The stage of one report; its cost is the randomizer's."""
        low, high = (self.low, self.high) if part == "features" else (0.0, 1.0)
        mechanism = LocalReport(randomizer, part, 0.0 if low is None else low, 1.0 if high is None else high)
        return Stage(name, mechanism, noise=None, scale=1.0)

    def plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The reports and what they cost, from public sizes only."""
        if budget.is_private and not paper_mode and self.reads_features and (self.low is None or self.high is None):
            raise InputError(
                "low, high: expected the public range of the features; got none. State it from what the features mean, "
                "without looking at the data: low=0, high=1 (--set low=0 --set high=1). Paper mode takes it from the "
                "data, and then nothing is proved"
            )
        return super().plan(metadata, unit, budget, paper_mode=paper_mode)

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """As for every method, and the range."""
        known = super().public_notes(metadata, unit)
        if not self.reads_features:
            return known
        if self.low is None or self.high is None:
            return [*known, note(Code.RANGE_FROM_DATA)]
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            return [*known, note(Code.RANGE_PER_COLUMN)]
        return [*known, note(Code.RANGE, low=self.low, high=self.high)]


def within(total: float, shares: int = 1, taken: float = 0.0) -> float:
    """The largest epsilon e with `shares` * e + `taken` <= `total` in floating point: never a hair over budget."""
    share = (total - taken) / shares
    while share > 0.0 and not shares * share + taken <= total:
        share = math.nextafter(share, 0.0)
    if share <= 0.0:
        raise InputError(f"epsilon: expected more than {taken:g} in total; got {total:g}. Raise the budget")
    return share


def train_plainly(
    vault: Vault, network: nn.Module, scores: Callable[[], Tensor], training: Training, patience: int
) -> int:
    """Train on public labels until the validation loss has not fallen for `patience` epochs; the best epoch."""
    labels, train, val = vault.labels, vault.labeled("train"), vault.labeled("val")

    def loss(nodes: Tensor) -> Tensor:
        return mean_loss(scores()[nodes], labels[nodes])

    held_out = val if val.numel() else train
    judge = at_inference(network, lambda: -float(loss(held_out)))
    best = BestEpoch(network, judge, patience=patience, least=10)
    with fresh_start(network, int(torch.randint(2**62, (1,), generator=vault.generator("weights")))):
        train_on_graph(network, lambda: loss(train), training, best=best, on_epoch=vault.progress_of("training"))
    return best.epoch


def require_local(unit: Unit, method: str) -> None:
    """Refuse a unit under which a server sees raw values."""
    if unit.trust != "local":
        raise UnprovenError(f"{method} collects reports from people's devices: expected the unit local; got '{unit}'")
