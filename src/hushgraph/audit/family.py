"""Lower bounds on epsilon through the mechanism's own trade-off curve.

A handful of guesses says little about (epsilon, delta) with a tiny delta, but much about a curve that is known up to
one number. The family here is the plan with all its noise scaled by s: the curve of the real mechanism is assumed to be
that of some s (s = 1 if all is well). Each s is a hypothesis; the bound is the epsilon of the noisiest one that the
guesses do not refute.

* `family_bound` takes canaries that share no randomness (own coordinates, own batch coins). A canary whose log
  likelihood ratio is positive is called planted. Under s a call is right with probability at most (1 + TV(s)) / 2, TV
  being the total variation between the two worlds, so the number of right calls is at most binomial: an exact test
  with a threshold that is fixed beforehand. Ratios are worked out for noise as planned and for half of it,
  because the first kind reads a mechanism with too little noise badly; the risk is shared out between them.
* `one_run_family_bound` needs no independence (Mahloujifar, Melis, Chaudhuri 2024), and is looser.

Proof: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from hushgraph.audit import bounds
from hushgraph.audit.bounds import check_scores
from hushgraph.errors import CalibrationError
from hushgraph.privacy import events
from hushgraph.privacy.loss import COARSE_GRID, FINE_GRID, PrivacyLoss
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_RISK_SHARES = (0.8, 0.2)
SMALLEST_SCALE = 0.05
_STEPS = 7
_CURVE_POINTS = 80


@dataclass(frozen=True)
class Family:
    """The stages with their noise scaled, for the unit that the canaries are changes of."""

    stages: Sequence[Stage]
    unit: Unit

    def loss(self, scale: float, grid: float = COARSE_GRID) -> PrivacyLoss:
        """The loss when all noise is `scale` times what is planned, or the next that can be drawn."""
        scales = [stage.mechanism.usable_scale(scale * (stage.scale or 0.0)) for stage in self.stages]
        scaled = [replace(stage, scale=one).event(self.unit) for stage, one in zip(self.stages, scales)]
        return PrivacyLoss(events.composed(scaled), self.unit.relation, grid)

    def epsilon(self, scale: float, delta: float) -> float:
        """Epsilon at `delta` of that loss."""
        return self.loss(scale, FINE_GRID).epsilon(delta)

    def distance(self, scale: float) -> float:
        """The total variation between the worlds with and without one unit: an upper bound, as all accounting is."""
        return self.loss(scale).delta(0.0)

    def noisiest(self, refuted: Callable[[float], bool]) -> float | None:
        """The largest scale (from the safe side) that is not refuted, if more noise is refuted more easily.

        None when even the largest scale is not refuted. Scales below `SMALLEST_SCALE` are not looked at.
        """
        high = 1.0
        while not refuted(high):
            high *= 2.0
            if high > 64.0:
                return None
        low = high / 2.0
        while refuted(low):
            high, low = low, low / 2.0
            if low < SMALLEST_SCALE:
                return high
        for _ in range(_STEPS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if refuted(middle) else (middle, high)
        return high


def family_bound(
    ratios: np.ndarray, planted: np.ndarray, family: Family, delta: float, confidence: float = 0.95
) -> float:
    """The epsilon that independent canaries prove, by the number of coins that are read rightly off their ratios.

    `ratios` has one row for each of `mechanisms.canaries.SCALES`, or is a single row.
    """
    rows, shares = (ratios, _RISK_SHARES) if ratios.ndim == 2 else (ratios[None], (1.0,))
    distance = 0.0
    for row, share in zip(rows, shares, strict=True):
        check_scores(row, planted, confidence)
        right = int(((row > 0.0) == planted).sum())
        risk = share * (1.0 - confidence)
        least = float(stats.beta.ppf(risk, right, len(row) - right + 1)) if right else 0.0
        distance = max(distance, 2.0 * least - 1.0)
    return _epsilon(family, delta, lambda scale: family.distance(scale) < distance)


def one_run_family_bound(
    ratios: np.ndarray, planted: np.ndarray, family: Family, delta: float, confidence: float = 0.95
) -> float:
    """The epsilon that canaries of one run prove, whatever they share."""
    check_scores(ratios, planted, confidence)
    counted = [bounds.right_guesses(ratios, planted, share) for share in bounds.F_SHARES]
    risk = (1.0 - confidence) / len(counted)

    def refuted(scale: float) -> bool:
        curve = bounds.loss_curve(family.loss(scale), points=_CURVE_POINTS)
        return any(bounds.refutes(curve, len(ratios), guesses, right, risk) for right, guesses in counted)

    return _epsilon(family, delta, refuted)


def _epsilon(family: Family, delta: float, refuted: Callable[[float], bool]) -> float:
    """Epsilon of the noisiest family member that stands. Where accounting gives out, the last one it could price."""

    def safely(scale: float) -> bool:
        try:
            return refuted(scale)
        except CalibrationError:
            return False

    scale = family.noisiest(safely)
    return 0.0 if scale is None else family.epsilon(scale, delta)
