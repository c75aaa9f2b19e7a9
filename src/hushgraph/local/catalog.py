"""All randomizers by name: choose one, or read one back from what `as_dict` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from hushgraph.errors import InputError, did_you_mean
from hushgraph.local.base import Randomizer, ScalarMechanism
from hushgraph.local.bits import Duchi, OneBit, ThreeOutput
from hushgraph.local.feature_rr import FeatureRR
from hushgraph.local.grid import Hybrid, Laplace, Piecewise, Suboptimal
from hushgraph.local.labels import RandomizedResponse, UnaryEncoding
from hushgraph.local.multi_bit import MultiBit
from hushgraph.local.vectors import PerFeature, SampledFeatures

SCALARS: dict[str, type[ScalarMechanism]] = {
    kind.name: kind for kind in (OneBit, Duchi, ThreeOutput, Piecewise, Suboptimal, Hybrid, Laplace)
}
"""Randomizers of one number."""

FEATURES = (MultiBit.name, *SCALARS)
"""What `feature_randomizer` makes."""

RANDOMIZERS: dict[str, type[Randomizer]] = {
    **SCALARS,
    **{
        kind.name: kind
        for kind in (MultiBit, FeatureRR, PerFeature, SampledFeatures, RandomizedResponse, UnaryEncoding)
    },
}
"""Every randomizer that `from_dict` reads."""


def scalar(name: str, epsilon: float, low: float = 0.0, high: float = 1.0) -> ScalarMechanism:
    """The randomizer of one number in [low, high] called `name`."""
    if name not in SCALARS:
        raise InputError(f"expected a randomizer of one number; got {name!r}; {did_you_mean(str(name), SCALARS)}")
    return SCALARS[name](epsilon, low, high)


def feature_randomizer(
    name: str, epsilon: float, dimensions: int, low: float = 0.0, high: float = 1.0, sampled: int | None = None
) -> MultiBit | SampledFeatures | PerFeature:
    """A randomizer of a whole vector, which spends `epsilon` in total.

    "multi-bit", or the randomizer of one number (`SCALARS`) that is used on each sent feature. `sampled` is how many
    features are sent: None for the number with the least variance, `dimensions` for all of them (`PerFeature`).
    """
    if name == MultiBit.name:
        return MultiBit(epsilon, dimensions, low, high, sampled)
    if name not in SCALARS:
        raise InputError(f"expected a randomizer of features; got {name!r}; {did_you_mean(str(name), FEATURES)}")
    if sampled == dimensions:
        return PerFeature.with_total(SCALARS[name], epsilon, dimensions, low, high)
    return SampledFeatures.with_total(SCALARS[name], epsilon, dimensions, low, high, sampled)


def from_dict(values: Mapping[str, Any]) -> Randomizer:
    """The randomizer that `as_dict` wrote; unknown names and unknown or missing parameters are refused."""
    if not isinstance(values, Mapping):
        raise InputError(f"expected a randomizer with its name and parameters; got {values!r}; see `as_dict`")
    name = values.get("name")
    if not isinstance(name, str) or name not in RANDOMIZERS:
        raise InputError(f"expected the name of a randomizer; got {name!r}; {did_you_mean(str(name), RANDOMIZERS)}")
    kind = RANDOMIZERS[name]
    given = {key: value for key, value in values.items() if key != "name"}
    _check_parameters(kind, given)
    return kind(**{key: from_dict(value) if isinstance(value, Mapping) else value for key, value in given.items()})


def _check_parameters(kind: type[Any], given: Mapping[str, Any]) -> None:
    known = {field.name: field.default is MISSING for field in fields(kind)}
    unknown = [
        f"{kind.name}: unknown parameter {key!r}; {did_you_mean(key, known)}" for key in given if key not in known
    ]
    missing = [
        f"{kind.name}: expected the parameter {key!r}; got none; write it down"
        for key, needed in known.items()
        if needed and key not in given
    ]
    InputError.collect(unknown + missing)
