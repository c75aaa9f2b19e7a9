"""A plan: the releases a method will make, with their noise, before any private data is read.

A `Stage` is physical: how often, how much noise, which bound is enforced. What it *costs* depends on the unit, so
`event(unit)` and `sensitivity(unit)` are asked, not stored. That is how one plan can show the epsilon a paper claims
(for the paper's unit) beside the one that can be proved (for the honest unit).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hushgraph.errors import CalibrationError, InputError, UnprovenError
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant, noise_scale
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mixture import occurrence_bound
from hushgraph.privacy.units import Local, Relation, Unit


@dataclass(frozen=True)
class Stage:
    """`count` releases called `name`, each with Gaussian noise of standard deviation `std`."""

    name: str
    count: int
    std: float

    @property
    def mechanism(self) -> str:
        """The mechanism that carries out this stage."""
        raise TypeError("a bare stage has no mechanism")

    def sensitivity(self, unit: Unit) -> float:
        """L2 change of one release over one unit."""
        raise TypeError("a bare stage has no sensitivity")

    def noise_multiplier(self, unit: Unit) -> float:
        """Noise standard deviation over sensitivity."""
        return self.std / self.sensitivity(unit)

    def event(self, unit: Unit) -> Event:
        """The privacy event of all `count` releases."""
        return events.gaussian(self.noise_multiplier(unit), self.count)

    def part(self, count: int) -> Stage:
        """The same stage with another count: what one charge covers."""
        return replace(self, count=count)

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """The stage as plain JSON values, costed for `unit`."""
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "count": self.count,
            "std": self.std,
            "sensitivity": self.sensitivity(unit),
            "noise_multiplier": self.noise_multiplier(unit),
        }


@dataclass(frozen=True)
class AggregationStage(Stage):
    """Noisy sums over in-neighbors of rows whose norm is at most `row_norm`."""

    row_norm: float = 1.0

    @property
    def mechanism(self) -> str:
        """Normalize, aggregate, perturb."""
        return "aggregate"

    def sensitivity(self, unit: Unit) -> float:
        """What the unit can do to one sum aggregation."""
        return unit.aggregation_sensitivity(self.row_norm)


@dataclass(frozen=True)
class GradientStage(Stage):
    """Noisy sums of clipped per-example gradients over Poisson batches."""

    max_grad_norm: float = 1.0
    sample_rate: float = 1.0

    @property
    def mechanism(self) -> str:
        """Clip, sum, perturb."""
        return "gradient"

    def sensitivity(self, unit: Unit) -> float:
        """The one example that a unit touches comes or goes (C), or turns into its opposite (2C)."""
        if unit.examples_touched() > 1:
            raise UnprovenError(f"a row-wise gradient has no bound for '{unit}', which touches several examples")
        return self.max_grad_norm * unit.examples_touched() * (2.0 if unit.relation is Relation.REPLACE else 1.0)

    def event(self, unit: Unit) -> Event:
        """Nothing where examples are public; a Poisson-sampled Gaussian where a unit is one example."""
        if unit.examples_touched() == 0:
            return events.repeated(events.gaussian(1.0), 0)
        return events.sampled_gaussian(self.sample_rate, self.std / self.max_grad_norm, self.count)

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `Stage.as_dict`, with the sample rate."""
        return {**super().as_dict(unit), "sample_rate": self.sample_rate}


