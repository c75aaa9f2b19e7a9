"""The default: `hushgraph.fit(graph, unit, budget)` chooses a method from public facts, and says why.

Edge level: features and labels are public, so a model without edges is free, and so is asking the validation labels
which of two finished models is better. Auto releases Chorus's sums, trains Chorus and an MLP, and keeps the MLP where
the sums did not help. The sums are charged either way: the choice is made after the release.

Node level: validation labels are private, so the choice is made before, from sizes and budget: DP-MLP where the sums
are expected to be mostly noise (few train nodes, few labelled neighbours), Chorus otherwise. Sizes are public but for
the average degree. Where the choice depends on it and it was not declared, edges are counted with noise first, for a
small part of the budget; the rest goes to the method. Nothing private is read without a charge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from hushgraph.accounting.calibration import Accountant
from hushgraph.accounting.count import CountStage, discrete_laplace_std
from hushgraph.accounting.plan import Plan, Stage
from hushgraph.budget import Budget
from hushgraph.errors import InputError, UnprovenError
from hushgraph.facts import PublicFacts
from hushgraph.ledger import Ledger
from hushgraph.methods import parameters
from hushgraph.methods.base import Method, TrainedModel
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.units import Unit
from hushgraph.vault import Progress, Vault

# Measured on seven graphs with average degrees of 5 to 90 and 1% to 75% train nodes: sums take a share of the budget
# from the gradients, and readers of sums from the model of features. That is worth it where there are enough train
# nodes and labelled neighbours; more neighbours are needed where there are fewer train nodes or less budget.
_ENOUGH = (  # from this epsilon on: train nodes and labelled neighbours per node; either pair will do
    (5.0, ((7_000, 3.0), (1_000, 12.0))),
    (4.0, ((10_000, 10.0), (3_000, 16.0))),
    (0.0, ((3_000, 30.0),)),
)
# Very few train nodes are another matter: while they fit into one batch, DP-MLP takes ten steps and hardly leaves its
# start. Chorus's linear model gets further, if it has fewer numbers to learn than the first layer of DP-MLP, that is,
# clearly fewer classes than hidden units. Seven graphs with 44 to 235 train nodes, ten seeds, epsilon 2, 8 and 16: 0
# points with 2 classes, +10 with 3, +2 with 4, +3 with 6, +1 with 10, -2 with 15. From 261 nodes on DP-MLP catches up.
_ONE_BATCH = DPMLP().batch_size
_FEW_CLASSES = DPMLP().hidden // 2

# The count of edges: lists are cut at `COUNT_CAP` entries; it costs at most `COUNT_SHARE` of the budget, and less where
# noise of `COUNT_ERROR` of the degree that decides (one standard deviation) can be had for less.
COUNT_CAP = 100
COUNT_SHARE = 0.02
COUNT_ERROR = 0.05
_COUNT = "count of edges"


def needed_degree(facts: PublicFacts, budget: Budget) -> float:
    """The average degree from which on Chorus is expected to be better than DP-MLP at node level.

    Zero: it is at any degree. Infinite: at none.
    """
    if _one_short_batch(facts):
        return 0.0
    enough = next(pairs for epsilon, pairs in _ENOUGH if budget.epsilon >= epsilon)
    labelled = [neighbours for nodes, neighbours in enough if facts.num_train >= nodes]
    degree = min(labelled, default=math.inf) * facts.num_nodes / max(1, facts.num_train)
    return degree if degree <= COUNT_CAP else math.inf


def _one_short_batch(facts: PublicFacts) -> bool:
    """Few train nodes and few classes."""
    return facts.num_train <= _ONE_BATCH and facts.num_classes is not None and facts.num_classes <= _FEW_CLASSES


@dataclass(frozen=True)
class Auto(Method):
    """No choices: all are made by rule.

    Edge level: `chorus`, or an `mlp` where public validation labels say that it is better. Node level: `chorus` or
    `dp-mlp`, by sizes, epsilon and average degree. `average_degree`, if declared public (every list cut at 100
    entries), is believed. Otherwise, where it decides, edges are counted with noise: at most 2% of epsilon, charged
    and certified; the method then gets the rest.
    """

    average_degree: float | None = None

    name = "auto"
    summary = "chooses between chorus and a model of features alone, and says why"
    units = Chorus.units

    def __post_init__(self) -> None:
        InputError.collect(parameters.at_least(0, average_degree=self.average_degree))

    def choose(
        self, facts: PublicFacts, unit: Unit, budget: Budget, counted: float | None = None
    ) -> tuple[Method, str]:
        """The method and the reason, from public facts, and the degree that was declared or `counted` with noise."""
        if "labels" in unit.public:
            return Chorus(), "chorus: labels are public at edge level, so they are the messages"
        needed = needed_degree(facts, budget)
        sizes = f"{facts.num_train} train nodes of {facts.num_nodes} at epsilon {budget.epsilon:g}"
        if needed == 0.0:
            words = f"in one batch and {facts.num_classes} classes a linear model learns more than an MLP"
            return Chorus(), f"chorus: {sizes}: {words}"
        if not math.isfinite(needed):
            return DPMLP(), f"dp-mlp: {sizes}: too few for sums of labels to be worth their noise at any degree"
        degree = self.average_degree if counted is None else counted
        if degree is None:
            raise InputError("auto: expected an average degree, declared or counted with noise; got none")
        source = "as declared" if counted is None else "as counted"
        words = f"{sizes}, average degree {degree:.3g} ({source}); sums of labels are worth their noise from"
        method = Chorus() if degree >= needed else DPMLP()
        return method, f"{method.name}: {words} {needed:.3g} on"

    def count(self, facts: PublicFacts, unit: Unit, budget: Budget) -> CountStage | None:
        """The noisy count of edges that the choice needs; None where it depends on public facts alone."""
        if "labels" in unit.public or not budget.is_private or self.average_degree is not None:
            return None
        needed = needed_degree(facts, budget)
        if needed == 0.0 or not math.isfinite(needed):
            return None
        largest = CountStage.within(_COUNT, COUNT_SHARE * budget.epsilon, unit, COUNT_CAP)
        scale = math.floor(COUNT_ERROR * needed * facts.num_nodes / math.sqrt(2.0))
        if scale <= largest.scale:
            return largest
        return CountStage.within(_COUNT, largest.sensitivity(unit) / scale, unit, COUNT_CAP)

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """Those of the chosen method."""
        return self.choose(facts, unit, budget)[0].stages(facts, unit, budget, accountant)

    def plan(self, facts: PublicFacts, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The chosen method's plan; or the count that the choice needs, and what may follow from it."""
        facts = facts.for_unit(unit)
        if unit.name not in self.units:
            raise UnprovenError(f"{self.name} has no proof under the unit '{unit.name}'; proven: {sorted(self.units)}")
        count = self.count(facts, unit, budget)
        if count is not None:
            return self._plan_after(count, facts, unit, budget, paper_mode)
        plan = super().plan(facts, unit, budget, paper_mode=paper_mode)
        if not plan.budget.is_private and "labels" not in unit.public:
            return plan  # without protection the data may be asked, when it is there
        method, reason = self.choose(facts, unit, budget)
        declared = (
            "" if self.average_degree is None or "labels" in unit.public else "the average degree, as declared, and "
        )
        used = f"{declared}the choice of the method, by rule ({reason})"
        return replace(plan, assumptions=(*method.assumptions(facts, unit), used))

    def _plan_after(self, count: CountStage, facts: PublicFacts, unit: Unit, budget: Budget, paper_mode: bool) -> Plan:
        """The count, then Chorus or DP-MLP on the rest of the budget."""
        budget = budget.for_units(facts.count_units(unit))
        # Rounded down: the sum of two rounded numbers must not exceed the budget by a last digit.
        rest = Budget((budget.epsilon - count.epsilon(unit)) * (1.0 - 1e-12), budget.delta)
        used = (
            f"the rule that chooses chorus or dp-mlp from these sizes and the noisy count (each list counted up to "
            f"{count.cap} entries)"
        )
        return Plan(
            method=self.name,
            unit=unit,
            budget=budget,
            stages=(count,),
            charged_unit=unit,
            paper_mode=paper_mode,
            assumptions=(used,),
            options=tuple(method.plan(facts, unit, rest) for method in (Chorus(), DPMLP())),
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Choose, counting first if the plan says so, and run the chosen method.

        Where validation labels are public, it is then compared with an MLP.
        """
        if plan.options:
            return self._learn_after_count(vault, plan)
        counted = None
        if vault.unprotected and self.average_degree is None and "labels" not in plan.unit.public:
            exact = CountStage(_COUNT, 1, discrete_laplace_std(1), 1, COUNT_CAP)
            counted = vault.count_entries(exact) / vault.facts.num_nodes
        method, reason = self.choose(vault.facts, plan.unit, plan.budget, counted)
        model = method.learn(vault, plan)
        if vault.is_public("labels") and vault.nodes("val").numel():
            model, reason = _better(vault, plan, model, reason)
        model.settings = {**model.settings, "reason": reason}
        return model

    def _learn_after_count(self, vault: Vault, plan: Plan) -> TrainedModel:
        count = plan.stage(_COUNT)
        assert isinstance(count, CountStage)
        degree = max(0, vault.count_entries(count)) / vault.facts.num_nodes
        method, reason = self.choose(vault.facts, plan.unit, plan.budget, degree)
        option = vault.choose(method.name, reason)
        model = method.learn(vault, option)
        model.settings = {**model.settings, "reason": reason, "planned_within": option.budget.epsilon}
        return model

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """Never needed: models are saved under the method that was chosen."""
        raise InputError("auto: models are saved under the method that was chosen")


def _better(vault: Vault, plan: Plan, model: TrainedModel, reason: str) -> tuple[TrainedModel, str]:
    """The model with the higher validation accuracy: Chorus, or an MLP on features (which reads no edge)."""
    plain = MLP().learn(vault, replace(plan, stages=()))
    ours, features = _validation(vault, model.scores), _validation(vault, plain.scores)
    if features >= ours:
        return plain, f"mlp: {features:.1%} on validation labels (public) against {ours:.1%} for chorus"
    return model, f"{reason}; {ours:.1%} on validation labels (public) against {features:.1%} for an mlp"


def _validation(vault: Vault, scores: Tensor | None) -> float:
    assert scores is not None
    val = vault.nodes("val")
    return float((scores[val].argmax(dim=1) == vault.labels[val]).double().mean())


def fit(
    graph: Any,
    unit: Unit | None = None,
    budget: Budget | None = None,
    *,
    average_degree: float | None = None,
    ledger: Ledger | None = None,
    paper_mode: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> TrainedModel:
    """Train the default model for this graph, unit and budget. `model.settings["reason"]` says what was chosen.

    Other arguments are those of `Method.fit`.
    """
    method = Auto(average_degree=average_degree)
    return method.fit(graph, unit, budget, ledger=ledger, paper_mode=paper_mode, seed=seed, progress=progress)
