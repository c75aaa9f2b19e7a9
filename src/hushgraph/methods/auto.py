"""The default: `hushgraph.fit(graph, unit, budget)` chooses a method from public facts, and says why.

Edge level: features and labels are public, so a model without edges is free, and so is asking the validation labels
which of two finished models is better. Auto releases Chorus's sums, trains Chorus and an MLP, and keeps the MLP where
the sums did not help. The sums are charged either way: the choice is made after the release.

Node level: validation labels are private, so the choice is made before, from sizes and budget alone: DP-MLP where the
sums are expected to be mostly noise (few train nodes, few labelled neighbours), Chorus otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from hushgraph.accounting.calibration import Accountant
from hushgraph.accounting.plan import Plan, Stage
from hushgraph.budget import Budget
from hushgraph.errors import InputError
from hushgraph.facts import PublicFacts
from hushgraph.ledger import Ledger
from hushgraph.methods.base import Method, TrainedModel
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.units import Unit
from hushgraph.vault import Progress, Vault

# Measured on seven graphs with average degrees of 5 to 90 and 5% to 75% train nodes: sums take a share of the budget
# from the gradients, and readers of sums from the model of features. That is worth it where there are enough train
# nodes and labelled neighbours; more neighbours are needed where there are fewer train nodes or less budget.
_ENOUGH_EPSILON = 5.0
_ENOUGH = ((7_000, 3.0), (1_000, 12.0))  # train nodes, labelled neighbours per node; either will do
_ENOUGH_AT_SMALL_EPSILON = ((3_000, 30.0),)


@dataclass(frozen=True)
class Auto(Method):
    """No choices: all are made by rule. `average_degree`, if declared public, replaces edges over nodes."""

    average_degree: float | None = None

    name = "auto"
    summary = "chooses between chorus and a model of features alone, and says why"
    units = Chorus.units

    def choose(self, facts: PublicFacts, unit: Unit, budget: Budget) -> tuple[Method, str]:
        """The method and the reason, from public facts only."""
        if "labels" in unit.public:
            return Chorus(), "chorus: labels are public at edge level, so they are the messages"
        degree = facts.num_edges / facts.num_nodes if self.average_degree is None else self.average_degree
        labelled = degree * facts.num_train / facts.num_nodes
        enough = _ENOUGH if budget.epsilon >= _ENOUGH_EPSILON else _ENOUGH_AT_SMALL_EPSILON
        facts_in_words = (
            f"{facts.num_train} train nodes and {labelled:.2g} labelled neighbours per node on average at epsilon "
            f"{budget.epsilon:g}"
        )
        if not any(facts.num_train >= nodes and labelled >= neighbours for nodes, neighbours in enough):
            needed = " or ".join(f"{nodes} and {neighbours:g}" for nodes, neighbours in enough)
            return DPMLP(), f"dp-mlp: {facts_in_words}, and sums of labels need {needed} to be worth their noise"
        return Chorus(), f"chorus: {facts_in_words}"

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """Those of the chosen method."""
        return self.choose(facts, unit, budget)[0].stages(facts, unit, budget, accountant)

    def plan(self, facts: PublicFacts, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The chosen method's plan, with the reason for the choice among what is taken as public."""
        plan = super().plan(facts, unit, budget, paper_mode=paper_mode)
        method, reason = self.choose(facts, unit, budget)
        used = f"the choice of the method, by rule ({reason})"
        if "labels" not in unit.public:
            source = "counted in the data" if self.average_degree is None else "as declared"
            used = f"the average degree, {source}, for the choice of the method ({reason})"
        return replace(plan, assumptions=(*method.assumptions(facts, unit), used))

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Run the chosen method; where validation labels are public, compare it with an MLP."""
        method, reason = self.choose(vault.facts, plan.unit, plan.budget)
        model = method.learn(vault, plan)
        if vault.is_public("labels") and vault.nodes("val").numel():
            model, reason = _better(vault, plan, model, reason)
        model.settings = {**model.settings, "reason": reason}
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
