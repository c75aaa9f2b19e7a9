"""The stage of a noisy count of edges: whole-number noise, pure epsilon.

Proof: docs/proofs/count.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgraph.errors import UnprovenError
from hushgraph.privacy.units import DirectedEdge, Node, NodePromise, NodeReplace, UndirectedEdge, Unit
from hushgraph.privacy.whole_numbers import WholeNumberStage


@dataclass(frozen=True)
class CountStage(WholeNumberStage):
    """Noisy counts of the entries of all own lists, of which each list adds at most `cap`."""

    cap: int = 1

    def _whole_numbers(self) -> dict[str, Any]:
        return {**super()._whole_numbers(), "cap": self.cap}

    @property
    def mechanism(self) -> str:
        """Cut, count, add whole-number noise."""
        return "noisy count"

    def sensitivity(self, unit: Unit) -> float:
        """How far one unit can move the count.

        A record's own list adds at most `cap`, whether it becomes null or another list: no other list changes. A node
        removed with all that is incident to it takes its own list, and one entry from each of at most D others.
        """
        if type(unit) is DirectedEdge:
            return 1.0
        if type(unit) is UndirectedEdge:
            return 2.0
        if type(unit) in (Node, NodeReplace):
            return float(self.cap)
        if type(unit) is NodePromise:
            return float(min(self.cap, unit.max_degree) + unit.max_degree)
        raise UnprovenError(f"no bound is known for a count of edges under the unit '{unit.name}'")

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `WholeNumberStage.as_dict`, with the cut."""
        return {**super().as_dict(unit), "cap": self.cap}
