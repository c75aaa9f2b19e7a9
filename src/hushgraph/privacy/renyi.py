"""Renyi divergences of events, order by order, and the step from them to (epsilon, delta)."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event as dpa
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy import special, stats

from hushgraph.privacy import events
from hushgraph.privacy.events import BestOfDpEvent, Event, PureDpEvent, SampledGroupDpEvent
from hushgraph.privacy.units import Relation

ORDERS = (
    *(1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 16.0, 18.0),
    *(20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 64.0, 96.0, 128.0, 256.0),
)
"""The orders that are tried where any will do; more of them only make a bound tighter."""
_REACH = 12.0
"""How many standard deviations of the noise the integral of a mixture covers beyond its outermost means."""
_POINTS_PER_STD = 32


@contextlib.contextmanager
def without_order_warnings() -> Iterator[None]:
    """The Renyi accountant warns of each order whose series does not converge; leaving an order out is safe."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


NEIGHBORS = {
    Relation.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Relation.NULL: NeighboringRelation.REPLACE_SPECIAL,
    Relation.REPLACE: NeighboringRelation.REPLACE_ONE,
}


def divergence(leaf: Event, relation: Relation, order: float) -> float:
    """The Renyi divergence of one release, the larger of the two directions; infinite where none is known."""
    return _known_renyi(json.dumps(events.to_json(leaf), sort_keys=True), relation, order)


@lru_cache(maxsize=4096)
def _known_renyi(text: str, relation: Relation, order: float) -> float:
    leaf = events.from_json(json.loads(text))
    if isinstance(leaf, BestOfDpEvent):
        return _best_of(leaf, relation, order)
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


def total(leaves: Sequence[tuple[Event, int]], relation: Relation, order: float) -> float:
    """The divergence of several releases, each with how often it is made."""
    return math.fsum(count * divergence(leaf, relation, order) for leaf, count in leaves)


def epsilon(leaves: Sequence[tuple[Event, int]], relation: Relation, delta: float) -> float:
    """The smallest epsilon over all orders."""
    return max(0.0, min(total(leaves, relation, order) + beyond(order, delta) for order in ORDERS))


def delta(leaves: Sequence[tuple[Event, int]], relation: Relation, epsilon: float) -> float:
    """The smallest delta over all orders: `beyond` solved for it."""
    logs = [
        (order - 1.0) * (total(leaves, relation, order) - epsilon + math.log1p(-1.0 / order)) - math.log(order)
        for order in ORDERS
    ]
    return math.exp(min(0.0, *logs))


def beyond(order: float, delta: float) -> float:
    """From Renyi divergence to (epsilon, delta): Canonne, Kamath and Steinke, Proposition 12."""
    return math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1.0)


def _best_of(event: BestOfDpEvent, relation: Relation, order: float) -> float:
    """Papernot and Steinke (ICLR 2022), Theorem 2: docs/proofs/selection.md."""
    if not event.candidates or not 0.0 < event.gamma < 1.0 or event.shape <= -1.0:
        return math.inf

    def once(order: float) -> float:
        return max(total(events.flatten(one), relation, order) for one in event.candidates)

    hidden = min((1.0 - 1.0 / other) * once(other) - math.log(event.gamma) / other for other in ORDERS)
    return once(order) + (1.0 + event.shape) * hidden + math.log(event.mean) / (order - 1.0)
