"""Every registered mechanism under every registered unit: free, bounded or refused.

The table follows from what mechanisms and units declare, so a class that is registered later is in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hushgraph import registry
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import Unit

Status = Literal["free", "bounded", "refused"]


@dataclass(frozen=True)
class Cell:
    """One mechanism under one unit. `bound` is the sensitivity, 0 where free and infinite where refused."""

    mechanism: Mechanism
    unit: Unit

    @property
    def bound(self) -> float:
        """How far one unit can move one answer."""
        return 0.0 if self.mechanism.reads <= self.unit.public else self.mechanism.sensitivity(self.unit)

    @property
    def status(self) -> Status:
        """Free: all that is read is public. Refused: no bound is proved. Bounded: everything else."""
        if self.mechanism.reads <= self.unit.public:
            return "free"
        return "bounded" if math.isfinite(self.bound) else "refused"


def mechanisms() -> list[Mechanism]:
    """The variants of all registered mechanisms."""
    return [one for name in registry.names("mechanisms") for one in registry.load("mechanisms", name).variants()]


def units() -> list[Unit]:
    """The variants of all registered units."""
    return [one for name in registry.names("units") for one in registry.load("units", name).variants()]


def matrix() -> Iterator[Cell]:
    """All cells, mechanism by mechanism."""
    for mechanism in mechanisms():
        for unit in units():
            yield Cell(mechanism, unit)
