"""ProGAP: progressive learning with aggregation perturbation (Sajadmanesh, Gatica-Perez, WSDM 2024).

Stage 0 learns from features alone. Stage s normalizes what the newest base of stage s-1 puts out, sums it over
in-neighbors, adds noise (released once and cached), and trains bases 0..s with jumping knowledge and a new head.
At edge level the stages are plain training; at node level each is DP-SGD. Proof: docs/proofs/progap.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.methods.base import Method, Output
from hushgraph.nn.gap import COMBINATIONS
from hushgraph.nn.layers import ACTIVATIONS
from hushgraph.nn.progressive import ProgressiveNetwork
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import BEST_BY, BestBy, Training
from hushgraph.vault import Vault

PLAIN_EPOCHS, PRIVATE_EPOCHS = 100, 5
DEEP, DEEP_EPOCHS = 5, 200  # 100 epochs are too few for six networks at once (docs/results-progap.md)


@dataclass(frozen=True)
class ProGAP(Method):
    """Settings of ProGAP: K = `hops` sums, K + 1 stages.

    In Python, `encoder` is a module of your own in the place of stage 0's network: features to `hidden_channels`
    columns, every row alone (docs/modules.md).
    """

    hops: int = setting(2, least=1, most=1000, help="noisy sums over neighbors")
    hidden_channels: int = setting(16, least=1, most=1 << 16, help="width of all layers")
    base_layers: int = setting(1, least=1, most=1000, help="layers of each stage's own network")
    combine: str = setting("cat", among=COMBINATIONS, help="how stages are combined")
    layerwise: bool = setting(False, help="train only the newest base of each stage")
    activation: str = setting("selu", among=ACTIVATIONS)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int | None = setting(None, least=1, help="per stage; by rule 100 (200 from 5 hops on), or 5 by DP-SGD")
    best_by: BestBy = setting("accuracy", among=BEST_BY, help="which validation figure tells the best epoch")
    batch_size: int = setting(256, least=1, help="expected batch of DP-SGD")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one example's gradient")
    aggregation_noise: float = setting(1.0, above=0, help="noise multiplier of sums over that of gradients")

    encoder: nn.Module | None = setting(None, in_python=True, help="in place of the first stage's network")

    name = "progap"
    summary = "one noisy sum of learned rows per stage, each stage trained on all sums so far"
    paper = "Sajadmanesh and Gatica-Perez, WSDM 2024"
    takes_multilabel = True
    aliases = {"hidden": "hidden_channels", "depth": "hops"}

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """K sums, and the training of K + 1 stages."""
        epochs = self.epochs or PRIVATE_EPOCHS
        sums = NeighborSum.of(metadata, unit, budget)
        training = Gradient.of(metadata.num_train, self.batch_size, epochs, self.max_grad_norm)
        return [
            Stage("aggregation", sums, self.hops, noise=self.aggregation_noise),
            *[Stage(f"stage_{s}", training) for s in range(self.hops + 1)],
        ]

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The paper uses Renyi DP for both levels."""
        return "renyi"

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """One base and one head per stage, with batch norm where they are trained plainly."""
        return ProgressiveNetwork(
            plan.metadata.features,
            self.hidden_channels,
            plan.metadata.classes,
            hops=self.hops,
            base_layers=self.base_layers,
            combine=self.combine,
            norm="batch" if plan.runs_exactly("stage_0") else "group",
            activation=self.activation,
            dropout=self.dropout,
            generator=generator,
            encoder=self.encoder,
            types=plan.metadata.types,
        )

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """K + 1 stages: sum what the last stage learned, then train on all sums so far."""
        assert isinstance(network, ProgressiveNetwork)
        epochs = self.epochs or (DEEP_EPOCHS if self.hops >= DEEP else PLAIN_EPOCHS)
        training = Training(epochs, self.lr, weight_decay=self.weight_decay, best_by=self.best_by)
        rows = [vault.features]
        for s in range(self.hops + 1):
            if s > 0:
                if train:
                    network.keep_sender(s - 1)
                rows.append(vault.release("aggregation", vault.apply(network.senders[s - 1], rows[-1])))
            if train:
                network.freeze_before(s if self.layerwise else 0)
                vault.release(f"stage_{s}", network.submodel(s), vault.join(rows), training)
        return Output(scores=vault.scores(network.submodel(self.hops), vault.join(rows)))
