"""Class-level and subclass-level DP-SGD: Poisson batches of whole classes, or of given parts of them.

A model that is private for single records may still show what a class looks like. Here all records of a class (or of a
part of it) are one example: their gradients are averaged, clipped once and noised once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hushgraph.data.rows import dense_rows
from hushgraph.errors import InputError
from hushgraph.mechanisms.group_gradient import GroupGradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn.hog import image_shape
from hushgraph.nn.pictures import NETWORKS, NearestCenter, picture_network
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.kmeans import k_means
from hushgraph.training.optimizers import OPTIMIZERS
from hushgraph.vault import Vault


@dataclass(frozen=True)
class ClassDP(Method):
    """Settings of class-DP. Parts of classes are those of the unit; a record's part is that of the nearest center.

    Centers are found by k-means on public records (`data.public_mask`). `noise_multiplier` fixes the noise, where a
    budget is to be met by choosing the number of steps; by rule the plan finds the least noise.
    """

    network_kind: str = setting("cnn", among=NETWORKS, help="softmax regression, a perceptron or a small CNN")
    image_height: int | None = setting(None, least=1, help="of pictures that are not square")
    sample_rate: float = setting(0.2, above=0, help="the share of groups in a batch")
    steps: int = setting(100, least=1)
    max_grad_norm: float = setting(3.0, above=0, help="clip norm of a group's mean gradient")
    noise_multiplier: float | None = setting(None, above=0, help="noise over clip norm, instead of the least")
    lr: float = setting(0.01, above=0, help="learning rate")
    optimizer: str = setting("adam", among=OPTIMIZERS)
    epochs: int = setting(5, least=1, help="passes over the records where training is free")

    name = "class-dp"
    summary = "mean gradients of whole classes, or of parts of classes, clipped and noised"
    paper = "Zhang et al. 2020 (Class- and subclass-level DP)"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The gradient steps."""
        if self.sample_rate > 1.0:
            raise InputError(f"sample_rate: expected at most 1; got {self.sample_rate}")
        gradient = GroupGradient(self.max_grad_norm, self.sample_rate, self.steps, unit.footprint.parts)
        if self.noise_multiplier is None or not budget.is_private:
            return [Stage("classifier", gradient)]
        return [Stage("classifier", gradient, noise=None, scale=self.noise_multiplier * self.max_grad_norm)]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """A classifier of pictures, or of rows."""
        columns, classes = plan.metadata.features, plan.metadata.classes
        shape = image_shape(columns, self.image_height) if self.network_kind == "cnn" else (1, columns)
        return picture_network(self.network_kind, shape, classes, generator)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Put every record into its part, and train."""
        if train:
            training = Training(self.epochs, self.lr, optimizer=self.optimizer)
            parts = vault.unit.footprint.parts
            if parts > 1 and vault.protects:
                rule = NearestCenter(k_means(dense_rows(vault.public_features), parts))
                vault.release("classifier", network, vault.features, training, vault.apply(rule, vault.features))
            else:
                vault.release("classifier", network, vault.features, training)
        return Output(scores=vault.scores(network, vault.features))
