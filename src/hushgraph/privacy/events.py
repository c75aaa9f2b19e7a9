"""Privacy events: what a mechanism did, as values of `dp_accounting`, and their JSON form in a ledger.

Convention used everywhere in hushgraph, whatever the relation of the unit:

* `GaussianDpEvent(z)`: z = noise standard deviation / L2 distance between the two outputs on neighbors;
* `PoissonSampledDpEvent(q, GaussianDpEvent(z))`: z = noise standard deviation / norm bound of *one example*. Under a
  `REPLACE` relation the example may turn into its opposite; `privacy_loss` accounts for that.
* `PureDpEvent(epsilon)`: a release with P[S | D] <= e^epsilon P[S | D'] for every set S, and nothing else known.
* `SampledGroupDpEvent(z, q, before, after)`: z as above, when one unit changes several examples of a Poisson batch.
* `PureManyDpEvent(epsilon, count)`: `count` releases like that, chosen beforehand or in view of earlier ones.
* `BestOfDpEvent(candidates, gamma, shape)`: the best of a random number of runs (private selection).

The JSON form names the class and its fields; events are never re-meant, so old ledgers stay readable.
"""

from __future__ import annotations

import json
import math
from typing import Any

import attr
from dp_accounting import dp_event as dpa
from dp_accounting.dp_event import DpEvent as Event
from scipy import special

from hushgraph.errors import InputError, LedgerError


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SampledGroupDpEvent(Event):
    """A noisy sum over a Poisson batch in which one unit can change several examples.

    In the one dataset `before` examples depend on the unit, in the other `after`; each is bounded by 1 and joins with
    probability `sampling_probability`; the noise has standard deviation `noise_multiplier`. The loss is that of
    `accounting.mixture.TwoSidedMixture`, whatever the relation of the unit.
    """

    noise_multiplier: float
    sampling_probability: float
    before: int
    after: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(Event):
    """A release that is epsilon-DP with delta 0, such as a local randomizer. Several add up."""

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PureManyDpEvent(Event):
    """`count` releases that are epsilon-DP each, composed exactly: `privacy.pure_many`."""

    epsilon: float
    count: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BestOfDpEvent(Event):
    """The best of a random number of runs, each of one of the `candidates`, drawn uniformly; the others stay unseen.

    How many is drawn from the truncated negative binomial law with `gamma` in (0, 1) and `shape` above -1: P[k] is in
    proportion to (1 - gamma)^k times the product of (l + shape) / (l + 1) for l below k. A candidate's event includes
    the score it is judged by.
    """

    candidates: tuple[Event, ...] = attr.ib(converter=tuple)
    gamma: float
    shape: float

    @property
    def mean(self) -> float:
        """The mean number of runs."""
        return mean_runs(self.gamma, self.shape)


def mean_runs(gamma: float, shape: float) -> float:
    """The mean of the truncated negative binomial law."""
    log = -math.log(gamma)
    if abs(shape) < 1e-12:
        return (1.0 / gamma - 1.0) / log
    return shape * (1.0 / gamma - 1.0) / -math.expm1(-shape * log)


_KNOWN: dict[str, tuple[type, tuple[str, ...]]] = {
    "NoOp": (dpa.NoOpDpEvent, ()),
    "NonPrivate": (dpa.NonPrivateDpEvent, ()),
    "Gaussian": (dpa.GaussianDpEvent, ("noise_multiplier",)),
    "Laplace": (dpa.LaplaceDpEvent, ("noise_multiplier",)),
    "RandomizedResponse": (dpa.RandomizedResponseDpEvent, ("noise_parameter", "num_buckets")),
    "MixtureOfGaussians": (
        dpa.MixtureOfGaussiansDpEvent,
        ("standard_deviation", "sensitivities", "sampling_probs"),
    ),
    "PoissonSampled": (dpa.PoissonSampledDpEvent, ("sampling_probability", "event")),
    "SampledGroup": (SampledGroupDpEvent, ("noise_multiplier", "sampling_probability", "before", "after")),
    "Pure": (PureDpEvent, ("epsilon",)),
    "PureMany": (PureManyDpEvent, ("epsilon", "count")),
    "BestOf": (BestOfDpEvent, ("candidates", "gamma", "shape")),
    "SelfComposed": (dpa.SelfComposedDpEvent, ("event", "count")),
    "Composed": (dpa.ComposedDpEvent, ("events",)),
    "RepeatAndSelect": (dpa.RepeatAndSelectDpEvent, ("event", "mean", "shape")),
    "ZCDp": (dpa.ZCDpEvent, ("rho", "xi")),
}
_LEAST_RANGE = 1e-6
_RANGE_ROUNDING = 1e-8  # 1/2 + eta/8 is rounded by 2^-54, which is far less than this share of the smallest eta / 8
_NAMES = {cls: name for name, (cls, _) in _KNOWN.items()}


def gaussian(noise_multiplier: float, count: int = 1) -> Event:
    """`count` Gaussian releases; a multiplier of exactly zero is the honest non-private event."""
    _require_multiplier(noise_multiplier)
    if noise_multiplier == 0.0:
        return dpa.NonPrivateDpEvent()
    return repeated(dpa.GaussianDpEvent(noise_multiplier), count)


