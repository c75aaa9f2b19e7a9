"""Epsilon of many runs together, in seconds: an upper bound that is a little above what the fine grid gives.

Equal runs are counted, not repeated. The grid grows with the epsilon, so that the number of its points does not; every
grid gives an upper bound. A run that chooses its way is replaced by one pair of distributions that dominates all of its
ways, so that no combination of ways has to be tried (docs/proofs/count.md).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import signal

from hushgraph.errors import CalibrationError
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.fft_error import ComposedLoss
from hushgraph.privacy.loss import FINE_GRID, ROUGH_GRID, PrivacyLoss
from hushgraph.privacy.units import Relation

_POINTS = 20_000
"""How many points of the grid there are between 0 and epsilon, at least."""

Ways = Sequence[Event]
"""What a run may release: one event, or one for each way that it can take."""


def epsilon_at_most(runs: Iterable[tuple[Ways, int]], relation: Relation, delta: float) -> float | None:
    """An upper bound on epsilon of runs that were fixed beforehand, each given with how often it is made.

    None where one of several ways has no privacy-loss distribution, or none that fits on a grid at this delta.
    """
    together = _Runs.of(runs, relation)
    if together.choosing and not together.has_distributions:
        return None
    if together.is_exact:
        return together.fixed.epsilon(delta)
    rough = together.epsilon(delta, ROUGH_GRID)
    if together.choosing and not math.isfinite(rough):
        return None
    grid = max(FINE_GRID, rough / _POINTS)
    return rough if grid >= ROUGH_GRID else together.epsilon(delta, grid)


@dataclass(frozen=True)
class _Runs:
    """Runs of one way as one loss; runs of several ways as the losses of these, with how often."""

    fixed: PrivacyLoss
    choosing: tuple[tuple[tuple[PrivacyLoss, ...], int], ...]

    @classmethod
    def of(cls, runs: Iterable[tuple[Ways, int]], relation: Relation) -> _Runs:
        fixed: list[Event] = []
        counts: dict[tuple[str, ...], int] = {}
        for ways, count in runs:
            if len(ways) == 1:
                fixed.append(events.repeated(ways[0], count))
            else:
                text = tuple(sorted(json.dumps(events.to_json(way), sort_keys=True) for way in ways))
                counts[text] = counts.get(text, 0) + count
        choosing = [
            (tuple(PrivacyLoss(events.from_json(json.loads(way)), relation) for way in ways), count)
            for ways, count in counts.items()
        ]
        return cls(PrivacyLoss(events.composed(fixed), relation), tuple(choosing))

    @property
    def is_exact(self) -> bool:
        """Whether no grid is needed."""
        return not self.choosing and "PLD" not in self.fixed.accountant

    @property
    def has_distributions(self) -> bool:
        """Whether all parts have a privacy-loss distribution."""
        return all(loss.has_distribution for loss in (self.fixed, *(way for ways, _ in self.choosing for way in ways)))

    def epsilon(self, delta: float, grid: float) -> float:
        """By basic composition of what is pure with the distribution of the rest."""
        if not self.choosing:
            return replace(self.fixed, grid=grid).epsilon(delta)
        pure = self.fixed.pure + math.fsum(count * max(way.pure for way in ways) for ways, count in self.choosing)
        try:
            parts = [
                dominating([replace(way, grid=grid).distribution for way in ways], grid).repeated(count)
                for ways, count in self.choosing
            ]
            whole = reduce(ComposedLoss.then, parts, replace(self.fixed, grid=grid).distribution)
        except (CalibrationError, MemoryError):
            return math.inf
        left = delta - whole.error
        return pure + float(whole.pld.get_epsilon_for_delta(left)) if left > 0.0 else math.inf


def dominating(losses: Sequence[ComposedLoss], grid: float) -> ComposedLoss:
    """One loss whose delta is at every epsilon at least that of each of `losses`, with what rounding took from them."""
    errors = [loss.error for loss in losses]
    removed = _envelope([loss.pld._pmf_remove.to_dense_pmf() for loss in losses], errors, grid)
    if all(loss.pld._symmetric for loss in losses):
        return ComposedLoss(pld_lib.PrivacyLossDistribution(removed))
    added = _envelope([loss.pld._pmf_add.to_dense_pmf() for loss in losses], errors, grid)
    return ComposedLoss(pld_lib.PrivacyLossDistribution(removed, added))


def _envelope(pmfs: Sequence[pld_pmf.DensePLDPmf], errors: Sequence[float], grid: float) -> pld_pmf.PLDPmf:
    """The largest delta at each point, connected from above."""
    first = min(pmf._lower_loss for pmf in pmfs)
    last = max(pmf._lower_loss + pmf.size - 1 for pmf in pmfs)
    deltas = np.max([_deltas(pmf, first, last, grid) + error for pmf, error in zip(pmfs, errors)], axis=0)
    capped = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, capped)


def _deltas(pmf: pld_pmf.DensePLDPmf, first: int, last: int, grid: float) -> np.ndarray:
    """Delta at the points `first` to `last`, from above: the sum over larger losses l of p(l) (1 - e^(epsilon - l)).

    Both sums run down from the largest loss and have positive terms only, so each is off by a share of itself.
    """
    probabilities = np.zeros(last - first + 1)
    begin = pmf._lower_loss - first
    probabilities[begin : begin + pmf.size] = pmf._probs
    down = np.maximum(probabilities[::-1], 0.0)
    masses = np.cumsum(down)
    weighted = signal.lfilter([1.0], [1.0, -math.exp(-grid)], down)
    rounding = 4.0 * sys.float_info.epsilon * down.size * masses
    found: np.ndarray = (masses - weighted + rounding)[::-1] + pmf._infinity_mass
    return found
