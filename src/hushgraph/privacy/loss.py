"""What a sequence of events costs: epsilon at a delta, delta at an epsilon, and Gaussian-DP mu.

Three routes, the tightest that is valid: exact for Gaussians alone (K releases are one Gaussian), privacy-loss
distributions (PLD) where `dp_accounting` has one, Renyi DP otherwise. Parts that are purely epsilon-DP (local
randomizers) are added up beside them by sequential composition. PLD values are upper bounds whatever the grid: a finer
one only makes them tighter, and a bound on the rounding of the machine is added to delta (docs/proofs/fft.md). Where
that takes most of a very small delta, Renyi DP is asked as well. Every epsilon that hushgraph prints comes from here.

The loss of a run that chose its way: the most that any of the ways it could have taken costs.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

from dp_accounting import dp_event as dpa
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy import special

from hushgraph.errors import CalibrationError, InputError, UnprovenError
from hushgraph.privacy import renyi
from hushgraph.privacy.events import (
    BestOfDpEvent,
    Event,
    PureDpEvent,
    PureManyDpEvent,
    SampledGroupDpEvent,
    composed,
    flatten,
    from_json,
    repeated,
    to_json,
)
from hushgraph.privacy.fft_error import ComposedLoss
from hushgraph.privacy.mixture import group_pld
from hushgraph.privacy.pure_many import pure_many_pld
from hushgraph.privacy.renyi import NEIGHBORS, without_order_warnings
from hushgraph.privacy.units import Relation

ROUGH_GRID = 1e-2
COARSE_GRID = 1e-3
FINE_GRID = 5e-4
_COARSER = (COARSE_GRID, 2e-3, 4e-3)
"""Asked as well where a finer grid, which has more points to round, takes more than `_LITTLE` of delta by rounding."""
_LITTLE = 0.1
NO_LOSS = "none"
"""The accountant of a run that reads nothing of what is protected; epsilon 0 at some delta does not mean that."""
_ROOT_TOLERANCE = 1e-12  # of the root finding, relative beyond epsilon 1
_FEW_POINTS_MU = 5.0  # beyond, the loss of one release spreads over too many points to be worth it
RENYI_ORDERS = tuple([1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [80, 96, 128, 256, 512, 1024])


SELECTION_ROUNDING = 2.0**-40
"""The share of delta that is kept back for how the number of runs is drawn (docs/proofs/selection.md)."""


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of `event` between two datasets that differ as `relation` says."""

    event: Event
    relation: Relation
    grid: float = FINE_GRID

    @cached_property
    def _leaves(self) -> list[tuple[Event, int]]:
        return flatten(self.event)

    @property
    def is_private(self) -> bool:
        """False as soon as one part has no protection."""
        return not any(isinstance(leaf, dpa.NonPrivateDpEvent) for leaf, _ in self._leaves)

    @property
    def accountant(self) -> str:
        """Which route gives the numbers: `NO_LOSS`, `exact Gaussian`, `PLD` or `RDP`."""
        if not self._leaves:
            return NO_LOSS
        if self._pure:
            return "sum of pure epsilons" + (f" + {self._rest.accountant}" if self._rest._leaves else "")
        if self._only_gaussian:
            return "exact Gaussian"
        return "PLD" if self._has_pld else "RDP"

    @property
    def mu(self) -> float | None:
        """The exact mu of Gaussian DP, where the whole loss is Gaussian; None elsewhere."""
        return self._gaussian_mu if self._only_gaussian and self.is_private else None

    @property
    def pure(self) -> float:
        """The epsilons of the parts of pure epsilon, added up."""
        return self._pure

    @property
    def has_distribution(self) -> bool:
        """Whether what is not pure has a privacy-loss distribution."""
        return self.is_private and self._rest._has_pld

    @property
    def distribution(self) -> ComposedLoss:
        """The privacy-loss distribution of what is not pure."""
        return _composed(*self._rest._key) if self._rest._leaves else ComposedLoss(pld_lib.identity(self.grid))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon we can prove at `delta` (infinite when a part is not private)."""
        if not 0.0 < delta < 1.0:
            raise InputError(f"delta: expected above 0 and below 1; got {delta!r}")
        if not self.is_private:
            return math.inf
        if not self._leaves:
            return 0.0
        if self._pure:
            return self._pure + self._rest.epsilon(delta)
        if self._only_gaussian:
            value = _gaussian_epsilon(self._gaussian_mu, delta)
        elif self._has_pld:
            value = self._pld_epsilon(delta)
        else:
            value = self.renyi_epsilon(delta)
        if math.isnan(value):
            raise CalibrationError(f"the accountant returned {value} for delta {delta:g}")
        return float(value)

    def delta(self, epsilon: float) -> float:
        """The smallest delta we can prove at `epsilon`."""
        if not self.is_private:
            return 1.0
        if not self._leaves:
            return 0.0
        if self._pure:
            return self._pure_delta(epsilon)
        if self._only_gaussian:
            return _gaussian_delta(self._gaussian_mu, epsilon)
        if self._has_pld:
            return self._pld_delta(epsilon)
        if self._selects:
            return min(1.0, renyi.delta(self._leaves, self.relation, epsilon) * (1.0 + SELECTION_ROUNDING))
        return float(self._renyi.get_delta(epsilon))

    def renyi_epsilon(self, delta: float) -> float:
        """Epsilon by Renyi DP alone: the cross-check, and the route of several published calibrators."""
        if not self.is_private:
            return math.inf
        if self._pure:
            return self._pure + (self._rest.renyi_epsilon(delta) if self._rest._leaves else 0.0)
        if self._selects:
            return renyi.epsilon(self._leaves, self.relation, delta * (1.0 - SELECTION_ROUNDING))
        return float(self._renyi.get_epsilon(delta))

    def _pld_epsilon(self, delta: float) -> float:
        """By PLD at what rounding leaves of delta; where that is less, by coarser grids too, and by Renyi DP."""
        value, left = _pld_epsilon(*self._key, delta)
        if left < 0.5 * delta:
            with contextlib.suppress(UnprovenError):
                value = min(value, self.renyi_epsilon(delta))
        for key in self._coarser:
            if left >= (1.0 - _LITTLE) * delta:
                break
            found, left = _pld_epsilon(*key, delta)
            value = min(value, found)
        return value

    def _pld_delta(self, epsilon: float) -> float:
        """The same the other way round."""
        value, error = _pld_delta(*self._key, epsilon)
        if error > 0.5 * value:
            with contextlib.suppress(UnprovenError):
                value = min(value, float(self._renyi.get_delta(epsilon)))
        for key in self._coarser:
            if error <= _LITTLE * value:
                break
            found, error = _pld_delta(*key, epsilon)
            value = min(value, found)
        return value

    @property
    def _coarser(self) -> list[tuple[tuple[str, ...], Relation, float]]:
        leaves, relation, own = self._key
        return [(leaves, relation, grid) for grid in _COARSER if grid > own]

    @cached_property
    def _pure(self) -> float:
        """The epsilons of the pure parts together: sequential composition, exact."""
        return math.fsum(count * leaf.epsilon for leaf, count in self._leaves if isinstance(leaf, PureDpEvent))

    @cached_property
    def _rest(self) -> PrivacyLoss:
        """The loss of the parts that are not pure."""
        others = [repeated(leaf, count) for leaf, count in self._leaves if not isinstance(leaf, PureDpEvent)]
        return PrivacyLoss(composed(others), self.relation, self.grid)

    def _pure_delta(self, epsilon: float) -> float:
        """Below the pure sum E, E-DP alone is dominated by randomized response at E.

        With other parts, their distance in total variation is added to that of randomized response: distances of the
        parts add up, and delta at any epsilon is at most the distance of the whole.
        """
        if epsilon >= self._pure:
            return self._rest.delta(epsilon - self._pure)
        if self._rest._leaves:
            return min(1.0, math.tanh(0.5 * self._pure) + self._rest.delta(0.0))
        return -math.expm1(epsilon - self._pure) / (1.0 + math.exp(-self._pure))

    @cached_property
    def _only_gaussian(self) -> bool:
        return bool(self._leaves) and all(isinstance(leaf, dpa.GaussianDpEvent) for leaf, _ in self._leaves)

    @cached_property
    def _gaussian_mu(self) -> float:
        return _mu_of(self._leaves)

    @property
    def _has_pld(self) -> bool:
        return all(_leaf_has_pld(leaf) for leaf, _ in self._leaves)

    @cached_property
    def _key(self) -> tuple[tuple[str, ...], Relation, float]:
        """What the distribution depends on, in a form that a cache can look up."""
        leaves = sorted(json.dumps([to_json(leaf), count], sort_keys=True) for leaf, count in self._leaves)
        return tuple(leaves), self.relation, self.grid

    @property
    def _selects(self) -> bool:
        """Whether a part publishes the best of several runs, which has a Renyi bound of our own only."""
        return any(isinstance(leaf, BestOfDpEvent) for leaf, _ in self._leaves)

    @cached_property
    def _renyi(self) -> RdpAccountant:
        accountant = RdpAccountant(RENYI_ORDERS, NEIGHBORS[self.relation])
        for leaf, count in self._leaves:
            if isinstance(leaf, SampledGroupDpEvent):
                raise UnprovenError("no Renyi bound for a batch in which one unit changes several examples; use PLD")
            if isinstance(leaf, PureManyDpEvent):  # Bun and Steinke 2016, Proposition 1.4
                leaf = dpa.ZCDpEvent(leaf.count * leaf.epsilon**2 / 2.0, 0.0)
            if self.relation is Relation.REPLACE and not isinstance(leaf, dpa.GaussianDpEvent | dpa.ZCDpEvent):
                raise UnprovenError(f"no Renyi bound for {type(leaf).__name__} when a record is replaced")
            with without_order_warnings():
                accountant.compose(leaf, count)
        return accountant


@lru_cache(maxsize=64)
def _composed(leaves: tuple[str, ...], relation: Relation, grid: float) -> ComposedLoss:
    """The distribution of all leaves, each given as JSON [event, count]; kept, because a run asks several times."""
    read = [(from_json(event), count) for event, count in map(json.loads, leaves)]
    mu = _mu_of(read)
    parts = [] if mu == 0.0 else [ComposedLoss(_gaussian_pld(mu, grid)).repeated(1)]
    for leaf, count in read:
        if not isinstance(leaf, dpa.GaussianDpEvent):
            parts.append(ComposedLoss(_leaf_pld(leaf, relation, grid)).repeated(count))
    return reduce(ComposedLoss.then, parts)


@lru_cache(maxsize=1024)
def _pld_epsilon(leaves: tuple[str, ...], relation: Relation, grid: float, delta: float) -> tuple[float, float]:
    """Epsilon, and the part of delta that rounding leaves; infinite where so little noise fits on no such grid."""
    try:
        composed = _composed(leaves, relation, grid)
    except (CalibrationError, MemoryError):
        return math.inf, delta
    left = delta - composed.error
    return (float(composed.pld.get_epsilon_for_delta(left)) if left > 0.0 else math.inf), left


def _pld_delta(leaves: tuple[str, ...], relation: Relation, grid: float, epsilon: float) -> tuple[float, float]:
    """Delta, and the part of it that rounding may have taken."""
    composed = _composed(leaves, relation, grid)
    return min(1.0, float(composed.pld.get_delta_for_epsilon(epsilon)) + composed.error), composed.error


def _mu_of(leaves: list[tuple[Event, int]]) -> float:
    """Gaussian releases with multipliers z are one Gaussian with mu = sqrt(sum 1/z^2)."""
    gaussians = [(leaf, count) for leaf, count in leaves if isinstance(leaf, dpa.GaussianDpEvent)]
    return math.sqrt(sum(count / leaf.noise_multiplier**2 for leaf, count in gaussians))


def _leaf_has_pld(leaf: Event) -> bool:
    if isinstance(leaf, dpa.PoissonSampledDpEvent):
        return isinstance(leaf.event, dpa.GaussianDpEvent)
    simple = (
        dpa.GaussianDpEvent,
        dpa.LaplaceDpEvent,
        dpa.RandomizedResponseDpEvent,
        dpa.MixtureOfGaussiansDpEvent,
        SampledGroupDpEvent,
        PureManyDpEvent,
    )
    return isinstance(leaf, simple)


def _leaf_pld(leaf: Event, relation: Relation, grid: float) -> pld_lib.PrivacyLossDistribution:
    """One use of `leaf`. The caller composes the count: `PLDAccountant` drops it for randomized response."""
    if isinstance(leaf, dpa.PoissonSampledDpEvent):
        if relation is not Relation.REPLACE:  # what the library builds, ten times faster: it goes point by point
            return group_pld(leaf.event.noise_multiplier, leaf.sampling_probability, 1, 0, grid)
        return pld_lib.from_gaussian_mechanism(
            standard_deviation=leaf.event.noise_multiplier,
            sampling_prob=leaf.sampling_probability,
            value_discretization_interval=grid,
            neighboring_relation=NEIGHBORS[relation],
        )
    if isinstance(leaf, SampledGroupDpEvent):
        return group_pld(leaf.noise_multiplier, leaf.sampling_probability, leaf.before, leaf.after, grid)
    if isinstance(leaf, PureManyDpEvent):
        return pure_many_pld(leaf.epsilon, leaf.count, grid)
    if isinstance(leaf, dpa.LaplaceDpEvent):
        return pld_lib.from_laplace_mechanism(leaf.noise_multiplier, value_discretization_interval=grid)
    if isinstance(leaf, dpa.RandomizedResponseDpEvent):
        return pld_lib.from_randomized_response(
            leaf.noise_parameter,
            leaf.num_buckets,
            value_discretization_interval=grid,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
    if isinstance(leaf, dpa.MixtureOfGaussiansDpEvent):
        return pld_lib.from_mixture_gaussian_mechanism(
            leaf.standard_deviation,
            leaf.sensitivities,
            leaf.sampling_probs,
            value_discretization_interval=grid,
        )
    raise UnprovenError(f"no privacy-loss distribution for {type(leaf).__name__}")


def _gaussian_pld(mu: float, grid: float) -> pld_lib.PrivacyLossDistribution:
    if mu < _FEW_POINTS_MU:
        return group_pld(1.0 / mu, 1.0, 1, 0, grid)
    return pld_lib.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=grid)


@lru_cache(maxsize=1024)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    """From above: the upper end of what bisection leaves, and what rounding may have taken (docs/proofs/fft.md)."""
    log_delta, at_zero = math.log(delta), _gaussian_log_delta(mu, 0.0)
    most = float(special.log_ndtr(mu / 2))  # what delta(0) is the difference of, and its rounding relative to that
    room = 16.0 * sys.float_info.epsilon * (abs(float(special.log_ndtr(-mu / 2))) + 1.0)
    if at_zero + room * math.exp(min(most - at_zero, 700.0)) < log_delta:
        return 0.0
    low, high = 0.0, 1.0
    while _gaussian_log_delta(mu, high) > log_delta:
        low, high = high, 10.0 * high
    while high - low > _ROOT_TOLERANCE * max(1.0, low):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _gaussian_log_delta(mu, middle) > log_delta else (low, middle)
    upper, lower = (float(special.log_ndtr(side * mu / 2 - high / mu)) for side in (1.0, -1.0))
    size = abs(upper) + abs(lower) + 2.0 * high + 1.0
    rounding = 16.0 * sys.float_info.epsilon * size * math.exp(min(upper - lower - high, 700.0))
    return high + rounding


def _gaussian_log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) of mu-Gaussian DP."""
    upper = float(special.log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return upper + math.log1p(-math.exp(lower - upper)) if lower < upper else -math.inf


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-Gaussian DP: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    upper = special.ndtr(mu / 2 - epsilon / mu)
    lower = math.exp(min(700.0, epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))))
    return max(0.0, float(upper) - lower)


@dataclass(frozen=True)
class WorstOf:
    """A release of pure epsilon e, then one of several options, chosen with it in view.

    Each way is the first release together with one option. If every option is (a, delta)-DP, the whole is
    (e + a, delta)-DP by basic composition, which holds however the choice is made (docs/proofs/count.md); the loss of
    the option that happened to be chosen is not enough.
    """

    ways: tuple[PrivacyLoss, ...]

    def __post_init__(self) -> None:
        if not self.ways:
            raise UnprovenError("a choice needs at least one option")

    @property
    def accountant(self) -> str:
        """Which routes give the numbers."""
        routes = " or ".join(dict.fromkeys(way.accountant for way in self.ways))
        return f"{routes}; the costliest of {len(self.ways)} options"

    @property
    def mu(self) -> float | None:
        """A choice has no exact Gaussian form."""
        return None

    def epsilon(self, delta: float) -> float:
        """Epsilon of the costliest way at `delta`."""
        return max(way.epsilon(delta) for way in self.ways)

    def delta(self, epsilon: float) -> float:
        """Delta of the costliest way at `epsilon`."""
        return max(way.delta(epsilon) for way in self.ways)
