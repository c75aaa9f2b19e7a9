"""The stage of Chorus: noisy sums of label rows, with noise and loudness by kind of node.

Nodes are of two public kinds: those with a known label (train nodes) and the others. The kinds may send rows of
different norm and receive noise of different size, so the cost of an edge depends on the kinds at its ends. What the
unit can do to the whole release is worked out here; the proof is docs/proofs/chorus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import DirectedEdge, Node, NodePromise, NodeReplace, UndirectedEdge, Unit


@dataclass(frozen=True)
class LabelSumStage(Stage):
    """Sums over in-neighbors of rows with no negative entry: norm at most 1 from labeled nodes, `quiet` from others.

    `std` is the noise of a row that belongs to an unlabeled node; rows of labeled nodes get `labeled_noise` times
    as much. With `shared`, every node divides its row by the root of the length of its own list, so that all it sends
    together has norm at most 1 whatever that length is. With `centered`, a row is sent without its mean and
    lengthened to make up for it: no longer than before, but the messages of two classes lie further apart.
    """

    quiet: float = 1.0
    labeled_noise: float = 1.0
    shared: bool = False
    centered: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.quiet <= 1.0:
            problems.append(f"quiet: expected a norm from 0 to 1; got {self.quiet!r}")
        if not (math.isfinite(self.labeled_noise) and self.labeled_noise >= 1.0):
            problems.append(f"labeled_noise: expected at least 1; got {self.labeled_noise!r}")
        InputError.collect(problems)

    @property
    def mechanism(self) -> str:
        """Sum labels, perturb."""
        return "label sum"

    def sensitivity(self, unit: Unit) -> float:
        """L2 change of one release over one unit, each row measured in multiples of its own noise over `std`."""
        if self.shared:
            return self._shared(unit)
        if type(unit) is DirectedEdge:
            return 1.0  # one row gains or loses at most 1, and noise is never below `std`
        if type(unit) is UndirectedEdge:
            return self._undirected()
        if type(unit) in (Node, NodePromise, NodeReplace):
            return unit.aggregation_sensitivity(1.0)
        raise UnprovenError(f"no bound is known for a sum of labels under the unit '{unit.name}'")

    def _undirected(self) -> float:
        """The costliest of three kinds of friendship: both labeled, one of them, none."""
        low, quiet = self.labeled_noise**-2, self.quiet**2
        return math.sqrt(max(2.0 * low, 1.0 + quiet * low, 2.0 * quiet))

    def _shared(self, unit: Unit) -> float:
        """All a record sends has norm at most 1; two such records without negative entries differ by sqrt(2)."""
        if type(unit) is Node:
            return 1.0
        if type(unit) is NodeReplace:
            return 2.0 if self.centered else math.sqrt(2.0)
        raise UnprovenError(
            f"a message divided by the length of the sender's list has no bound under the unit '{unit.name}', where a "
            "neighbor's list may change too; use shared=False"
        )

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `Stage.as_dict`, with the loudness and noise of the two kinds."""
        own = {"quiet": self.quiet, "labeled_noise": self.labeled_noise, "shared": self.shared}
        return {**super().as_dict(unit), **own, "centered": self.centered}