def sampled_gaussian(sample_rate: float, noise_multiplier: float, steps: int) -> Event:
    """`steps` noisy gradient sums over Poisson batches of rate `sample_rate`."""
    _require_multiplier(noise_multiplier)
    if not 0.0 < sample_rate <= 1.0:
        raise InputError(f"sample rate: expected above 0 and at most 1; got {sample_rate!r}")
    if noise_multiplier == 0.0:
        return dpa.NonPrivateDpEvent()
    return repeated(dpa.PoissonSampledDpEvent(sample_rate, dpa.GaussianDpEvent(noise_multiplier)), steps)


def sampled_group(sample_rate: float, noise_multiplier: float, before: int, after: int, steps: int) -> Event:
    """`steps` noisy sums over Poisson batches in which one unit touches up to `before` (`after`) examples."""
    _require_multiplier(noise_multiplier)
    if not 0.0 < sample_rate <= 1.0:
        raise InputError(f"sample rate: expected above 0 and at most 1; got {sample_rate!r}")
    if noise_multiplier == 0.0:
        return dpa.NonPrivateDpEvent()
    return repeated(SampledGroupDpEvent(noise_multiplier, sample_rate, before, after), steps)


def non_private() -> Event:
    """A release without any protection."""
    return dpa.NonPrivateDpEvent()


def nothing() -> Event:
    """No release at all."""
    return dpa.NoOpDpEvent()


def pure(epsilon: float) -> Event:
    """One release that is epsilon-DP; an infinite epsilon is the honest non-private event."""
    if math.isnan(epsilon) or epsilon <= 0.0:
        raise InputError(f"epsilon: expected a positive number; got {epsilon!r}")
    return PureDpEvent(epsilon) if math.isfinite(epsilon) else dpa.NonPrivateDpEvent()


def pure_many(epsilon: float, count: int) -> Event:
    """`count` releases that are epsilon-DP each."""
    if count < 1:
        raise InputError(f"count: expected 1 or more; got {count}")
    one = pure(epsilon)
    return PureManyDpEvent(epsilon, count) if isinstance(one, PureDpEvent) and count > 1 else one


def bounded_range(eta: float, count: int = 1) -> Event:
    """`count` releases whose privacy losses lie in an interval of length `eta`, as one Gaussian that dominates them.

    Each is mu-GDP with mu = 2 Phi^-1(1 / (1 + e^(-eta / 2))): docs/proofs/dpappr.md.
    """
    if not eta > 0.0 or count < 1:
        raise InputError(f"bounded range: expected a length above 0, and a count; got {eta!r} and {count!r}")
    one = 2.0 * float(special.ndtri(special.expit(0.5 * max(eta, _LEAST_RANGE))))
    mu = one * (1.0 + _RANGE_ROUNDING) * math.sqrt(count)
    return dpa.GaussianDpEvent(1.0 / mu) if math.isfinite(mu) else dpa.NonPrivateDpEvent()


def repeated(event: Event, count: int) -> Event:
    """The same event `count` times."""
    if count < 0:
        raise InputError(f"count: expected 0 or more; got {count}")
    if count == 0:
        return dpa.NoOpDpEvent()
    return event if count == 1 else dpa.SelfComposedDpEvent(event, count)


def composed(events: list[Event]) -> Event:
    """All of `events` on the same data."""
    return dpa.ComposedDpEvent(list(events)) if events else dpa.NoOpDpEvent()


def flatten(event: Event, count: int = 1) -> list[tuple[Event, int]]:
    """The leaves of a composition with their counts, equal leaves merged."""
    merged: dict[str, tuple[Event, int]] = {}
    for leaf, times in _leaves(event, count):
        key = json.dumps(to_json(leaf), sort_keys=True)
        merged[key] = (leaf, merged.get(key, (leaf, 0))[1] + times)
    return list(merged.values())


def _leaves(event: Event, count: int) -> list[tuple[Event, int]]:
    if isinstance(event, dpa.SelfComposedDpEvent):
        return _leaves(event.event, count * event.count)
    if isinstance(event, dpa.ComposedDpEvent):
        return [leaf for part in event.events for leaf in _leaves(part, count)]
    if isinstance(event, dpa.NoOpDpEvent):
        return []
    return [(event, count)]


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values."""
    name = _NAMES.get(type(event))
    if name is None:
        raise InputError(f"no ledger form for the event {type(event).__name__}")
    _, fields = _KNOWN[name]
    return {"type": name, **{field: _value_to_json(getattr(event, field)) for field in fields}}


def from_json(values: dict[str, Any]) -> Event:
    """The inverse of `to_json`; anything unknown is an error, never a guess."""
    try:
        cls, fields = _KNOWN[values["type"]]
        if set(values) != {"type", *fields}:
            raise LedgerError(f"the event '{values['type']}' has fields {sorted(set(values) - {'type'})}")
        return cls(**{field: _value_from_json(values[field]) for field in fields})
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"unreadable privacy event {values!r}") from error


def _value_to_json(value: Any) -> Any:
    if isinstance(value, dpa.DpEvent):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [_value_to_json(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def _value_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value)
    if isinstance(value, list):
        return [_value_from_json(item) for item in value]
    return value


def _require_multiplier(noise_multiplier: float) -> None:
    if not math.isfinite(noise_multiplier) or noise_multiplier < 0.0:
        raise InputError(f"noise multiplier: expected a finite number of at least 0; got {noise_multiplier!r}")
