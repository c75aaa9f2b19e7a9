"""The default: `hushgraph.fit(graph, unit, budget)` chooses a method from public facts, and says why.

Edge level: features and labels are public, so a model without edges is free, and so is asking the validation labels
which of two finished models is better. Auto releases Chorus's sums, trains Chorus and an MLP, and keeps the MLP where
the sums did not help. The sums are charged either way: the choice is made after the release.

Node level: validation labels are private, so the choice is made before: DP-MLP where the sums are expected to be mostly
noise (few train nodes, few labeled neighbors) or neighbors have no more in common than strangers, Chorus otherwise.
Sizes are public. The average degree (unless it was declared) and whether neighbors agree are not: where the choice
depends on them, both are asked with noise first, for a small part of the budget; the rest goes to the method. Nothing
private is read without a charge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.auto_rule import Answers, decide, questions
from hushgraph.methods.base import Method, TrainedModel
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.pairs import PairStage
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.privacy.whole_numbers import WholeNumberStage
from hushgraph.vault import Progress, Vault

_LARGE_EPSILON = 1e3  # for a run without protection: what would be asked if noise were no matter


@dataclass(frozen=True)
class Auto(Method):
    """No choices: all are made by rule.

    Edge level: `chorus`, or an `mlp` where public validation labels say that it is better. Node level: `chorus` or
    `dp-mlp`, by sizes, epsilon, average degree, and whether neighbors have the same label more often than others.
    Where these decide they are asked with noise, charged and certified: edges for at most 2% of epsilon, pairs of
    neighbors for at most 3%; the method then gets the rest. `average_degree`, if declared public (every list cut at
    100 entries), is believed and not counted.
    """

    average_degree: float | None = None

    name = "auto"
    summary = "chooses between chorus and a model of features alone, and says why"
    units = Chorus.units

    def __post_init__(self) -> None:
        InputError.collect(parameters.at_least(0, average_degree=self.average_degree))

    def choose(
        self, facts: PublicFacts, unit: Unit, budget: Budget, answers: Answers | None = None
    ) -> tuple[Method, str]:
        """The method and the reason, from public facts, a declared degree, and what was asked."""
        return decide(facts, unit, budget, answers or Answers(self.average_degree))

    def questions(self, facts: PublicFacts, unit: Unit, budget: Budget) -> tuple[WholeNumberStage, ...]:
        """The noisy numbers that the choice needs; none where it depends on public facts alone."""
        if "labels" in unit.public or not budget.is_private:
            return ()
        return questions(facts, unit, budget, self.average_degree)

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """Those of the chosen method."""
        return self.choose(facts, unit, budget)[0].stages(facts, unit, budget, accountant)

    def plan(self, facts: PublicFacts, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The chosen method's plan; or the questions that the choice needs, and what may follow from them."""
        facts = facts.for_unit(unit)
        if unit.name not in self.units:
            raise UnprovenError(f"{self.name} has no proof under the unit '{unit.name}'; proven: {sorted(self.units)}")
        asked = self.questions(facts, unit, budget)
        if asked:
            return self._plan_after(asked, facts, unit, budget, paper_mode)
        plan = super().plan(facts, unit, budget, paper_mode=paper_mode)
        if not plan.budget.is_private and "labels" not in unit.public:
            return plan  # without protection the data may be asked, when it is there
        method, reason = self.choose(facts, unit, budget)
        declared = (
            "" if self.average_degree is None or "labels" in unit.public else "the average degree, as declared, and "
        )
        used = f"{declared}the choice of the method, by rule ({reason})"
        return replace(plan, assumptions=(*method.assumptions(facts, unit), used))

    def _plan_after(
        self,
        asked: tuple[WholeNumberStage, ...],
        facts: PublicFacts,
        unit: Unit,
        budget: Budget,
        paper_mode: bool,
    ) -> Plan:
        """The questions, then Chorus or DP-MLP on the rest of the budget."""
        budget = budget.for_units(facts.count_units(unit))
        cost = math.fsum(stage.epsilon(unit) for stage in asked)
        # Rounded down: the sum of rounded numbers must not exceed the budget by a last digit.
        rest = Budget((budget.epsilon - cost) * (1.0 - 1e-12), budget.delta)
        names = " and the ".join(stage.name for stage in asked)
        declared = "" if self.average_degree is None else "the average degree, as declared, and "
        used = f"{declared}the rule that chooses chorus or dp-mlp from these sizes and the noisy {names}"
        return Plan(
            method=self.name,
            unit=unit,
            budget=budget,
            stages=asked,
            charged_unit=unit,
            paper_mode=paper_mode,
            assumptions=(used,),
            options=tuple(method.plan(facts, unit, rest) for method in (Chorus(), DPMLP())),
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Choose, asking first if the plan says so, and run the chosen method.

        Where validation labels are public, it is then compared with an MLP.
        """
        if plan.options:
            return self._learn_after_asking(vault, plan)
        answers = self._ask(vault, plan.unit, plan.budget) if vault.unprotected else None
        method, reason = self.choose(vault.facts, plan.unit, plan.budget, answers)
        model = method.learn(vault, plan)
        if vault.is_public("labels") and vault.nodes("val").numel():
            model, reason = _better(vault, plan, model, reason)
        model.settings = {**model.settings, "reason": reason}
        return model

    def _learn_after_asking(self, vault: Vault, plan: Plan) -> TrainedModel:
        answers = _answers(vault, plan.stages, self.average_degree)
        method, reason = self.choose(vault.facts, plan.unit, plan.budget, answers)
        option = vault.choose(method.name, reason)
        model = method.learn(vault, option)
        model.settings = {**model.settings, "reason": reason, "planned_within": option.budget.epsilon}
        return model

    def _ask(self, vault: Vault, unit: Unit, budget: Budget) -> Answers | None:
        """Exact answers, in a run without protection; the noise of the stages is not used there."""
        if "labels" in unit.public:
            return None
        stages = questions(vault.facts, unit, replace(budget, epsilon=_LARGE_EPSILON), self.average_degree)
        return _answers(vault, stages, self.average_degree)

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """Never needed: models are saved under the method that was chosen."""
        raise InputError("auto: models are saved under the method that was chosen")


def _answers(vault: Vault, stages: Sequence[Stage], declared: float | None) -> Answers:
    """Carry out the questions."""
    answers = Answers(declared)
    for stage in stages:
        if isinstance(stage, CountStage):
            degree = max(0, vault.count_entries(stage)) / vault.facts.num_nodes
            answers = replace(answers, degree=degree, source="as counted")
        elif isinstance(stage, PairStage):
            answers = replace(answers, excess=vault.compare_pairs(stage).excess)
    return answers


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
