"""What runs cost: from the events that the entries hold, for the unit they were charged for or for another.

A run counts as its charges once it was closed, as its whole plan until then. A run that chose its way counts as any of
its ways: what it did not choose is part of what it promised. (Under a filter, `Run.close` gives that back.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hushgraph.errors import HushgraphError
from hushgraph.ledger.entries import History, canonical
from hushgraph.privacy import events, units
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss, WorstOf
from hushgraph.privacy.units import Relation, Unit

Ways = list[Event]
"""What a run may release: one event, or one for each way that it can take."""
_MOST_WAYS = 64


def unit_key(unit: dict[str, Any]) -> str:
    """A unit as the text that accounts are found by."""
    return canonical(unit)


def ways_of_run(history: History, run: str, unit: dict[str, Any] | None = None) -> Ways | None:
    """What counts as released by a run, for `unit` (default: the one it was charged for); None where nothing is proved.

    For the unit it was charged for, and for the units that were known then, the stored events are enough. For another
    one they are made again from the stored plan.
    """
    opened = history.opened(run)
    charges = [entry.values for entry in history.of_run(run, "charge")]
    partly = history.is_closed(run) and len(opened["ways"]) == 1
    if unit is None or unit == opened["unit"]:
        if partly:
            return [events.composed([events.from_json(charge["event"]) for charge in charges])]
        return [events.from_json(way) for way in opened["ways"]]
    for price in opened["prices"]:
        if price["unit"] == unit:
            return None if price["ways"] is None else [events.from_json(way) for way in price["ways"]]
    return _replanned(opened["plan"], units.from_dict(unit), charges if partly else None)


def _replanned(stored: dict[str, Any], unit: Unit, charges: list[dict[str, Any]] | None) -> Ways | None:
    """The events of a stored plan for another unit: of its charges if given, else of all of it; None without proof."""
    try:
        from hushgraph.privacy.plan import Plan

        plan = Plan.from_dict(stored)
        if charges is None:
            return plan.ways(unit)
        plan.require_bounds_of(unit)
        stages = {stage.name: stage for stage in plan.stages}
        charged = [replace(stages[one["stage"]], count=one["count"]) for one in charges]
        return [events.composed([plan.cost(stage, unit) for stage in charged])]
    except (HushgraphError, ImportError, LookupError, TypeError, ValueError):
        return None  # no proof for this unit, or a plan of a version that cannot be read back: nothing is claimed


def loss_of(runs: Sequence[Ways], relation: Relation) -> PrivacyLoss | WorstOf:
    """The loss of runs whose plans were fixed beforehand: the most that any combination of their ways costs."""
    totals: dict[tuple[str, ...], Ways] = {(): []}
    for ways in runs:
        if len(totals) * len(ways) > _MOST_WAYS:  # all ways of a run together cost at least as much as any of them
            ways = [events.composed(ways)]
        together = [[*total, way] for total in totals.values() for way in ways]
        totals = {tuple(sorted(map(_text, total))): total for total in together}
    losses = [PrivacyLoss(events.composed(total), relation) for total in totals.values()]
    return losses[0] if len(losses) == 1 else WorstOf(tuple(losses))


def epsilon_of(ways: Ways | None, relation: Relation, delta: float) -> float:
    """Epsilon of one run at `delta`; infinite where nothing is proved."""
    return math.inf if ways is None else loss_of([ways], relation).epsilon(delta)


def chosen(history: History, run: str) -> dict[str, Any]:
    """The branch that a run chose, with the reason; nothing for a run that had no choice."""
    for entry in history.of_run(run, "choice"):
        for branch in history.opened(run)["branches"]:
            if branch["method"] == entry.values["option"]:
                return {**branch, "reason": entry.values["reason"]}
    return {}


def earlier_runs(history: History, dataset: str, unit: Unit) -> dict[str, Any]:
    """What the runs on a dataset cost under a unit that none of them may have been charged for, added up."""
    epsilons: list[float] = []
    deltas: list[float] = []
    seeded: list[str] = []
    unproved: list[str] = []
    left_out = 0
    for run in history.runs(dataset):
        opened = history.opened(run)
        delta = float(opened["claim"]["delta"])
        epsilon = epsilon_of(ways_of_run(history, run, unit.as_dict()), unit.relation, delta)
        private = not opened["seeded"] and math.isfinite(epsilon)
        if private:
            epsilons.append(epsilon)
            deltas.append(delta)
        elif opened["unpublished"]:
            left_out += 1
        else:
            (seeded if opened["seeded"] else unproved).append(run)
    return {
        "runs": len(epsilons) + left_out + len(seeded) + len(unproved),
        "counted": len(epsilons),
        "left_out": left_out,
        "seeded": seeded[:3],
        "unproved": unproved[:3],
        "not_private": len(seeded) + len(unproved),
        "epsilon": math.fsum(epsilons),
        "delta": math.fsum(deltas),
    }


def _text(event: Event) -> str:
    return json.dumps(events.to_json(event), sort_keys=True)


def spent(history: History, run: str | None = None) -> PrivacyLoss | WorstOf:
    """The loss of one run, or of all runs of a ledger with one dataset and one unit, as if they were declared together.

    What all runs of a dataset add up to when each may have been planned in view of the others is `Ledger.total`.
    """
    chosen = history.runs() if run is None else [run]
    found = [ways for one in chosen if (ways := ways_of_run(history, one)) is not None]
    relation = units.from_dict(history.opened(chosen[0])["unit"]).relation if chosen else Relation.ADD_OR_REMOVE
    return loss_of(found, relation)
