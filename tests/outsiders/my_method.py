"""Simple graph convolution with noise: features are summed over neighbors, then a linear model is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

import hushgraph as hg
from hushgraph.mechanisms import Gradient, NeighborSum
from hushgraph.nn import MLP
from hushgraph.privacy.metadata import Metadata
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault


@hg.register
@dataclass(frozen=True)
class NoisySGC(hg.Method):
    """Settings: typed fields, each with its constraint and a line of help."""

    hops: int = setting(2, least=1, help="noisy sums over neighbors")
    epochs: int = setting(20, least=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    batch_size: int = setting(256, least=1, help="expected batch of DP-SGD")

    name = "noisy-sgc"
    summary = "noisy sums of features over neighbors, then a linear model"
    paper = "after Wu et al., ICML 2019"

    def stages(self, metadata: Metadata, unit: hg.Unit, budget: hg.Budget) -> Sequence[hg.Stage]:
        """What leaves the vault, and how often. The plan sets the noise; stages that read public parts are free."""
        training = Gradient.of(metadata.num_train, self.batch_size, self.epochs, max_grad_norm=1.0)
        return [hg.Stage("sums", NeighborSum(), self.hops), hg.Stage("classifier", training)]

    def network(self, plan: hg.Plan, generator: torch.Generator) -> nn.Module:
        """The untrained network."""
        return MLP(plan.metadata.features, 16, plan.metadata.classes, num_layers=1, generator=generator)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> hg.Output:
        """The algorithm: used by `fit`, by `predict` on what was released, by `predict_on` on another graph."""
        rows = vault.features
        for _ in range(self.hops):
            rows = vault.release("sums", rows)
        if train:
            vault.release("classifier", network, rows, Training(self.epochs, self.lr))
        return hg.Output(scores=vault.scores(network, rows))
