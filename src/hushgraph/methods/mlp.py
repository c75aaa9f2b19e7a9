"""Classifiers that read features only: the plain MLP and DP-MLP.

They are baselines, and more: at edge level an MLP does not touch the protected edges at all (epsilon 0), and at node
level DP-MLP is the method to beat on small sparse graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.raw import Raw
from hushgraph.methods.base import Method, Output
from hushgraph.nn import MLP as Perceptron
from hushgraph.nn.layers import ACTIVATIONS
from hushgraph.nn.own import own_module
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault

PLAIN_EPOCHS, PRIVATE_EPOCHS = 100, 10


@dataclass(frozen=True)
class _FeatureMethod(Method):
    num_layers: int = setting(3, least=1, most=1000, help="linear layers")
    hidden_channels: int = setting(16, least=1, most=1 << 16, help="width of the hidden layers")
    activation: str = setting("selu", among=ACTIVATIONS)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int | None = setting(None, least=1, help="passes over the training nodes; by rule 100, or 10 by DP-SGD")
    module: nn.Module | None = setting(None, in_python=True, help="in place of all layers")

    aliases = {"hidden": "hidden_channels"}
    takes_multilabel = True

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """A perceptron, with batch norm where it is trained plainly; or the user's own module."""
        plain = plan.runs_exactly("classifier")
        if self.module is not None:
            sizes = plan.metadata
            return own_module(self.module, "module", sizes.features, generator, plain=plain, out=sizes.classes)
        return Perceptron(
            plan.metadata.features,
            self.hidden_channels,
            plan.metadata.classes,
            self.num_layers,
            activation=self.activation,
            norm="batch" if plain else None,
            dropout=self.dropout,
            generator=generator,
        )

    def classifier(self, network: nn.Module, plan: Plan) -> tuple[nn.Module, torch.Tensor]:
        """Features to class scores: all there is."""
        return network, torch.zeros(2, plan.metadata.features)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Train on the features."""
        if train:
            training = Training(self.epochs or PLAIN_EPOCHS, self.lr, weight_decay=self.weight_decay)
            vault.release("classifier", network, vault.features, training)
        return Output(scores=vault.scores(network, vault.features))


@dataclass(frozen=True)
class MLP(_FeatureMethod):
    """A plain MLP on features. Costs nothing where features and labels are public; needs epsilon=inf elsewhere."""

    name = "mlp"
    summary = "features only, no edges: costs nothing at edge level"
    paper = "baseline"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """Training that is free where labels are public; elsewhere raw labels, which are refused."""
        if budget.is_private and "labels" not in unit.public:
            return [Stage("classifier", Raw("labels"))]
        return [Stage("classifier", Gradient())]


@dataclass(frozen=True)
class DPMLP(_FeatureMethod):
    """An MLP on features trained by DP-SGD: protects whole records, never reads an edge."""

    batch_size: int = setting(256, least=1, help="expected batch of DP-SGD")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one example's gradient")

    name = "dp-mlp"
    summary = "features only, trained by DP-SGD"
    paper = "baseline"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The gradient steps."""
        if "labels" in unit.public and budget.is_private:
            raise InputError(
                f"dp-mlp protects records; under the unit '{unit}' they are public: use mlp, which is free"
            )
        epochs = self.epochs or PRIVATE_EPOCHS
        return [Stage("classifier", Gradient.of(metadata.num_train, self.batch_size, epochs, self.max_grad_norm))]

    def paper_accountant(self, unit: Unit) -> Accountant:
        """Published baselines use Renyi DP."""
        return "renyi"
