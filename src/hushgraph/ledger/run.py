"""A run: a plan at work on a ledger. Mechanisms charge here before they release.

`open_run` checks the whole plan against the dataset's limit before private data is read; `Run.charge` lets through
only what the plan foresaw; `Run.close` gives back what was planned and not used.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import BudgetError, LedgerError
from hushgraph.ledger.ledger import History, Ledger, new_run_id, over_limit
from hushgraph.privacy import events
from hushgraph.privacy.adaptive import WorstOf
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import from_dict

Ways = list[list[dict[str, Any]]]
"""What a run may release: one list of events, or one for each way that it can choose."""
_MOST_WAYS = 64


@dataclass
class Run:
    """One use of a dataset under one plan."""

    ledger: Ledger
    plan: Plan
    identity: str
    seeded: bool
    _used: Counter[str] = field(default_factory=Counter)
    _closed: bool = False
    _chosen: Plan | None = None

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Write to the ledger that `count` releases of `stage` (default: all) are about to leave the vault."""
        count = stage.count if count is None else count
        planned = self._planned(stage.name)
        if self._closed:
            raise BudgetError(f"the run is closed: '{stage.name}' cannot be charged any more")
        if planned.part(stage.count) != stage:
            raise BudgetError(f"'{stage.name}' is not the stage that was planned: expected {planned}; got {stage}")
        if count < 1 or self._used[stage.name] + count > planned.count:
            raise BudgetError(
                f"'{stage.name}' was planned {planned.count} times, used {self._used[stage.name]}; "
                f"{count} more are refused"
            )
        unit = self.plan.unit
        with self.ledger.transaction():
            self.ledger.append(
                "charge",
                {
                    "run": self.identity,
                    "stage": stage.name,
                    "mechanism": stage.mechanism.name,
                    "law": stage.mechanism.law,
                    "sampling": stage.mechanism.sampling,
                    "count": count,
                    "scale": stage.scale,
                    "sensitivity": _finite(stage.sensitivity(unit)),
                    "event": events.to_json(planned.part(count).event(unit)),
                },
            )
        self._used[stage.name] += count

    def _planned(self, name: str) -> Stage:
        """The stage called `name` of the plan, or of the option that was chosen."""
        return self.plan[name] if name in self.plan or self._chosen is None else self._chosen[name]

    def choose(self, method: str, reason: Any) -> Plan:
        """Write to the ledger which option of the plan follows.

        From then on its stages can be charged, and no other option's. `reason` may name released values only.
        """
        option = self.plan.branch(method)
        if self._closed or self._chosen is not None:
            raise BudgetError(f"the run is closed or has chosen already: '{method}' cannot be chosen any more")
        if any(self._used[stage.name] < stage.count for stage in self.plan.stages):
            raise BudgetError(f"'{method}' cannot be chosen before what the choice is made from was charged")
        with self.ledger.transaction():
            self.ledger.append("choice", {"run": self.identity, "option": method, "reason": reason.as_dict()})
        self._chosen = option
        return option

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Write down that a charged stage is carried out again on examples of other records only: no further cost."""
        with self.ledger.transaction():
            self.ledger.append("parallel", {"run": self.identity, "stage": stage.name, "examples": examples})

    def certificate(self) -> Any:
        """The certificate of this run."""
        from hushgraph.ledger.certificate import certify

        return certify(self.ledger.history(), self.identity)

    def close(self) -> None:
        """The run is done: only what was charged stays spent."""
        if not self._closed:
            with self.ledger.transaction():
                self.ledger.append("close", {"run": self.identity})
            self._closed = True


def open_run(ledger: Ledger, plan: Plan, dataset: str, *, seeded: bool) -> Run:
    """Enter the whole plan in the ledger, or refuse it where it would exceed the dataset's limit."""
    unit = plan.unit
    ledger.create(dataset, unit.as_dict())
    identity = new_run_id()
    ways = [events.to_json(way) for way in plan.ways(unit)]
    with ledger.transaction():
        _check_limit(ledger.history(), [[way] for way in ways])
        ledger.append(
            "open",
            {
                "run": identity,
                "plan": plan.as_dict(),
                "method": plan.method,
                "seeded": seeded,
                **({"ways": ways} if plan.branches else {"event": ways[0]}),
            },
        )
    return Run(ledger, plan, identity, seeded)


