"""What labels by noisy majority cost, given how clearly the votes at hand decide. Proof: docs/proofs/leads.md.

The lead of a query is the largest count minus the second largest. All orders are above 1, and all noise is Gaussian and
rounded to whole numbers. Nothing here reads data.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from hushgraph.privacy.renyi import ORDERS, beyond

_FAILS = 0.1
"""Of delta: how probable it may be that the noise of the sum of leads is larger than its allowance."""
_SLOPES = 129
_ABOVE, _LOST = 1.0 + 1e-9, 1e-12
"""What floating point may lose, many times over."""
_REACH = 12.0


def for_all_votes(noise: float, order: float) -> float:
    """The divergence of one label, whatever the votes: two counts move by 1."""
    return order / noise**2


def of_lead(lead: np.ndarray, classes: int, noise: float, order: float) -> np.ndarray:
    """The divergence of one label between votes with this lead and their neighbors, in the larger direction."""
    most, mu = for_all_votes(noise, order), math.sqrt(2.0) / noise
    # 2 less: neighbors may be the first of the pair; 1 less: noise is rounded, and ties may be lost
    tail = stats.norm.logsf((np.asarray(lead, dtype=np.float64) - 3.0) / (math.sqrt(2.0) * noise))
    log_q = np.minimum(tail + math.log(max(classes - 1, 1)), math.log(0.5))
    place = -special.ndtri_exp(log_q)
    first = order * np.log1p(-np.exp(log_q)) + (1.0 - order) * stats.norm.logcdf(place - mu)
    rest = order * (order - 1.0) * mu**2 / 2.0 + stats.norm.logsf(place - (order - 1.0) * mu)
    found = np.logaddexp(first, rest) / (order - 1.0)
    decided = tail + math.log(max(classes - 1, 1)) < math.log(0.5)
    return np.asarray(np.where(decided, np.clip(found * _ABOVE + _LOST, 0.0, most), most))


def of_sum(total: float, queries: int, teachers: int, low: int, classes: int, noise: float, order: float) -> float:
    """The divergence of all labels at most, where leads beyond `low` add up to at least `total`.

    For every slope s >= 0: the sum of f(lead) is at most queries x max (f(lead) + s x beyond) - s x total.
    """
    leads = np.arange(teachers + 1)
    each, counted = of_lead(leads, classes, noise, order), np.maximum(leads - low, 0)
    most = for_all_votes(noise, order)
    slopes = np.linspace(0.0, 4.0 * most / (teachers - low), _SLOPES)
    found = queries * np.max(each + slopes[:, None] * counted, axis=1) - slopes * total
    return float(min(max(float(found.min()) + (_ABOVE - 1.0) * queries * most, 0.0), queries * most))


def epsilon_of_labels(
    noisy: float,
    std: float,
    moved: float,
    queries: int,
    teachers: int,
    low: int,
    classes: int,
    noise: float,
    delta: float,
) -> float:
    """What all labels and the noisy sum of leads cost together, for the votes at hand; wrong within `delta`.

    `std` is the noise of the sum, `moved` how far one unit can move it.
    """
    total = noisy - float(stats.norm.isf(_FAILS * delta)) * std - 0.5
    costs = [
        of_sum(total, queries, teachers, low, classes, noise, order)
        + order * (moved / std) ** 2 / 2.0
        + beyond(order, (1.0 - _FAILS) * delta)
        for order in ORDERS
    ]
    return max(0.0, min(costs))


def label_law(counts: np.ndarray, noise: float) -> np.ndarray:
    """The probability of every label for one query; of equal noisy counts the first class wins."""
    reach = math.ceil(_REACH * noise) + 1
    values = np.arange(int(counts.min()) - reach, int(counts.max()) + reach + 1)
    low, high = ((values[None, :] + side - counts[:, None]) / noise for side in (-0.5, 0.5))
    below, upto = stats.norm.cdf(low), stats.norm.cdf(high)
    there = np.where(low > 0.0, stats.norm.sf(low) - stats.norm.sf(high), upto - below)  # small ones to full precision
    law = np.empty(len(counts))
    for winner in range(len(counts)):
        others = np.concatenate([below[:winner], upto[winner + 1 :]])
        law[winner] = (there[winner] * others.prod(axis=0)).sum()
    return law
