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

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from dp_accounting import dp_event as dpa
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, special, stats

from hushgraph.errors import LedgerError
from hushgraph.privacy import events
from hushgraph.privacy.events import Event, PureDpEvent, SampledGroupDpEvent
from hushgraph.privacy.loss import NEIGHBORS, PrivacyLoss, without_order_warnings
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
_REACH = 12.0
"""How many standard deviations of the noise the integral of a mixture covers beyond its outermost means."""
_POINTS_PER_STD = 32


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
        return math.fsum(count * _renyi(leaf, relation, self.order) for leaf, count in leaves)

    def epsilon(self, cost: float, delta: float) -> float:
        """Epsilon from one order."""
        return max(0.0, cost + self._beyond(delta)) if cost > 0.0 else 0.0

    def capacity(self, epsilon: float, delta: float) -> float:
        """What the limit leaves at this order; nothing where the step to (epsilon, delta) alone costs more."""
        return epsilon - self._beyond(delta)

    def used(self, cost: float, epsilon: float, delta: float) -> float:
        """The share of the capacity, times epsilon: what one order says of a small sum says little about its size."""
        capacity = self.capacity(epsilon, delta)
        return epsilon * cost / capacity if capacity > 0.0 else math.inf

    def _beyond(self, delta: float) -> float:
        """From Renyi divergence to (epsilon, delta): Canonne, Kamath and Steinke, Proposition 12."""
        return math.log1p(-1.0 / self.order) - math.log(delta * self.order) / (self.order - 1.0)

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


def _renyi(leaf: Event, relation: Relation, order: float) -> float:
    """The Renyi divergence of one release, the larger of the two directions; infinite where none is known."""
    return _known_renyi(json.dumps(events.to_json(leaf), sort_keys=True), relation, order)


@lru_cache(maxsize=4096)
def _known_renyi(text: str, relation: Relation, order: float) -> float:
    leaf = events.from_json(json.loads(text))
    if isinstance(leaf, dpa.GaussianDpEvent):
        return order / (2.0 * leaf.noise_multiplier**2) if leaf.noise_multiplier > 0.0 else math.inf
    if isinstance(leaf, PureDpEvent):
        return _pure_renyi(leaf.epsilon, order)
    if isinstance(leaf, SampledGroupDpEvent):
        return mixture_renyi(leaf.noise_multiplier, leaf.sampling_probability, leaf.before, leaf.after, order)
    if relation is Relation.REPLACE:
        sampled = isinstance(leaf, dpa.PoissonSampledDpEvent) and isinstance(leaf.event, dpa.GaussianDpEvent)
        return (
            mixture_renyi(leaf.event.noise_multiplier, leaf.sampling_probability, 1, 1, order) if sampled else math.inf
        )
    accountant = RdpAccountant([order], NEIGHBORS[relation])
    if not accountant.supports(leaf):
        return math.inf
    with without_order_warnings():
        accountant.compose(leaf)
    return float(accountant.rdp[0])


def _pure_renyi(epsilon: float, order: float) -> float:
    """The divergence of randomized response, which dominates every epsilon-DP release."""
    high, low = special.log_expit(epsilon), special.log_expit(-epsilon)
    terms = [order * high + (1.0 - order) * low, order * low + (1.0 - order) * high]
    return float(special.logsumexp(terms)) / (order - 1.0)


def mixture_renyi(noise_multiplier: float, rate: float, before: int, after: int, order: float) -> float:
    """The Renyi divergence of the pair of mixtures in `privacy.mixture`, the larger of its two directions.

    The pair dominates the release at every order of the hockey-stick divergence, hence in Renyi divergence too. The
    integrals are sums over a uniform grid: for a smooth integrand that decays like a Gaussian their error falls faster
    than any power of the step.
    """
    if noise_multiplier <= 0.0:
        return math.inf
    there = _log_moment(noise_multiplier, rate, before, after, order)
    back = there if before == after else _log_moment(noise_multiplier, rate, after, before, order)
    return max(there, back, 0.0) / (order - 1.0)


def _log_moment(std: float, rate: float, before: int, after: int, order: float) -> float:
    """ln of the integral of P^order Q^(1 - order), P = sum Bin(before) N(+i), Q = sum Bin(after) N(-j)."""
    low = -float(after) - _REACH * std
    high = order * before + (order - 1.0) * after + _REACH * std
    x = np.linspace(low, high, math.ceil((high - low) / std * _POINTS_PER_STD) + 1)
    logs = order * _log_mixture(x, std, rate, before, 1.0) + (1.0 - order) * _log_mixture(x, std, rate, after, -1.0)
    return float(special.logsumexp(logs) + math.log(x[1] - x[0]))


def _log_mixture(x: np.ndarray, std: float, rate: float, count: int, sign: float) -> np.ndarray:
    terms = [
        float(weight) + stats.norm.logpdf(x, sign * number, std)
        for number, weight in enumerate(stats.binom.logpmf(np.arange(count + 1), count, rate))
        if weight > -math.inf
    ]
    total: np.ndarray = np.logaddexp.reduce(terms)
    return total
