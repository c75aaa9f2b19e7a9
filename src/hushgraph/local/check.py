"""Measure the epsilon a randomizer really has, by enumerating its law.

Over all the inputs of a finite set the result is exact. Over values of a range it is a lower bound on the true epsilon,
so a value above the claim is a proof of a mistake; the ends of the range are among them, where the ratios of all
randomizers here are largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hushgraph.local.base import Randomizer


def realized_epsilon(randomizer: Randomizer, inputs: Iterable[Any] | None = None) -> float:
    """The largest log ratio of report probabilities between any two of `inputs` (default: `randomizer.inputs()`)."""
    values = randomizer.inputs() if inputs is None else inputs
    return _largest_ratio(np.stack([randomizer.law(value)[1] for value in values]))


def _largest_ratio(table: np.ndarray) -> float:
    """Largest log(max/min) down any column; infinite when one input allows a report that another forbids."""
    highest, lowest = table.max(axis=0), table.min(axis=0)
    possible = highest > 0
    if (lowest[possible] <= 0).any():
        return math.inf
    return float(np.log(highest[possible] / lowest[possible]).max()) if possible.any() else 0.0
