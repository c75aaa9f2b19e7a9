"""Private selection: try settings at random, publish the best, and pay for having looked (Papernot and Steinke 2022).

fit_best([GAP(hops=1), GAP(hops=2)], graph, unit, Budget(4.0, 1e-7), mean=10)

A random number of runs is made, each of one candidate drawn uniformly. A run is scored by its right answers on the
validation nodes, with noise where labels are private. Nothing but the best run leaves; how many there were stays
unknown, and so must the time it took. Proof: docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import CoveredCharges
from hushgraph.mechanisms.best_of import BestOf
from hushgraph.mechanisms.hit_count import HitCount
from hushgraph.methods.base import Method, Output
from hushgraph.methods.model import Model
from hushgraph.methods.refusals import require_public_classes
from hushgraph.methods.running import enter, finished
from hushgraph.noise.discrete import uniform_below
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.vault import Vault

if TYPE_CHECKING:
    from hushgraph.ledger.run import Run

MEAN, SHAPE, SCORE_SHARE = 10.0, 0.0, 0.05
_SEARCH = 10
"""Halvings of the interval in which the epsilon of one run is looked for: a thousandth of the budget."""


@dataclass(frozen=True)
class Trial:
    """One run and its score; `vault` holds what it would release if it is the best."""

    score: int
    method: Method
    network: nn.Module
    output: Output
    vault: Vault


def fit_best(
    candidates: Sequence[Method],
    graph: Any,
    unit: Unit | None = None,
    budget: Budget | None = None,
    *,
    mean: float = MEAN,
    shape: float = SHAPE,
    score_share: float = SCORE_SHARE,
    ledger: Ledger | None = None,
    seed: int | None = None,
) -> Model:
    """The best of about `mean` runs of candidates drawn at random; all of it together stays within `budget`.

    `shape` is that of the number of runs: 0 (logarithmic) costs least, 1 is geometric. `score_share` of a run's epsilon
    is spent on its score where labels are private.
    """
    if budget is None or not budget.is_private:
        raise InputError(f"budget: expected a finite Budget(epsilon, delta) to select under; got {budget!r}")
    checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph)
    unit = unit if unit is not None else candidates[0].default_unit(checked)
    unit.check(checked)
    require_public_classes(checked, unit, budget)
    plan = selection_plan(candidates, checked.metadata, unit, budget, mean, shape, score_share)
    run, noise = enter(checked, plan, ledger, seed)
    if not plan["selection"].is_free(unit):
        run.charge(plan["selection"])
    best = _best(candidates, plan.mechanism("selection", BestOf), checked, noise)
    seconds = sum(best.vault.seconds.values())  # of the best alone: the time of all tells how many there were
    ended = best.vault.end(best.output.scores)
    return finished(best.method, best.network, best.output, ended, run, checked, seconds)


def selection_plan(
    candidates: Sequence[Method],
    metadata: Metadata,
    unit: Unit,
    budget: Budget,
    mean: float = MEAN,
    shape: float = SHAPE,
    score_share: float = SCORE_SHARE,
) -> Plan:
    """The plan of the whole selection: candidates with as little noise as the budget allows."""
    if not candidates:
        raise InputError("candidates: expected at least one method; got none")
    if metadata.num_val < 1:
        raise InputError("selection: expected validation nodes to score by; got none")
    fixed = budget.for_units(unit.count(metadata))

    def at(epsilon: float) -> Plan:
        each = Budget(epsilon, fixed.delta)
        plans = [_scored_plan(method, metadata, unit, each, score_share) for method in candidates]
        stage = Stage("selection", BestOf.of(plans, mean, shape), noise=None, scale=1.0)
        first = plans[0]
        return Plan("best-of", metadata, unit, fixed, (stage,), first.public, first.unprotected)

    return _largest(at, fixed)


def _largest(at: Any, budget: Budget) -> Plan:
    """The plan with the largest epsilon a run for which all together stay within the budget, by bisection."""
    whole: Plan = at(budget.epsilon)
    if whole.epsilon <= budget.epsilon:
        return whole
    low, high, found = 0.0, budget.epsilon, None
    for _ in range(_SEARCH):
        middle = 0.5 * (low + high)
        plan = at(middle)
        if plan.epsilon <= budget.epsilon:
            low, found = middle, plan
        else:
            high = middle
    if found is None:
        raise UnprovenError(
            f"selection: no noise was found with which all of it stays within epsilon {budget.epsilon:g}; give a "
            "larger budget, a smaller mean, or candidates with a Renyi bound"
        )
    return found


def _scored_plan(method: Method, metadata: Metadata, unit: Unit, budget: Budget, share: float) -> Plan:
    """The plan of one candidate with its score, both within the budget."""
    score, spent = HitCount(), 0.0
    if not score.reads <= unit.public:
        score.require(unit)
        spent = share * budget.epsilon
    scale = float(score.whole_scale_within(spent, unit)) if spent else None
    plan = method.plan(metadata, unit, Budget(budget.epsilon - spent, budget.delta))
    if plan.branches:
        raise UnprovenError(f"{method.name} makes a choice of its own; select among the methods it chooses from")
    if spent and _reads_raw(plan):
        raise UnprovenError(f"{method.name}: no bound is known for a score of predictions that read raw neighborhoods")
    return replace(plan, budget=budget, stages=(*plan.stages, Stage("score", score, noise=None, scale=scale)))


def _reads_raw(plan: Plan) -> bool:
    """Whether predictions read raw neighborhoods, so that one record is in many of them."""
    return any(note.code is Code.RAW_PREDICTIONS for note in plan.unprotected)


def _best(candidates: Sequence[Method], selection: BestOf, graph: CheckedGraph, noise: NoiseSource) -> Trial:
    """As many trials as are drawn; of equal scores the first, as good as any since all are drawn alike."""
    draws, best = noise.stream("selection"), None
    for number in range(selection.draw_runs(draws)):
        chosen = uniform_below(len(candidates), draws)
        trial = _trial(candidates[chosen], selection.candidates[chosen], graph, noise.stream(f"run {number}"))
        if best is None or trial.score > best.score:
            best = trial
    assert best is not None
    return best


def _trial(method: Method, plan: Plan, graph: CheckedGraph, noise: NoiseSource) -> Trial:
    vault = Vault(graph, plan, cast("Run", CoveredCharges()), noise, None)
    network = method.network(plan, vault.generator("weights"))
    output = method.run(vault, network, train=True)
    if output.scores is None:
        raise InputError(f"selection: expected methods that predict classes; got {method.name}")
    return Trial(int(vault.release("score", output.scores)), output.method or method, network, output, vault)
