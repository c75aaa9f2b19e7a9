"""LPGNet: link-private graph networks by cluster degrees (Kolluri, Baluta, Hooi, Saxena, CCS 2022).

Stage 0 learns an MLP from features alone; the class it predicts for a node is the node's cluster. Each later stage
counts with noise how many neighbors every node has in each cluster, and learns an MLP from the features and all counts
so far, which gives new clusters. No edge is read otherwise. Proof: docs/proofs/clusters.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.mechanisms.cluster_degrees import ClusterDegrees
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn.gap import COMBINATIONS
from hushgraph.nn.layers import ACTIVATIONS, MLP, L2Normalize
from hushgraph.nn.progressive import Submodel
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault


@dataclass(frozen=True)
class LPGNet(Method):
    """Settings of LPGNet: `hops` noisy counts, `hops` + 1 networks."""

    hops: int = setting(2, least=1, most=1000, help="noisy counts of neighbors by cluster")
    hidden_channels: int = setting(16, least=1, most=1 << 16, help="width of all layers")
    base_layers: int = setting(2, least=1, most=1000, help="layers for the features and for each count")
    combine: str = setting("cat", among=COMBINATIONS, help="how features and counts are combined")
    activation: str = setting("selu", among=ACTIVATIONS)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int = setting(100, least=1, help="of each network")

    name = "lpgnet"
    summary = "noisy counts of neighbors in clusters that an MLP predicts, then an MLP on them"
    one_class = "counts neighbors by one predicted class"
    paper = "Kolluri et al., CCS 2022"
    aliases = {"hidden": "hidden_channels"}

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """K counts, and the training of K + 1 networks, which is free where labels are public."""
        counts = Stage("degrees", ClusterDegrees(metadata.classes), self.hops)
        return [counts, *[Stage(f"network_{number}", Gradient()) for number in range(self.hops + 1)]]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """One network for each stage: a base for the features and one for each count so far, combined."""
        return nn.ModuleList(self._submodel(plan.metadata, stage, generator) for stage in range(self.hops + 1))

    def _submodel(self, metadata: Metadata, stage: int, generator: torch.Generator) -> Submodel:
        width = self.hidden_channels
        bases = [
            MLP(
                columns,
                width,
                width,
                self.base_layers,
                activation=self.activation,
                norm="batch",
                dropout=self.dropout,
                plain_last=False,
                generator=generator,
            )
            for columns in [metadata.features, *[metadata.classes] * stage]
        ]
        return Submodel(bases, width, metadata.classes, self.combine, generator=generator)  # type: ignore[arg-type]

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Learn, cluster, count, learn again."""
        assert isinstance(network, nn.ModuleList)
        training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
        rows, scores = [vault.features], torch.empty(0)
        for stage, submodel in enumerate(network):
            if stage:
                counts = vault.release("degrees", scores.argmax(dim=1))
                rows.append(vault.apply(L2Normalize(), counts.clamp(min=0).to(torch.float32)))
            if train:
                vault.release(f"network_{stage}", submodel, vault.join(rows), training)
            scores = cast(Tensor, vault.scores(submodel, vault.join(rows)))
        return Output(scores=scores)
