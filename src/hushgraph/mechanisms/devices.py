"""Playing every person's device in one process: what a local randomizer is given, and its randomness.

In the field the randomizer runs on the person's own device (`hushgraph.collect`). In a study the vault stands in for
all devices at once; the reports have the same law.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.randomness import Randomness, os_generator
from hushgraph.noise.source import NoiseSource

Range = float | np.ndarray
"""One number for all columns, or one per column."""


class FeatureRandomizer(Protocol):
    """A local mechanism for a whole row of features in [0, 1]; `epsilon` is for the row."""

    @property
    def epsilon(self) -> float:
        """What one report spends."""
        ...

    def perturb(self, values: Any, rng: Randomness | None = None) -> Any:
        """Random reports."""
        ...


class LabelRandomizer(Protocol):
    """A local mechanism for one label."""

    @property
    def epsilon(self) -> float:
        """What one report spends."""
        ...

    def perturb(self, values: Any, rng: Randomness | None = None) -> np.ndarray:
        """Random reports."""
        ...


def unit_interval(rows: np.ndarray, low: Range, high: Range) -> np.ndarray:
    """The rows clipped to [low, high] and moved to [0, 1], column by column."""
    below, above = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if below.shape not in ((), rows.shape[1:]) or above.shape not in ((), rows.shape[1:]):
        raise InputError(f"range: expected one number, or one for each of the {rows.shape[1]} columns")
    if not (np.isfinite(below).all() and np.isfinite(above).all() and (below < above).all()):
        raise InputError("range: expected finite numbers with low < high; state the range without looking at the data")
    if (below == 0.0).all() and (above == 1.0).all():
        return np.clip(rows, 0.0, 1.0)
    width = (above - below).astype(rows.dtype)
    return np.clip((rows - below.astype(rows.dtype)) / width, 0.0, 1.0)


def device_randomness(noise: NoiseSource, stage: str) -> Randomness:
    """Operating-system entropy; a generator derived from the seed in a seeded (not private) run."""
    if not noise.seeded_run:
        return os_generator()
    return np.random.default_rng(int(noise.stream(f"devices/{stage}").integers(1, 2**53)[0]))