@dataclass(frozen=True)
class RootedGradientStage(Stage):
    """Noisy sums of clipped per-root gradients: each root reads the nodes that reach it in `layers` steps.

    Every node's own list has at most `max_degree` entries, so a node occurs in at most N = 1 + K + ... + K^r rooted
    examples. A record that becomes null changes those N, one of which (its own) vanishes; a record that is replaced
    changes those of its old and of its new list, 2N - 1 together. Proof: docs/proofs/dpgnn.md.
    """

    max_grad_norm: float = 1.0
    sample_rate: float = 1.0
    max_degree: int = 1
    layers: int = 1

    @property
    def mechanism(self) -> str:
        """Clip per root, sum, perturb."""
        return "rooted gradient"

    def touched(self, unit: Unit) -> tuple[int, int]:
        """How many rooted examples depend on one unit, before and after the change."""
        if unit.max_out_degree is None or unit.degree_promised:
            raise UnprovenError(f"rooted gradients have no bound under the unit '{unit}'; use node or node-replace")
        bound = occurrence_bound(min(self.max_degree, unit.max_out_degree), self.layers)
        return (2 * bound - 1, 2 * bound - 1) if unit.relation is Relation.REPLACE else (bound, bound - 1)

    def sensitivity(self, unit: Unit) -> float:
        """All touched examples in one batch: each side moves by at most the clip norm."""
        return self.max_grad_norm * sum(self.touched(unit))

    def event(self, unit: Unit) -> Event:
        """Poisson batches in which one unit touches several examples."""
        return events.sampled_group(
            self.sample_rate, self.std / self.max_grad_norm, *self.touched(unit), steps=self.count
        )

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `Stage.as_dict`, with what the cost depends on."""
        before, after = self.touched(unit)
        extra = {"sample_rate": self.sample_rate, "max_degree": self.max_degree, "layers": self.layers}
        return {**super().as_dict(unit), **extra, "examples_touched": [before, after]}


@dataclass(frozen=True)
class LocalStage(Stage):
    """One randomized report per person, drawn once on the person's own device; `epsilon` is for the whole report.

    `words` says which randomizer. Nothing is proved when its range was taken from the data (`Local.range_from_data`).
    """

    epsilon: float = math.inf
    words: str = "randomizer"

    @property
    def mechanism(self) -> str:
        """The randomizer, in words."""
        return f"local report ({self.words})"

    def sensitivity(self, unit: Unit) -> float:
        """Not a sum with noise: a report may depend on all of its person's record."""
        return math.inf

    def event(self, unit: Unit) -> Event:
        """Pure epsilon-DP for every person, under the local unit only."""
        if not isinstance(unit, Local):
            raise UnprovenError(f"a local report has no bound under the unit '{unit}'; use the unit local")
        epsilon = math.inf if unit.range_from_data else self.epsilon
        return events.repeated(events.pure(epsilon), self.count)

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """The stage as plain JSON values."""
        shown = {"name": self.name, "mechanism": self.mechanism, "count": self.count, "std": self.std}
        return {**shown, "epsilon": self.epsilon}


@dataclass(frozen=True)
class UnprotectedStage(Stage):
    """A release without any protection (baselines): it costs infinity, and the certificate says so."""

    @property
    def mechanism(self) -> str:
        """None."""
        return "unprotected"

    def sensitivity(self, unit: Unit) -> float:
        """Unbounded."""
        return math.inf

    def event(self, unit: Unit) -> Event:
        """Non-private."""
        return events.gaussian(0.0)