def chosen(history: History, run: str) -> dict[str, Any]:
    """The option that a run chose, with the reason; nothing for a run that had no choice."""
    for entry in history.of_run(run, "choice"):
        for option in history.of_run(run, "open")[0].values["plan"]["branches"]:
            if option["method"] == entry.values["option"]:
                return {**option, "reason": entry.values["reason"]}
    return {}


def spent(history: History, run: str | None = None) -> PrivacyLoss | WorstOf:
    """The privacy loss a ledger proves, whichever way a run with a choice took: of one run, or of the whole dataset."""
    return _loss(history, [history.ways_of_run(one) for one in (history.runs() if run is None else [run])])


def _loss(history: History, runs: list[Ways]) -> PrivacyLoss | WorstOf:
    """The loss of `runs` together: the most that any combination of their ways costs."""
    totals: dict[tuple[str, ...], list[dict[str, Any]]] = {(): []}
    for ways in runs:
        if len(totals) * len(ways) > _MOST_WAYS:  # all ways of a run together cost at least as much as any of them
            ways = [[event for way in ways for event in way]]
        together = [[*total, *way] for total in totals.values() for way in ways]
        totals = {tuple(sorted(json.dumps(event, sort_keys=True) for event in total)): total for total in together}
    relation = from_dict(history.header["unit"]).relation
    losses = [PrivacyLoss(events.composed([*map(events.from_json, total)]), relation) for total in totals.values()]
    return losses[0] if len(losses) == 1 else WorstOf(tuple(losses))


def _check_limit(history: History, planned: Ways) -> None:
    limit = history.limit()
    if limit is None:
        return
    before = [history.ways_of_run(run) for run in history.runs()]
    after = _loss(history, [*before, planned]).epsilon(limit["delta"])
    if not after <= limit["epsilon"]:
        raise over_limit(after, spent(history).epsilon(limit["delta"]), limit)


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def statement(history: History, delta: float | None = None) -> dict[str, Any]:
    """What a ledger says: each run's price at its own delta, and the total at `delta` (default: the last run's)."""
    runs = []
    for run in history.runs():
        opened = history.of_run(run, "open")[0].values
        at = opened["plan"]["budget"]["delta"]
        runs.append(
            {
                "run": run,
                "method": opened["method"],
                "chosen": chosen(history, run).get("method"),
                "state": "closed" if history.is_closed(run) else "open: its whole plan counts",
                "charges": len(history.of_run(run, "charge")),
                "seeded": opened["seeded"],
                "paper_mode": opened["plan"]["paper"] is not None,
                "epsilon": spent(history, run).epsilon(at),
                "delta": at,
            }
        )
    at = delta if delta is not None else (runs[-1]["delta"] if runs else 1e-6)
    return {
        "dataset": history.header["dataset"],
        "unit": history.header["unit"],
        "runs": runs,
        "total": {"epsilon": spent(history).epsilon(at), "delta": at},
        "limit": history.limit(),
        "torn_bytes": len(history.torn),
    }


def check_history(history: History) -> None:
    """Refuse a ledger whose charges do not fit the plans they were made under."""
    for run in history.runs():
        opened = history.of_run(run, "open")[0].values
        option = _checked_choice(history, run, opened)
        planned = {stage["name"]: stage for stage in (*opened["plan"]["stages"], *option.get("stages", ()))}
        used: Counter[str] = Counter()
        for entry in history.of_run(run, "charge"):
            values = entry.values
            stage = planned.get(values["stage"])
            used[values["stage"]] += values["count"]
            if stage is None or used[values["stage"]] > stage["count"] or values["scale"] != stage["scale"]:
                raise LedgerError(f"run {run}: a charge for '{values['stage']}' does not fit its plan")
    known = set(history.runs())
    for entry in history.entries:
        if entry.run is not None and entry.run not in known:
            raise LedgerError(f"an entry names the run {entry.run}, which was never opened")


def _checked_choice(history: History, run: str, opened: dict[str, Any]) -> dict[str, Any]:
    """The option that a run chose; refuses a choice that was not planned, and a second one."""
    choices = history.of_run(run, "choice")
    known = [option["method"] for option in opened["plan"]["branches"]]
    if len(choices) > 1 or any(choice.values["option"] not in known for choice in choices):
        raise LedgerError(f"run {run}: a choice does not fit its plan")
    return chosen(history, run)
