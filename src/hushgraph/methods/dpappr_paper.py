"""What the publication of DP-APPR claims, for paper mode: its noise for a claimed (epsilon, delta).

1. Half of epsilon and of delta (or another share) is for the rows, the rest for DP-SGD; both claims are divided by the
   rate q' at which the training graph was sampled. (What a secret sample gives is ln(1 + q'(e^epsilon - 1)).)
2. M rows are composed by a general theorem: each has epsilon_g / (2 sqrt(M ln(e + epsilon_g / delta_g))), delta_g / 2M.
   A row is one Gaussian of norm C1 by the classical formula, or K picks, and K Laplace values for half of its epsilon.
3. DP-SGD is charged by the moments accountant with rate B / N, as if one node were in one example; the baseline `dpsgd`
   multiplies its noise by the batch size.

Nothing of this is proved for what is run: `Plan.epsilon` is, by docs/proofs/dpappr.md, for rows of which all may change
and for examples of which every one may read the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hushgraph.errors import InputError
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import PaperClaim, Plan, Stage
from hushgraph.privacy.units import Relation, Unit

if TYPE_CHECKING:
    from hushgraph.methods.dpappr import DPAPPR

_HALVINGS = 200


def paper_plan(method: DPAPPR, metadata: Metadata, unit: Unit, budget: Budget) -> Plan:
    """The plan of a run with the publication's noise. Its delta may exceed 1/n; the certificate then says so."""
    if method.variant == "em-v1-gaussian":
        raise InputError("em-v1-gaussian: expected a variant of the publication in paper mode; got ours; use em-v1")
    delta = budget.for_units(unit.count(metadata)).definite_delta if budget.delta is None else budget.delta
    share = method.pagerank_share if method.row_stages(metadata) else 0.0
    rate = method.sample or 1.0
    rows = row_scales(method, metadata, share * budget.epsilon / rate, 0.5 * delta)
    training = method.training(metadata, method.num_rows(metadata) - 1)
    network = network_scale(method, metadata, (1.0 - share) * budget.epsilon / rate, (0.5 if share else 1.0) * delta)
    stages = [*rows, Stage("network", training, noise=None, scale=network)]
    claim = PaperClaim(unit, "renyi", budget.epsilon)
    return Plan(
        method.name,
        metadata,
        unit.honest,
        replace(budget, delta=delta),
        tuple(stages),
        tuple(method.public_notes(metadata, unit)),
        (*method.unprotected_notes(metadata, unit), *_large_delta(delta, unit.count(metadata))),
        claim,
    )


def _large_delta(delta: float, units: int) -> Sequence[Note]:
    return [note(Code.LARGE_DELTA, delta=delta, units=units)] if delta * units >= 1.0 else []


def row_scales(method: DPAPPR, metadata: Metadata, epsilon: float, delta: float) -> list[Stage]:
    """The stages of the rows with the publication's noise for (epsilon, delta) in all."""
    stages = method.row_stages(metadata)
    if not stages:
        return []
    count, top = method.num_rows(metadata), method.top
    each, small = epsilon / (2.0 * math.sqrt(count * math.log(math.e + epsilon / delta))), delta / (2.0 * count)
    if method.variant == "gm":
        scales = [math.sqrt(2.0 * math.log(1.25 / small)) * method.row_bound / each]
    else:
        parts = len(stages)
        pick = _solve(lambda one: picks_cost(one, top, small), each / parts)
        steps = getattr(stages[-1].mechanism, "steps", 1)
        scales = [1.0 / pick, top * steps * parts / each][:parts]
    return [replace(stage, noise=None, scale=scale) for stage, scale in zip(stages, scales, strict=True)]


def picks_cost(epsilon: float, count: int, delta: float) -> float:
    """What `count` picks of one row cost, each with Gumbel noise of its range over `epsilon`."""
    rounds = count * epsilon * math.tanh(epsilon) + epsilon * math.sqrt(2.0 * count * math.log(1.0 / delta))
    return 2.0 * min(count * epsilon, rounds)


def network_scale(method: DPAPPR, metadata: Metadata, epsilon: float, delta: float) -> float:
    """The noise of gradient sums for (epsilon, delta), as if a node were in one example of all nodes."""
    training = method.training(metadata, 0)
    rate = min(1.0, method.batch_size / method.num_nodes(metadata))
    examples = method.batch_size if method.variant == "dpsgd" else 1
    return _multiplier(rate, training.steps, epsilon, delta) * method.max_grad_norm * examples


@lru_cache(maxsize=256)
def _multiplier(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The noise multiplier of sampled Gaussian steps; the runs of a study that differ in a seed ask again."""

    def event_at(multiplier: float) -> events.Event:
        return events.sampled_gaussian(rate, multiplier, steps)

    return noise_scale(event_at, Relation.NULL, Budget(epsilon, delta), "renyi")


def _solve(rising: Callable[[float], float], target: float) -> float:
    """Where a rising function takes the value `target`, from below."""
    low, high = 0.0, 1.0
    while rising(high) < target:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rising(middle) <= target else (low, middle)
    return low