@dataclass(frozen=True)
class Plan:
    """The stages of one run, the unit they are stated for, and the unit they are charged for.

    `unit` and `charged_unit` are the same except in paper mode, where `unit` is the paper's.

    A plan with `options` makes its own stages, all of pure epsilon, and then exactly one of the options, chosen with
    what the stages released in view. It costs its own stages and the costliest option, whichever is chosen.
    """

    method: str
    unit: Unit
    budget: Budget
    stages: tuple[Stage, ...]
    charged_unit: Unit
    paper_mode: bool = False
    assumptions: tuple[str, ...] = ()
    paper_accountant: Accountant = "tightest"
    not_protected: tuple[str, ...] = ()
    options: tuple[Plan, ...] = ()

    def __post_init__(self) -> None:
        for way in self.options or (self,):
            names = [stage.name for stage in (*self.stages, *(way.stages if way is not self else ()))]
            if len(set(names)) != len(names):
                raise InputError(f"a plan needs distinct stage names; got {names}")
        self._check_options()
        if self.budget.is_private and not math.isfinite(self.epsilon):
            raise CalibrationError(f"the plan of {self.method} has no finite epsilon")
        if self.epsilon > self.budget.epsilon:
            raise CalibrationError(f"the plan costs {self.epsilon:g}, over its budget {self.budget.epsilon:g}")

    def _check_options(self) -> None:
        if not self.options:
            return
        units = {self.unit, *(option.unit for option in self.options)}
        deltas = {self.budget.delta, *(option.budget.delta for option in self.options)}
        if len(units) > 1 or len(deltas) > 1 or len({option.method for option in self.options}) < len(self.options):
            raise InputError("a choice needs options with names of their own and the unit and delta of the plan")
        own = PrivacyLoss(
            events.composed([stage.event(self.charged_unit) for stage in self.stages]), self.unit.relation
        )
        if own.accountant != "sum of pure epsilons":
            raise UnprovenError("a choice is proved after releases of pure epsilon only; got other stages before it")

    def option(self, method: str) -> Plan:
        """The option called `method`."""
        for option in self.options:
            if option.method == method:
                return option
        raise InputError(f"the plan of {self.method} has no option '{method}'")

    def stage(self, name: str) -> Stage:
        """The stage called `name`."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise InputError(f"the plan of {self.method} has no stage '{name}'")

    def gradient(self, name: str) -> GradientStage | None:
        """The gradient stage called `name`, if training is private in this plan."""
        return next((s for s in self.stages if s.name == name and isinstance(s, GradientStage)), None)

    def rooted_gradient(self, name: str) -> RootedGradientStage | None:
        """The rooted gradient stage called `name`, if training is private in this plan."""
        return next((s for s in self.stages if s.name == name and isinstance(s, RootedGradientStage)), None)

    def aggregation(self, name: str) -> AggregationStage:
        """The aggregation called `name`; one without noise in a run without protection."""
        found = [s for s in self.stages if s.name == name and isinstance(s, AggregationStage)]
        if found:
            return found[0]
        if any(isinstance(stage, UnprotectedStage) for stage in self.stages):
            return AggregationStage(name, 1, 0.0)
        raise InputError(f"the plan of {self.method} has no aggregation '{name}'")

    def ways(self, unit: Unit) -> list[Event]:
        """What can be released in all, for `unit`: one event, or one for each option."""
        own = [stage.event(unit) for stage in self.stages]
        parts = [[stage.event(unit) for stage in option.stages] for option in self.options] or [[]]
        return [events.composed([*own, *part]) for part in parts]

    def event(self, unit: Unit) -> Event:
        """All stages together, for `unit`; with the costliest option where there is a choice."""
        ways = self.ways(unit)
        if len(ways) == 1:
            return ways[0]
        return max(ways, key=lambda way: PrivacyLoss(way, unit.relation).epsilon(self.budget.definite_delta))

    @cached_property
    def loss(self) -> PrivacyLoss:
        """What is charged: the loss for the honest unit."""
        return PrivacyLoss(self.event(self.charged_unit), self.charged_unit.relation)

    @cached_property
    def epsilon(self) -> float:
        """Epsilon for the stated unit (in paper mode: what the paper would claim)."""
        loss = PrivacyLoss(self.event(self.unit), self.unit.relation)
        if self.paper_accountant == "renyi":
            return loss.renyi_epsilon(self.budget.definite_delta)
        return loss.epsilon(self.budget.definite_delta)

    @property
    def provable_epsilon(self) -> float:
        """Epsilon for the honest unit."""
        return self.loss.epsilon(self.budget.definite_delta)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        shown: dict[str, Any] = {
            "method": self.method,
            "unit": self.unit.name,
            "unit_parameters": self.unit.as_dict(),
            "relation": self.unit.relation.value,
            "epsilon": self.epsilon,
            "delta": self.budget.definite_delta,
            "budget": self.budget.epsilon,
            "stages": [stage.as_dict(self.unit) for stage in self.stages],
            "accountant": self.loss.accountant,
            "assumed_public": list(self.assumptions),
            "not_protected": [*self.unit.not_protected, *self.not_protected],
        }
        if self.options:
            shown["then_one_of"] = [option.as_dict() for option in self.options]
        if self.paper_mode:
            shown |= {
                "paper_mode": True,
                "claimed_epsilon": self.epsilon,
                "provable_unit": self.charged_unit.name,
                "provable_epsilon": self.provable_epsilon,
            }
        return shown


def calibrated(
    stages_at: Callable[[float], tuple[Stage, ...]],
    unit: Unit,
    budget: Budget,
    accountant: Accountant = "tightest",
) -> tuple[Stage, ...]:
    """The stages with the least noise that meet `budget` for `unit`.

    `stages_at(s)` gives the stages whose noise multipliers are proportional to s. An infinite budget gives s = 0.
    """

    def event_at(scale: float) -> Event:
        return events.composed([stage.event(unit) for stage in stages_at(scale)])

    return stages_at(noise_scale(event_at, unit.relation, budget, accountant))
