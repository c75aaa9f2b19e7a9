"""Choosing the best of several private runs costs privacy; this is how much.

The number of tries must itself be random and its law fixed in advance (Papernot and Steinke, "Hyperparameter tuning
with Renyi differential privacy"): trying a fixed number of times and keeping the best has no such bound. `draw_tries`
draws from exactly the law that `best_of_many` charges for.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event as dpa

from hushgraph.errors import InputError
from hushgraph.privacy.events import Event


def best_of_many(event: Event, mean_tries: float, shape: float = 1.0) -> Event:
    """The event of running `event` a random number of times (mean `mean_tries`) and publishing the best run.

    `shape` 1 is the geometric law, infinity the Poisson law (which may run zero times and publish nothing).
    """
    _require_law(mean_tries, shape)
    return dpa.RepeatAndSelectDpEvent(event, mean_tries, shape)


def draw_tries(rng: np.random.Generator, mean_tries: float, shape: float = 1.0) -> int:
    """How often to run, from the law that `best_of_many` charges for."""
    _require_law(mean_tries, shape)
    if math.isinf(shape):
        return int(rng.poisson(mean_tries))
    return int(rng.geometric(1.0 / mean_tries))


def _require_law(mean_tries: float, shape: float) -> None:
    if shape != 1.0 and not math.isinf(shape):
        raise InputError(f"shape: expected 1 (geometric) or infinity (Poisson); got {shape!r}")
    if not math.isfinite(mean_tries) or mean_tries < 1.0:
        raise InputError(f"mean_tries: expected a finite number of at least 1; got {mean_tries!r}")
