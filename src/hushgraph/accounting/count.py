"""The stage of a noisy count of edges: whole-number noise, pure epsilon.

Proof: docs/proofs/count.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hushgraph.accounting import events
from hushgraph.accounting.events import Event
from hushgraph.accounting.plan import Stage
from hushgraph.errors import InputError, UnprovenError
from hushgraph.units import DirectedEdge, Node, NodePromise, NodeReplace, UndirectedEdge, Unit


def discrete_laplace_std(scale: int) -> float:
    """The standard deviation of P[k] ~ exp(-|k| / scale) on the whole numbers."""
    return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / scale))


@dataclass(frozen=True)
class CountStage(Stage):
    """`count` noisy counts of the entries of all own lists, of which each list adds at most `cap`.

    The noise is a whole number with the discrete Laplace law P[k] ~ exp(-|k| / scale); `scale` is whole too, so that
    the law can be sampled exactly. Use `within` to make one.
    """

    scale: int = 1
    cap: int = 1

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected a whole number of at least 1; got {value!r}"
            for name, value in (("scale", self.scale), ("cap", self.cap), ("count", self.count))
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        InputError.collect(problems)
        if self.std != discrete_laplace_std(self.scale):
            raise InputError(f"std: expected that of noise of scale {self.scale}; got {self.std!r}. Use `within`")

    @classmethod
    def within(cls, name: str, epsilon: float, unit: Unit, cap: int) -> CountStage:
        """One count with the least noise that costs at most `epsilon` for `unit`."""
        if not (math.isfinite(epsilon) and epsilon > 0.0):
            raise InputError(f"epsilon: expected a positive, finite number; got {epsilon!r}")
        bound = cls(name, 1, discrete_laplace_std(1), 1, cap).sensitivity(unit)
        scale = max(1, math.ceil(bound / epsilon))
        if bound / scale > epsilon:  # the division above was rounded down
            scale += 1
        return cls(name, 1, discrete_laplace_std(scale), scale, cap)

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

    def epsilon(self, unit: Unit) -> float:
        """What one count costs: sensitivity / scale, without a delta."""
        return self.sensitivity(unit) / self.scale

    def event(self, unit: Unit) -> Event:
        """Pure epsilon-DP, `count` times."""
        return events.repeated(events.pure(self.epsilon(unit)), self.count)

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `Stage.as_dict`, with the law, the cut and the price."""
        return {**super().as_dict(unit), "scale": self.scale, "cap": self.cap, "epsilon": self.epsilon(unit)}
