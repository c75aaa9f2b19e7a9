"""GAP: aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez, USENIX Security 2023).

1. Encoder: an MLP learned from features and labels, no edges; its rows have unit norm.
2. Aggregation: K times normalize, sum over in-neighbors, add noise. Released once and cached.
3. Classifier: one MLP per hop 0..K, combined, with a head; reads the cache only.

At edge level features and labels are public, so steps 1 and 3 are plain training. At node level they are DP-SGD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.methods.base import Method, Output
from hushgraph.nn.gap import COMBINATIONS, GapNetwork
from hushgraph.nn.layers import ACTIVATIONS
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault


@dataclass(frozen=True)
class GAP(Method):
    """Settings of GAP. `encoder_layers=0` leaves the encoder out and aggregates normalized features.

    In Python, `encoder` is a module of your own from features to rows, and `head` one from the combined hops to class
    scores; both have to treat every row alone (docs/modules.md).
    """

    hops: int = setting(2, least=1, most=1000, help="noisy sums over neighbors")
    hidden_channels: int = setting(16, least=1, most=1 << 16, help="width of all layers")
    encoder_layers: int = setting(2, least=0, most=1000, help="0: aggregate normalized features")
    base_layers: int = setting(1, least=0, most=1000, help="layers of each hop's own network")
    head_layers: int = setting(1, least=1, most=1000, help="layers after the hops are combined")
    combine: str = setting("cat", among=COMBINATIONS, help="how hops are combined")
    activation: str = setting("selu", among=ACTIVATIONS)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int | None = setting(None, least=1, help="of each training; by rule 100, or 10 by DP-SGD")
    batch_size: int = setting(256, least=1, help="expected batch of DP-SGD")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one example's gradient")
    aggregation_noise: float = setting(1.0, above=0, help="noise multiplier of sums over that of gradients")

    encoder: nn.Module | None = setting(None, in_python=True, help="in place of the encoder's layers")
    head: nn.Module | None = setting(None, in_python=True, help="in place of the head's layers")

    name = "gap"
    summary = "noisy multi-hop sums of learned rows, computed once, then a classifier on them"
    paper = "Sajadmanesh et al., USENIX Security 2023"
    takes_multilabel = True
    aliases = {"hidden": "hidden_channels"}

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """K sums, and the training before and after them."""
        first = ["encoder"] if self._learns_rows else []
        sums = NeighborSum.of(metadata, unit, budget)
        training = Gradient.of(metadata.num_train, self.batch_size, self.epochs or 10, self.max_grad_norm)
        return [
            *(Stage(name, training) for name in first),
            Stage("aggregation", sums, self.hops, noise=self.aggregation_noise),
            Stage("classifier", training),
        ]

    @property
    def _learns_rows(self) -> bool:
        return self.encoder is not None or self.encoder_layers > 0

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The paper composes Gaussians exactly at edge level and uses Renyi DP at node level."""
        return "tightest" if "labels" in unit.public else "renyi"

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """Encoder and classifier, with batch norm where they are trained plainly."""
        names = ("hops", "hidden_channels", "encoder_layers", "base_layers", "head_layers", "combine", "activation")
        shape = {name: getattr(self, name) for name in (*names, "dropout", "encoder", "head")}
        sizes, norm = plan.metadata, "batch" if plan.runs_exactly("classifier") else None
        return GapNetwork(sizes.features, sizes.classes, types=sizes.types, norm=norm, generator=generator, **shape)

    def classifier(self, network: nn.Module, plan: Plan) -> tuple[nn.Module, torch.Tensor]:
        """Hops 0 to K of a node, `[n, K + 1, width]`, to class scores; a hop for each type of edge."""
        assert isinstance(network, GapNetwork)
        return network.classifier, torch.zeros(2, network.classifier.num_hops + 1, network.encoder.width)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Encode, aggregate, classify."""
        assert isinstance(network, GapNetwork)
        training = Training(self.epochs or 100, self.lr, weight_decay=self.weight_decay)
        if train and self._learns_rows:
            vault.release("encoder", network.encoder, vault.features, training)
        rows = [sent := vault.apply(network.encoder.encode, vault.features)]
        for _ in range(self.hops):
            sums = vault.release("aggregation", sent)
            rows += [vault.apply(block, sums) for block in network.blocks]
            sent = rows[-1] if network.together is None else vault.apply(network.together, sums)
        hops = vault.stack(rows)
        if train:
            vault.release("classifier", network.classifier, hops, training)
        return Output(scores=vault.scores(network.classifier, hops))
