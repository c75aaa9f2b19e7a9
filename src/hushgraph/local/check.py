"""Measure the epsilon a local mechanism really has, from its written-down law.

For finitely many reports this is an exact enumeration. For a density it is the largest log ratio over a grid of inputs
and reports, which reaches the supremum for piecewise-constant and Laplace densities. It is a lower bound on the true
epsilon, so a value above the claim is a proof of a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hushgraph.errors import InputError


def realized_epsilon(mechanism: Any, inputs: Iterable[Any] | None = None, reports: int = 4001) -> float:
    """The largest log ratio of report probabilities between any two of `inputs`.

    `inputs` defaults to all labels, or to 33 values across the public range. Vectors (`MultiBit`) must be given.
    """
    values = list(_default_inputs(mechanism) if inputs is None else inputs)
    losses = []
    if hasattr(mechanism, "law"):
        losses.append(_largest_ratio(np.stack([mechanism.law(value)[1] for value in values])))
    if hasattr(mechanism, "density"):
        start, stop = mechanism.report_range()
        grid = np.linspace(start, stop, reports)
        losses.append(_largest_ratio(np.stack([mechanism.density(value, grid) for value in values])))
    if not losses:
        raise InputError(f"expected a mechanism with a law or a density; got {type(mechanism).__name__}; add one")
    return max(losses)


def _default_inputs(mechanism: Any) -> Iterable[Any]:
    if hasattr(mechanism, "classes"):
        return range(mechanism.classes)
    return np.linspace(mechanism.low, mechanism.high, 33)


def _largest_ratio(table: np.ndarray) -> float:
    """Largest log(max/min) down any column; infinite when one input allows a report that another forbids."""
    highest, lowest = table.max(axis=0), table.min(axis=0)
    possible = highest > 0
    if (lowest[possible] <= 0).any():
        return math.inf
    return float(np.log(highest[possible] / lowest[possible]).max()) if possible.any() else 0.0
