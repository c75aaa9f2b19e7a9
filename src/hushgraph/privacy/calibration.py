"""The smallest noise that provably meets a budget, found from the safe side.

The search runs on a rough grid, then from its answer on a coarse one, whose epsilons are upper bounds already; the
answer is confirmed on the fine grid. The realized epsilon never exceeds the target. A search that does not converge
raises: there is no fallback.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from hushgraph.errors import CalibrationError
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import COARSE_GRID, FINE_GRID, ROUGH_GRID, PrivacyLoss
from hushgraph.privacy.units import Relation

Accountant = Literal["tightest", "renyi"]

_GRID_SLACK = 1e-3  # a step of the search on a grid takes a tenth of a second and more
_ROUGH_SLACK, _NEAR = 1e-2, 1.01
_FEW_STEPS, _USUAL_SLOPE = 4, 1.2
_EXACT_SLACK = 1e-7
_LARGEST_SCALE = 1e8
_MOST_STEPS, _SECANTS = 80, 20


def noise_scale(
    event_at: Callable[[float], Event],
    relation: Relation,
    budget: Budget,
    accountant: Accountant = "tightest",
) -> float:
    """The smallest scale s (within 0.1%) for which `event_at(s)` costs at most `budget`.

    `event_at` must cost less as s grows. `accountant="renyi"` uses Renyi DP alone, as published calibrators do.
    """
    delta, target = budget.definite_delta, budget.epsilon
    if not budget.is_private:
        return 0.0

    def cost(scale: float, grid: float) -> float:
        loss = PrivacyLoss(event_at(scale), relation, grid)
        return loss.renyi_epsilon(delta) if accountant == "renyi" else loss.epsilon(delta)

    at_one = PrivacyLoss(event_at(1.0), relation, COARSE_GRID)
    if at_one.accountant == "none":
        return 0.0
    on_grid = accountant == "tightest" and at_one.accountant == "PLD"
    if on_grid:
        low, high = _search(lambda s: cost(s, ROUGH_GRID), target, _ROUGH_SLACK)
        scale = _follow(lambda s: cost(s, COARSE_GRID), target, _GRID_SLACK, high[0], _slope(low, high))
    else:
        scale = _search(lambda s: cost(s, COARSE_GRID), target, _EXACT_SLACK)[1][0]
    if on_grid and not cost(scale, FINE_GRID) <= target:  # rounding takes more of a small delta there
        scale = _follow(lambda s: cost(s, FINE_GRID), target, _GRID_SLACK, scale, _USUAL_SLOPE)
    if not cost(scale, FINE_GRID) <= target:
        raise CalibrationError(f"noise scale {scale:g} does not meet epsilon {target:g} on the fine grid")
    return scale


Point = tuple[float, float]  # a scale and its cost


def _follow(cost: Callable[[float], float], target: float, slack: float, start: float, slope: float) -> float:
    """A scale that meets `target`, from one close by: a few steps down a known slope, else a search."""
    scale, before = start, None
    for _ in range(_FEW_STEPS):
        point = (scale, cost(scale))
        if target * (1.0 - slack) <= point[1] <= target:
            return scale
        if not 0.0 < point[1] < math.inf:
            break
        if before is not None:
            slope = _slope(*sorted((before, point)))
        before = point
        scale *= (point[1] / (target * (1.0 - 0.4 * slack))) ** (1.0 / slope)
    return _search(cost, target, slack, scale, _NEAR)[1][0]


def _slope(low: Point, high: Point) -> float:
    """How many times faster the logarithm of the cost falls than that of the scale rises."""
    if not math.isfinite(low[1]) or not 0.0 < high[1] < low[1]:
        return _USUAL_SLOPE
    return min(max(math.log(low[1] / high[1]) / math.log(high[0] / low[0]), 0.5), 20.0)


def _search(
    cost: Callable[[float], float], target: float, slack: float, start: float = 1.0, factor: float = 2.0
) -> tuple[Point, Point]:
    """A bracket around cost(s) = target, the second end safe, narrowed by secants of log cost against log s."""
    low, high = _bracket(cost, target, (start, cost(start)), factor)
    for step in range(_MOST_STEPS):
        if high[1] >= target * (1.0 - slack) or high[0] / low[0] < 1.0 + 1e-12:
            return low, high
        # A cost in steps (noise of whole scales) has no slope to follow: halve what is left.
        smooth = step < _SECANTS
        scale = _secant(low, high, target * (1.0 - 0.4 * slack)) if smooth else math.sqrt(low[0] * high[0])
        point = (scale, cost(scale))
        # A secant that keeps hitting one side leaves the other far away: pull that one in by halving.
        if point[1] <= target:
            high = point
            middle = math.sqrt(low[0] * high[0])
            if high[1] < target * (1.0 - 30 * slack) and (value := cost(middle)) > target:
                low = (middle, value)
        else:
            low = point
    raise CalibrationError(f"no noise scale found for epsilon {target:g} in {_MOST_STEPS} steps")


def _secant(low: Point, high: Point, target: float) -> float:
    """Where the line through two points, in logarithms, meets `target`; the geometric mean if it cannot tell."""
    if not math.isfinite(low[1]) or high[1] <= 0.0:
        return math.sqrt(low[0] * high[0])
    share = math.log(low[1] / target) / math.log(low[1] / high[1])
    scale = low[0] * (high[0] / low[0]) ** min(max(share, 1e-3), 1.0 - 1e-3)
    return scale if low[0] < scale < high[0] else math.sqrt(low[0] * high[0])


def _unreachable(target: float, rising: bool) -> str:
    """Why no scale was found: a target that is too small for any grid, or a cost that stays below it."""
    if rising:
        return (
            f"no noise scale up to {_LARGEST_SCALE:g} meets epsilon {target:g}: expected an epsilon that the "
            "accountant can tell from 0, or a plan whose cost falls with its noise; got neither. Use a larger epsilon"
        )
    return f"no noise scale meets epsilon {target:g}: the cost of the plan does not follow its noise"


def _bracket(cost: Callable[[float], float], target: float, point: Point, factor: float) -> tuple[Point, Point]:
    """Two points with cost(low) > target >= cost(high), `factor` apart, found from `point` on."""
    rising = point[1] > target
    while True:
        scale = point[0] * (factor if rising else 1.0 / factor)
        if not 1.0 / _LARGEST_SCALE < scale < _LARGEST_SCALE:
            raise CalibrationError(_unreachable(target, rising))
        following = (scale, cost(scale))
        if rising and following[1] <= target:
            return point, following
        if not rising and following[1] > target:
            return following, point
        point = following
