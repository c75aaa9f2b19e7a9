"""Classifiers that read features only: the plain MLP and DP-MLP.

They are baselines, and more: at edge level an MLP does not touch the protected edges at all (epsilon 0), and at node
level DP-MLP is the method to beat on small sparse graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph
from hushgraph.nn import MLP as Perceptron
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import GradientStage, Plan, Stage, calibrated
from hushgraph.privacy.units import Unit
from hushgraph.vault import Recipe, Vault


@dataclass(frozen=True)
class MLP(Method):
    """A plain MLP on features. Costs nothing where features and labels are public; needs epsilon=inf elsewhere."""

    num_layers: int = 3
    hidden: int = 16
    activation: str = "selu"
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int | None = None

    name = "mlp"
    summary = "features only, no edges: costs nothing at edge level"
    units = frozenset({"directed-edge", "undirected-edge"})

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *parameters.at_least(1, num_layers=self.num_layers, hidden=self.hidden, epochs=self.epochs),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr),
            ]
        )

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """No release: edges are never read."""
        return ()

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Train on the features."""
        plain = vault.is_public("labels")
        network = self.network(vault.facts, "batch" if plain else None, vault.generator("weights"))
        vault.train(network, vault.features, self.recipe(plain), plan.gradient("classifier"), "classifier")
        return FeatureModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network.eval(),
            settings={"norm": "batch" if plain else None},
            released={},
            scores=vault.predictions(network, vault.features),
        )

    def recipe(self, plain: bool) -> Recipe:
        """Full-batch epochs with the best validation epoch kept, where labels are public."""
        return Recipe(self.epochs or 100, self.lr, weight_decay=self.weight_decay, select_best=plain)

    def network(self, facts: PublicFacts, norm: str | None, generator: torch.Generator) -> nn.Module:
        """The perceptron for these sizes."""
        if facts.num_features is None or facts.num_classes is None:
            raise InputError("an MLP needs the number of features and classes")
        return Perceptron(
            facts.num_features,
            self.hidden,
            facts.num_classes,
            self.num_layers,
            activation=self.activation,
            norm=norm,
            dropout=self.dropout,
            generator=generator,
        )

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network that saved weights are loaded into."""
        return self.network(facts, settings["norm"], torch.Generator())


@dataclass(frozen=True)
class DPMLP(MLP):
    """An MLP on features trained by DP-SGD: protects whole records, never reads an edge."""

    batch_size: int = 256
    max_grad_norm: float = 1.0

    name = "dp-mlp"
    summary = "features only, trained by DP-SGD"
    units = frozenset({"node", "node-replace", "node-promise", "record"})

    def __post_init__(self) -> None:
        super().__post_init__()
        InputError.collect(
            [
                *parameters.at_least(1, batch_size=self.batch_size),
                *parameters.above(0, max_grad_norm=self.max_grad_norm),
            ]
        )

    def paper_accountant(self, unit: Unit) -> Accountant:
        """Published baselines use Renyi DP."""
        return "renyi"

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """The gradient steps."""
        rate = min(1.0, self.batch_size / facts.num_train)
        steps = (self.epochs or 10) * math.ceil(1.0 / rate)

        def at(scale: float) -> tuple[Stage, ...]:
            return (GradientStage("classifier", steps, scale * self.max_grad_norm, self.max_grad_norm, rate),)

        return calibrated(at, unit, budget, accountant)

    def recipe(self, plain: bool) -> Recipe:
        """A fixed number of steps: looking at private validation labels would not be free."""
        return super().recipe(plain) if plain else Recipe(self.epochs or 10, self.lr, weight_decay=self.weight_decay)


@dataclass
class FeatureModel(TrainedModel):
    """A model that predicts each node from that node's own features."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """Scores for the nodes of `graph`, which may be any graph with the same features."""
        if graph is None:
            raise InputError("predict: this method reads features only; pass the graph that holds them")
        features = checked_training_graph(self, graph).features
        scores: Tensor = self.network(features)
        return scores
