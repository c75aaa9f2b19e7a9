"""Privacy filters: a limit fixed beforehand, under which every run may be planned in view of all earlier results.

A filter turns what a run releases into a number (`cost`), adds the numbers up, and lets a run through while the sum
stays within the limit. Whoever plans the runs may look at everything that was released before, and choose how many runs
follow and with how much noise. Adding up privacy-loss distributions does not allow that: for those it is proved only
where the plans were fixed beforehand. Proofs and premises: docs/proofs/filters.md.

* `GaussianFilter`: Gaussian releases, and pure ones as the Gaussian that covers them. Costs are squares of mu, and
  nothing is lost against plans fixed beforehand.
* `RenyiFilter`: all else, by Renyi divergence at one order, fixed before the first run under the limit. About 7% worse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dp_accounting import dp_event as dpa
from scipy import optimize, special, stats

from hushgraph.errors import LedgerError
from hushgraph.privacy import events
from hushgraph.privacy.events import Event, PureDpEvent
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.renyi import beyond, total
from hushgraph.privacy.units import Relation

_ORDERS = (
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    5.0,
    6.0,
    7.0,
    8.0,
    10.0,
    12.0,
    16.0,
    22.0,
    32.0,
    64.0,
    128.0,
    256.0,
)


class Filter(Protocol):
    """A way to add up the costs of runs."""

    kind: ClassVar[str]

    def cost(self, event: Event, relation: Relation) -> float:
        """What `event` adds to the sum; infinite where this filter has no bound for it."""

    def epsilon(self, cost: float, delta: float) -> float:
        """The epsilon at `delta` of everything that a filter lets through whose sum is kept within `cost`."""

    def capacity(self, epsilon: float, delta: float) -> float:
        """The sum at which a limit is reached."""

    def used(self, cost: float, epsilon: float, delta: float) -> float:
        """How much of a limit a sum uses up, as an epsilon for people: at most `epsilon` while the limit is kept."""

    def as_dict(self) -> dict[str, Any]:
        """The filter as plain JSON values."""


@dataclass(frozen=True)
class GaussianFilter:
    """Sums of mu squared (Gaussian differential privacy, fully adaptive)."""

    kind: ClassVar[str] = "gaussian"

    def cost(self, event: Event, relation: Relation) -> float:
        """The sum of mu squared over all releases; infinite as soon as one is covered by no Gaussian."""
        return math.fsum(count * _mu(leaf, relation) ** 2 for leaf, count in events.flatten(event))

    def epsilon(self, cost: float, delta: float) -> float:
        """Epsilon of one Gaussian release with that mu."""
        if not math.isfinite(cost):
            return math.inf
        if cost == 0.0:
            return 0.0
        return PrivacyLoss(events.gaussian(cost**-0.5), Relation.ADD_OR_REMOVE).epsilon(delta)

    def capacity(self, epsilon: float, delta: float) -> float:
        """The mu squared of the Gaussian release whose profile passes through the limit."""
        top = 1.0
        while self.epsilon(top, delta) < epsilon:
            top *= 2.0
        return float(optimize.brentq(lambda cost: self.epsilon(cost, delta) - epsilon, 0.0, top))

    def used(self, cost: float, epsilon: float, delta: float) -> float:
        """The epsilon of the sum."""
        return self.epsilon(cost, delta)

    def as_dict(self) -> dict[str, Any]:
        """The filter as plain JSON values."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class RenyiFilter:
    """Sums of Renyi divergences of one order."""

    order: float

    kind: ClassVar[str] = "renyi"

    @classmethod
    def for_limit(cls, epsilon: float, delta: float, ways: Sequence[Event], relation: Relation) -> RenyiFilter:
        """The filter with the order at which the limit would let the most runs like this one through."""

        def runs(order: float) -> float:
            found = cls(order)
            return found.capacity(epsilon, delta) / max(worst_cost(found, ways, relation), sys.float_info.min)

        return cls(max(_ORDERS, key=runs))

    def cost(self, event: Event, relation: Relation) -> float:
        """The Renyi divergence of all releases; infinite where none is known."""
        leaves = events.flatten(event)
        return total(leaves, relation, self.order)

    def epsilon(self, cost: float, delta: float) -> float:
        """Epsilon from one order."""
        return max(0.0, cost + beyond(self.order, delta)) if cost > 0.0 else 0.0

    def capacity(self, epsilon: float, delta: float) -> float:
        """What the limit leaves at this order; nothing where the step to (epsilon, delta) alone costs more."""
        return epsilon - beyond(self.order, delta)

    def used(self, cost: float, epsilon: float, delta: float) -> float:
        """The share of the capacity, times epsilon: what one order says of a small sum says little about its size."""
        capacity = self.capacity(epsilon, delta)
        return epsilon * cost / capacity if capacity > 0.0 else math.inf

    def as_dict(self) -> dict[str, Any]:
        """The filter as plain JSON values."""
        return {"kind": self.kind, "order": self.order}


def from_dict(values: dict[str, Any]) -> Filter:
    """The inverse of `as_dict`."""
    if values == {"kind": "gaussian"}:
        return GaussianFilter()
    if values.get("kind") == "renyi" and set(values) == {"kind", "order"} and values["order"] > 1.0:
        return RenyiFilter(float(values["order"]))
    raise LedgerError(f"expected a Gaussian or a Renyi filter; got {values!r}")


def worst_cost(chosen: Filter, ways: Sequence[Event], relation: Relation) -> float:
    """The cost of a run that takes one of several ways: that of the costliest."""
    return max(chosen.cost(way, relation) for way in ways)


# One release


def _mu(leaf: Event, relation: Relation) -> float:
    """The mu of a Gaussian that covers `leaf`; infinite where none does."""
    if isinstance(leaf, dpa.GaussianDpEvent):
        return 1.0 / leaf.noise_multiplier if leaf.noise_multiplier > 0.0 else math.inf
    if isinstance(leaf, PureDpEvent):
        return pure_mu(leaf.epsilon)
    if isinstance(leaf, dpa.PoissonSampledDpEvent) and leaf.sampling_probability == 1.0:
        # every example is in every batch: a Gaussian whose mean moves by one example, or from it to its opposite
        return (2.0 if relation is Relation.REPLACE else 1.0) * _mu(leaf.event, relation)
    return math.inf


def pure_mu(epsilon: float) -> float:
    """The smallest mu whose Gaussian covers every epsilon-DP release: Phi(-mu/2) = 1 / (1 + e^epsilon)."""
    return -2.0 * float(stats.norm.ppf(special.expit(-epsilon)))
