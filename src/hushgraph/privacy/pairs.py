"""The stage that asks whether neighbors agree: three counts of pairs with whole-number noise, pure epsilon.

Proof: docs/proofs/pairs.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from hushgraph.errors import UnprovenError
from hushgraph.privacy.units import Node, NodeReplace, Unit
from hushgraph.privacy.whole_numbers import WholeNumberStage


@dataclass(frozen=True)
class PairStage(WholeNumberStage):
    """The three noisy counts of `mechanisms.pairs`: neighbors that agree, that differ, and blind pairs that agree."""

    @property
    def mechanism(self) -> str:
        """Pair, count, add whole-number noise."""
        return "noisy count of pairs"

    def sensitivity(self, unit: Unit) -> float:
        """How far one unit can move the three counts together.

        A null asker may hand its answerer's place to another asker: one pair less in one count, one more in the other;
        a null answerer takes its own pair away; either takes at most one equal blind pair. A replaced asker does
        the first at two answerers.
        """
        if type(unit) is Node:
            return 3.0
        if type(unit) is NodeReplace:
            return 5.0
        raise UnprovenError(f"no bound is known for counts of pairs under the unit '{unit.name}'")
