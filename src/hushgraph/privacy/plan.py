"""A plan: the releases a method will make, with their noise, before any private data is read.

A method lists its stages with *relative* noise; `Plan.make` finds the one factor that meets the budget. What a stage
costs depends on the unit, so it is asked for, not stored: that is how one plan shows the epsilon that a paper claims
(for the paper's unit) beside the one that can be proved. A plan is data: `from_dict(as_dict())` is the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from hushgraph.errors import CalibrationError, InputError, UnprovenError
from hushgraph.files.reading import Form, require_fields
from hushgraph.privacy import events, relations
from hushgraph.privacy.budget import Budget, as_word
from hushgraph.privacy.calibration import Accountant, noise_scale
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss, WorstOf
from hushgraph.privacy.mechanism import Mechanism, mechanism_from_dict
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note
from hushgraph.privacy.units import Unit
from hushgraph.privacy.units import from_dict as unit_from_dict

M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class Stage:
    """`count` releases of a mechanism under one name.

    `noise` is relative to the other stages of the plan; None: the stage keeps its own `scale`. `parallel` is how many
    parts without a common record may share one charge. `scale` is absolute, and 0 in a run without protection.
    """

    name: str
    mechanism: Mechanism
    count: int = 1
    noise: float | None = 1.0
    parallel: int = 1
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.parallel < 1:
            raise InputError(f"stage '{self.name}': expected a count of at least 1; got {self.count}, {self.parallel}")

    def is_free(self, unit: Unit) -> bool:
        """Whether all that the mechanism reads is public under `unit`: then it runs without noise and costs nothing."""
        return self.mechanism.reads <= unit.public

    def batches(self, unit: Unit) -> dict[str, Any] | None:
        """Steps and sampling rate, where the stage is charged for Poisson batches."""
        drawn = {} if self.is_free(unit) or self.mechanism.sampling != "poisson" else self.mechanism.as_dict()
        return {"stage": self.name, "steps": drawn["steps"], "rate": drawn["sample_rate"]} if "steps" in drawn else None

    def sensitivity(self, unit: Unit) -> float:
        """How far one unit can move one release."""
        return 0.0 if self.is_free(unit) else self.mechanism.sensitivity(unit)

    def event(self, unit: Unit) -> Event:
        """The privacy event of all `count` releases."""
        return self._event(unit, self.mechanism.event)

    def claimed_event(self, unit: Unit) -> Event:
        """What a publication would claim for them."""
        return self._event(unit, self.mechanism.claimed_event)

    def _event(self, unit: Unit, of: Any) -> Event:
        if self.is_free(unit):
            return events.nothing()
        if self.scale is None:
            raise InputError(f"stage '{self.name}': its noise has not been set yet; use Plan.make")
        return events.repeated(of(unit, self.scale), self.count)

    def reference(self, unit: Unit) -> float | None:
        """What a relative noise of 1 stands for; None where the noise is fixed or the stage free. Unproven: refused."""
        if self.is_free(unit):
            return None
        found = None if self.noise is None else self.mechanism.reference(unit)
        self.mechanism.require(unit)  # also where a reference of its own does not ask for the bound
        return found

    def at(self, factor: float, reference: float | None) -> Stage:
        """The stage with its noise set to `factor` times its relative noise; as it is without a reference."""
        if reference is None or self.noise is None:
            return self
        return replace(self, scale=self.mechanism.usable_scale(factor * self.noise * reference))

    def scaled(self, factor: float, unit: Unit) -> Stage:
        """The same from the unit."""
        return self.at(factor, self.reference(unit))

    def facts(self, unit: Unit) -> dict[str, Any]:
        """What can be read of a stage without its mechanism: law, sampling, count, noise and bound."""
        return {
            "name": self.name,
            "mechanism": self.mechanism.name,
            "law": self.mechanism.law,
            "sampling": self.mechanism.sampling,
            "asymptotic": self.mechanism.asymptotic,
            "count": self.count,
            "scale": self.scale,
            "sensitivity": self.sensitivity(unit),
        }

    def as_dict(self) -> dict[str, Any]:
        """The stage as plain JSON values."""
        own = {"count": self.count, "noise": self.noise, "parallel": self.parallel, "scale": self.scale}
        return {"name": self.name, "mechanism": self.mechanism.as_dict(), **own}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Stage:
        """The inverse of `as_dict`."""
        require_fields(values, _STAGE_FORM, "a stage of a plan")
        return cls(**{**values, "mechanism": mechanism_from_dict(values["mechanism"])})


_STAGE_FORM: dict[str, Form] = {
    "name": str,
    "mechanism": dict,
    **dict.fromkeys(("count", "parallel"), int),
    **dict.fromkeys(("noise", "scale"), (float, type(None))),
}


@dataclass(frozen=True)
class PaperClaim:
    """What a publication would say of the same run: its unit, its accountant, its epsilon."""

    unit: Unit
    accountant: Accountant
    epsilon: float

    def as_dict(self) -> dict[str, Any]:
        """The claim as plain JSON values."""
        return {"unit": self.unit.as_dict(), "accountant": self.accountant, "epsilon": as_word(self.epsilon)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PaperClaim:
        """The inverse of `as_dict`."""
        return cls(unit_from_dict(values["unit"]), values["accountant"], float(values["epsilon"]))


@dataclass(frozen=True)
class Plan:
    """The stages of one run and the unit they are charged for.

    A plan with `branches` makes its own stages, all of pure epsilon, and then exactly one of the branches, chosen with
    what the stages released in view. It costs its own stages and the costliest branch, whichever is chosen.

    `holds` names the parts of the data that the run is given, out of `edges`, `features` and `labels`; None: all. A run
    costs a unit nothing that leaves all of these parts as they are.
    """

    method: str
    metadata: Metadata
    unit: Unit
    budget: Budget
    stages: tuple[Stage, ...]
    public: tuple[Note, ...] = ()
    unprotected: tuple[Note, ...] = ()
    paper: PaperClaim | None = None
    branches: tuple[Plan, ...] = field(default=())
    holds: frozenset[str] | None = None

    def __post_init__(self) -> None:
        for branch in self.branches or (None,):
            names = [stage.name for stage in (*self.stages, *(branch.stages if branch else ()))]
            if len(set(names)) != len(names):
                raise InputError(f"a plan needs distinct stage names; got {names}")
        self._check_branches()
        relations.require_kept(self)

    @classmethod
    def make(
        cls,
        method: str,
        metadata: Metadata,
        unit: Unit,
        budget: Budget,
        stages: Sequence[Stage],
        *,
        public: Sequence[Note] = (),
        unprotected: Sequence[Note] = (),
        paper: Accountant | None = None,
        branches: Sequence[Plan] = (),
    ) -> Plan:
        """The plan with the least noise that meets `budget`; `paper` names the accountant of a publication."""
        budget = budget.for_units(unit.count(metadata), unit.counted(metadata))
        made = _scaled(stages, unit, budget, paper)
        honest = unit if paper is None else unit.honest
        claim = None if paper is None else PaperClaim(unit, paper, _claimed(made, unit, budget, paper))
        plan = cls(method, metadata, honest, budget, made, tuple(public), tuple(unprotected), claim, tuple(branches))
        plan.require_within_budget()
        return plan

    def require_within_budget(self) -> None:
        """Refuse a plan that costs more than its budget, or has no finite epsilon where one was asked for."""
        cost = self.epsilon if self.paper is None else self.paper.epsilon
        if self.budget.is_private and not math.isfinite(cost):
            raise CalibrationError(f"the plan of {self.method} has no finite epsilon")
        if cost > self.budget.epsilon:
            raise CalibrationError(f"the plan costs {cost:g}, over its budget {self.budget.epsilon:g}")

    def _check_branches(self) -> None:
        if not self.branches:
            return
        units = {self.unit, *(branch.unit for branch in self.branches)}
        deltas = {self.budget.delta, *(branch.budget.delta for branch in self.branches)}
        if len(units) > 1 or len(deltas) > 1 or len({branch.method for branch in self.branches}) < len(self.branches):
            raise InputError("a choice needs branches with names of their own and the unit and delta of the plan")
        own = PrivacyLoss(events.composed([stage.event(self.unit) for stage in self.stages]), self.unit.relation)
        if own.accountant != "sum of pure epsilons":
            raise UnprovenError("a choice is proved after releases of pure epsilon only; got other stages before it")

    # Looking up

    def __getitem__(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise InputError(f"the plan of {self.method} has no stage '{name}'")

    def mechanism(self, name: str, kind: type[M]) -> M:
        """The mechanism of a stage, which must be of this kind."""
        found = self[name].mechanism
        if not isinstance(found, kind):
            raise InputError(f"stage '{name}': expected a {kind.name}; got a {found.name}")
        return found

    def __contains__(self, name: str) -> bool:
        return any(stage.name == name for stage in self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def branch(self, method: str) -> Plan:
        """The branch called `method`."""
        for branch in self.branches:
            if branch.method == method:
                return branch
        raise InputError(f"the plan of {self.method} has no branch '{method}'")

    def runs_exactly(self, name: str) -> bool:
        """Whether a stage runs without noise: because all it reads is public, or because nothing is protected."""
        return not self.budget.is_private or self[name].is_free(self.unit)

    @property
    def stated_unit(self) -> Unit:
        """The unit that the run states: the paper's, in paper mode."""
        return self.unit if self.paper is None else self.paper.unit

    # What it costs

    def ways(self, unit: Unit) -> list[Event]:
        """What can be released in all, for `unit`: one event, or one for each branch.

        Another unit than the one the run is charged for is refused where the run does not keep to its bounds.
        """
        self.require_bounds_of(unit)
        own = [self.cost(stage, unit) for stage in self.stages]
        parts = [[self.cost(stage, unit) for stage in branch.stages] for branch in self.branches] or [[]]
        return [events.composed([*own, *part]) for part in parts]

    def restricted(self, *parts: str) -> Plan:
        """The same plan for a run that is given these parts of the data alone, without the stages that read others."""
        held = frozenset(parts)
        public = [one for one in self.public if one.code is not Code.ALL_OF or one.values["part"] in held]
        stages = [stage for stage in self.stages if stage.mechanism.reads <= held]
        return replace(self, stages=tuple(stages), public=tuple(public), holds=held)

    def misses(self, unit: Unit) -> bool:
        """Whether the run is given nothing that `unit` can change: its law is then the same for all neighbors."""
        return self.holds is not None and self.holds <= unit.public

    def cost(self, stage: Stage, unit: Unit) -> Event:
        """What a stage of this plan costs under `unit`."""
        return events.nothing() if self.misses(unit) else stage.event(unit)

    def require_bounds_of(self, unit: Unit) -> None:
        """Refuse a unit whose bounds the run does not keep to."""
        stages = [*self.stages, *(stage for branch in self.branches for stage in branch.stages)]
        reads_edges = any("edges" in stage.mechanism.reads for stage in stages)
        if unit != self.unit and not self.misses(unit) and not self.unit.covers(unit, edges=reads_edges):
            raise UnprovenError(f"a run charged for the unit '{self.unit}' proves nothing for the unit '{unit}'")

    @cached_property
    def loss(self) -> PrivacyLoss | WorstOf:
        """What is charged: the loss for the unit that is protected."""
        losses = tuple(PrivacyLoss(way, self.unit.relation) for way in self.ways(self.unit))
        return losses[0] if len(losses) == 1 else WorstOf(losses)

    @cached_property
    def epsilon(self) -> float:
        """Epsilon as it can be proved, at the budget's delta."""
        return self.loss.epsilon(self.budget.definite_delta)

    # As data

    def facts(self) -> dict[str, Any]:
        """What a ledger writes down: the plan whole, its events, and the parts that can be read without a mechanism."""
        accountant = self.loss.accountant if self.paper is None else self.paper.accountant
        epsilon = self.epsilon if self.paper is None else self.paper.epsilon
        claim = {"unit": self.stated_unit.as_dict(), "epsilon": epsilon, "accountant": accountant}
        branches = [{"method": branch.method, **branch._parts(self.unit)} for branch in self.branches]
        return {
            "method": self.method,
            "unit": self.unit.as_dict(),
            "paper_mode": self.paper is not None,
            "claim": {**claim, "delta": self.budget.definite_delta},
            **self._parts(self.unit),
            "branches": branches,
            "ways": [events.to_json(way) for way in self.ways(self.unit)],
            "plan": self.as_dict(),
        }

    def _parts(self, unit: Unit) -> dict[str, Any]:
        return {
            "stages": [stage.facts(unit) for stage in self.stages],
            "public": [note.as_dict() for note in self.public],
            "unprotected": [note.as_dict() for note in self.unprotected],
        }

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        values: dict[str, Any] = {
            "method": self.method,
            "metadata": self.metadata.as_dict(),
            "unit": self.unit.as_dict(),
            "budget": self.budget.as_dict(),
            "stages": [stage.as_dict() for stage in self.stages],
            "public": [one.as_dict() for one in self.public],
            "unprotected": [one.as_dict() for one in self.unprotected],
            "paper": None if self.paper is None else self.paper.as_dict(),
            "branches": [branch.as_dict() for branch in self.branches],
        }
        return values if self.holds is None else {**values, "holds": sorted(self.holds)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """The inverse of `as_dict`."""
        paper = values.get("paper")
        return cls(
            method=values["method"],
            metadata=Metadata.from_dict(values["metadata"]),
            unit=unit_from_dict(values["unit"]),
            budget=Budget.from_dict(values["budget"]),
            stages=tuple(Stage.from_dict(stage) for stage in values["stages"]),
            public=tuple(Note.from_dict(one) for one in values["public"]),
            unprotected=tuple(Note.from_dict(one) for one in values["unprotected"]),
            paper=None if paper is None else PaperClaim.from_dict(paper),
            branches=tuple(Plan.from_dict(branch) for branch in values["branches"]),
            holds=frozenset(values["holds"]) if "holds" in values else None,
        )


def batch_notes(stages: Sequence[Stage], unit: Unit, budget: Budget) -> list[Note]:
    """How the stages that are charged for Poisson batches draw them; nothing without protection."""
    found = [drawn for stage in stages if (drawn := stage.batches(unit))]
    return [Note(Code.BATCHES, {"batches": found})] if found and budget.is_private else []


def _scaled(stages: Sequence[Stage], unit: Unit, budget: Budget, paper: Accountant | None) -> tuple[Stage, ...]:
    """The stages with their noise set: none without protection, the least that meets the budget otherwise."""
    if not budget.is_private:
        return tuple(stage if stage.is_free(unit) else replace(stage, scale=0.0) for stage in stages)
    references = [stage.reference(unit) for stage in stages]  # asked once, not at every step of the search
    if all(reference is None for reference in references):
        return tuple(stages)

    def at(factor: float) -> tuple[Stage, ...]:
        return tuple(stage.at(factor, reference) for stage, reference in zip(stages, references, strict=True))

    def event_at(factor: float) -> Event:
        return events.composed([stage.claimed_event(unit) for stage in at(factor)])

    least = at(0.0)  # discrete noise cannot be made smaller than this; continuous noise can, to nothing
    if all(stage.scale != 0.0 for stage in least):
        delta = budget.definite_delta
        if PrivacyLoss(event_at(0.0), unit.relation).epsilon(delta) <= budget.epsilon:
            return least
    return at(noise_scale(event_at, unit.relation, budget, paper or "tightest"))


def _claimed(stages: Sequence[Stage], unit: Unit, budget: Budget, accountant: Accountant) -> float:
    loss = PrivacyLoss(events.composed([stage.claimed_event(unit) for stage in stages]), unit.relation)
    delta = budget.definite_delta
    return loss.renyi_epsilon(delta) if accountant == "renyi" else loss.epsilon(delta)
