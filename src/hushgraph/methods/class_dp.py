"""Class-level and subclass-level DP-SGD: Poisson batches of whole classes, or of given parts of them.

A model that is private for single records may still show what a class looks like. Here all records of a class (or of a
part of it) are one example: their gradients are averaged, clipped once and noised once. A group of one record is an
example of DP-SGD, so that is what runs where the unit is a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from hushgraph.graph.rows import dense_rows
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.group_gradient import GroupGradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn import Linear
from hushgraph.nn.described import Described, Description
from hushgraph.nn.filters import LEAST_SIDE, PublicFilters
from hushgraph.nn.hog import image_shape
from hushgraph.nn.partition import NearestCenter, Spread, k_means
from hushgraph.nn.pictures import picture_network
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.optimizers import OPTIMIZERS, OptimizerName
from hushgraph.vault import PrivateRows, Vault

RULES = ("spread", "nearest")
_PLAIN_BATCH = 256


@dataclass(frozen=True)
class ClassDP(Method):
    """Settings of class-DP. How many parts a class has is said by the unit; `rule` says which part a record is in.

    By "nearest" it is that of the nearest center of public records (`data.public_mask`, k-means); by "spread" parts of
    a class are alike and about equally large. The network "filters" trains a linear layer on a description that was
    fitted to public records; it is the default for square pictures of which some are public, and "softmax" for other
    rows. `noise_multiplier` fixes the noise; by rule the plan finds the least.
    """

    network_kind: str | None = setting(None, among=("filters", "softmax", "mlp", "cnn"), help="what is trained")
    columns: int = setting(100, least=1, help="columns of the description by public filters")
    image_height: int | None = setting(None, least=1, help="of pictures that are not square")
    rule: str = setting("spread", among=RULES, help="which part of its class a record is in")
    sample_rate: float = setting(0.2, above=0, most=1, help="the share of groups in a batch")
    steps: int = setting(100, least=1)
    max_grad_norm: float = setting(0.1, above=0, help="clip norm of a group's mean gradient")
    noise_multiplier: float | None = setting(None, above=0, help="noise over clip norm, instead of the least")
    lr: float = setting(100.0, above=0, help="learning rate")
    optimizer: OptimizerName = setting("sgd", among=OPTIMIZERS)
    average_last: float = setting(0.5, least=0, most=1, help="the share of steps whose weights are averaged")
    epochs: int = setting(5, least=1, help="passes over the records where training is free")
    plain_lr: float = setting(0.01, above=0, help="learning rate where training is free, by Adam")

    name = "class-dp"
    summary = "mean gradients of whole classes, or of parts of classes, clipped and noised"
    one_class = "protects the records of one class"
    paper = "Zhang, Emory University 2022, chapter 4"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The gradient steps: on groups, or on single records where those are what the unit protects (DP-SGD)."""
        gradient: Mechanism = GroupGradient(self.max_grad_norm, self.sample_rate, self.steps, unit.footprint.parts)
        if math.isinf(unit.footprint.groups):
            gradient = Gradient(self.max_grad_norm, self.sample_rate, self.steps)
        if self.noise_multiplier is None or not budget.is_private:
            return [Stage("classifier", gradient)]
        return [Stage("classifier", gradient, noise=None, scale=self.noise_multiplier * self.max_grad_norm)]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """Public filters and a linear layer, or a classifier of pixels."""
        kind, columns, classes = self._kind(plan.metadata), plan.metadata.features, plan.metadata.classes
        shape = image_shape(columns, self.image_height) if kind in ("filters", "cnn") else (1, columns)
        if kind != "filters":
            return Described(Description(), picture_network(kind, shape, classes, generator))
        filters = PublicFilters(shape, self.columns)
        head = Linear(filters.width_out, classes, bias=False, generator=generator)
        return Described(Description(filters), head)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Put every record into its part, and train on the description of its class's records."""
        made = cast(Described, network)
        if train:
            if len(made.description):
                made.description.fit(dense_rows(vault.public_features))
            rows = vault.apply(made.description, vault.features)
            vault.release("classifier", made.head, rows, self._training(vault), *self._parts(vault))
        return Output(scores=vault.scores(made, vault.features))

    def _kind(self, metadata: Metadata) -> str:
        if self.network_kind is not None:
            return self.network_kind
        side = math.isqrt(metadata.features)
        pictures = self.image_height is not None or (side**2 == metadata.features and side >= LEAST_SIDE)
        return "filters" if pictures and metadata.num_public else "softmax"

    def _training(self, vault: Vault) -> Training:
        if vault.plan.runs_exactly("classifier"):
            return Training(self.epochs, self.plain_lr, batch_size=_PLAIN_BATCH)
        return Training(self.epochs, self.lr, optimizer=self.optimizer, average_last=self.average_last)

    def _parts(self, vault: Vault) -> tuple[PrivateRows, ...]:
        """The part of every record, where classes have parts."""
        parts = vault.unit.footprint.parts
        if parts == 1 or vault.plan.runs_exactly("classifier"):
            return ()
        if self.rule == "spread":
            rule: nn.Module = Spread(vault.metadata.features, parts)
        else:
            rule = NearestCenter(k_means(dense_rows(vault.public_features), parts))
        return (cast(PrivateRows, vault.apply(rule, vault.features)),)
