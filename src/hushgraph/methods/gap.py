"""GAP: aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez, USENIX Security 2023).

1. Encoder: an MLP learned from features and labels, no edges; its rows have unit norm.
2. Aggregation: K times normalize, sum over in-neighbors, add noise. Released once and cached.
3. Classifier: one MLP per hop 0..K, combined, with a head; reads the cache only.

At edge level features and labels are public, so steps 1 and 3 are plain training. At node level they are DP-SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows
from hushgraph.errors import InputError
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph
from hushgraph.methods.inductive import InductiveModel
from hushgraph.nn import Encoder, HopClassifier, L2Normalize
from hushgraph.nn.hops import COMBINATIONS
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import AggregationStage, GradientStage, Plan, Stage, calibrated
from hushgraph.privacy.units import EDGE_UNITS, NODE_UNITS, Unit
from hushgraph.vault import PrivateRows, Recipe, Vault

Hop = Rows | PrivateRows
PLAIN_EPOCHS, PRIVATE_EPOCHS = 100, 10


@dataclass(frozen=True)
class GAP(Method):
    """Choices of GAP. `epochs=None` means 100 full-batch epochs where training is plain and 10 where it is private.

    `aggregation_noise` is the noise multiplier of the aggregation relative to that of the gradients (node level).
    `encoder_layers=0` leaves the encoder out and aggregates normalized features.
    """

    hops: int = 2
    hidden: int = 16
    encoder_layers: int = 2
    base_layers: int = 1
    head_layers: int = 1
    combine: str = "cat"
    activation: str = "selu"
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int | None = None
    batch_size: int = 256
    max_grad_norm: float = 1.0
    aggregation_noise: float = 1.0

    name = "gap"
    summary = "noisy multi-hop sums of learned rows, computed once, then a classifier on them"
    units = EDGE_UNITS | NODE_UNITS

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *parameters.at_least(1, hops=self.hops, hidden=self.hidden, head_layers=self.head_layers),
                *parameters.at_least(1, epochs=self.epochs, batch_size=self.batch_size),
                *parameters.at_least(0, encoder_layers=self.encoder_layers, base_layers=self.base_layers),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr, max_grad_norm=self.max_grad_norm),
                *parameters.above(0, aggregation_noise=self.aggregation_noise),
                *parameters.one_of(COMBINATIONS, combine=self.combine),
            ]
        )

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The paper composes Gaussians exactly at edge level and uses Renyi DP at node level."""
        return "tightest" if "labels" in unit.public else "renyi"

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """K aggregations; at node level also the gradient steps of encoder and classifier."""
        return calibrated(lambda scale: self._stages_at(scale, facts, unit), unit, budget, accountant)

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        trains_privately = "labels" not in unit.public
        ratio = self.aggregation_noise if trains_privately else 1.0
        std = scale * ratio * unit.aggregation_sensitivity(1.0)
        aggregation = AggregationStage("aggregation", self.hops, std)
        if not trains_privately:
            return (aggregation,)
        rate = min(1.0, self.batch_size / facts.num_train)
        steps = (self.epochs or PRIVATE_EPOCHS) * math.ceil(1.0 / rate)

        def gradient(name: str) -> GradientStage:
            return GradientStage(name, steps, scale * self.max_grad_norm, self.max_grad_norm, rate)

        encoder = (gradient("encoder"),) if self.encoder_layers else ()
        return (*encoder, aggregation, gradient("classifier"))

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Encode, aggregate, classify."""
        plain = vault.is_public("labels")
        network = GapNetwork(self, vault.facts, "batch" if plain else None, vault.generator("weights"))
        recipe = self._recipe(plain)

        if self.encoder_layers:
            vault.train(network.encoder, vault.features, recipe, plan.gradient("encoder"), "encoder")
        rows = [vault.apply(network.encoder.encode, vault.features)]
        rows += noisy_hops(vault, rows[0], plan.aggregation("aggregation"), self.hops)
        table = vault.stack(rows)
        vault.train(network.classifier, table, recipe, plan.gradient("classifier"), "classifier")

        return GapModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network.eval(),
            settings={"norm": network.norm},
            released=_protected(rows),
            scores=vault.predictions(network.classifier, table),
        )

    def _recipe(self, plain: bool) -> Recipe:
        epochs = self.epochs or (PLAIN_EPOCHS if plain else PRIVATE_EPOCHS)
        return Recipe(epochs, self.lr, weight_decay=self.weight_decay, select_best=plain)

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network that saved weights are loaded into."""
        return GapNetwork(self, facts, settings["norm"], torch.Generator())


def noisy_hops(vault: Vault, start: Hop, stage: AggregationStage, hops: int) -> list[Hop]:
    """Hops 1..K: each the normalized noisy sum of the one before."""
    rows = [start]
    for _ in range(hops):
        rows.append(vault.apply(L2Normalize(), vault.aggregate(rows[-1], stage)))
    return rows[1:]


class GapNetwork(nn.Module):
    """The encoder and the classifier, kept together so that they are saved together."""

    def __init__(self, method: GAP, facts: PublicFacts, norm: str | None, generator: torch.Generator) -> None:
        super().__init__()
        if facts.num_features is None or facts.num_classes is None:
            raise InputError("GAP needs the number of features and classes to build its network")
        shared: dict[str, Any] = {
            "activation": method.activation,
            "norm": norm,
            "dropout": method.dropout,
            "generator": generator,
        }
        self.norm = norm
        self.encoder = Encoder(
            facts.num_features, method.hidden, facts.num_classes, encoder_layers=method.encoder_layers, **shared
        )
        width = method.hidden if method.encoder_layers else facts.num_features
        self.classifier = HopClassifier(
            method.hops,
            width,
            method.hidden,
            facts.num_classes,
            base_layers=method.base_layers,
            head_layers=method.head_layers,
            combine=method.combine,  # type: ignore[arg-type]
            **shared,
        )


@dataclass
class GapModel(InductiveModel):
    """GAP after training. Predictions about the training graph read the cached hops."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """From the cache; at node level the nodes' own features come from `graph`, or are left out (null)."""
        assert isinstance(self.method, GAP)
        assert isinstance(self.network, GapNetwork)
        hops = [self.released.get(f"hop_{k}") for k in range(self.method.hops + 1)]
        missing = [k for k, hop in enumerate(hops) if hop is None]
        if missing not in ([], [0]):
            raise InputError(
                f"under the unit '{self.unit}' aggregated rows are part of each node's own record and are not stored "
                "with the model; use predict_on with the graph and a budget"
            )
        first = hops[0]
        if graph is not None:
            checked = checked_training_graph(self, graph)
            first = self.network.encoder.encode(checked.features) if first is None else first
        if first is None:
            assert hops[1] is not None
            first = torch.zeros_like(hops[1])
        return self.network.classifier(torch.stack([first, *hops[1:]], dim=1))  # type: ignore[list-item]

    def inference(self) -> Method:
        """The aggregations alone."""
        return _Inference(**self.method.as_dict())

    def release(self, vault: Vault, plan: Plan) -> tuple[dict[str, Tensor], Tensor | None]:
        """Encode, aggregate, classify."""
        assert isinstance(self.method, GAP)
        assert isinstance(self.network, GapNetwork)
        rows = [vault.apply(self.network.encoder.encode, vault.features)]
        rows += noisy_hops(vault, rows[0], plan.aggregation("aggregation"), self.method.hops)
        return _protected(rows), vault.predictions(self.network.classifier, vault.stack(rows))


def _protected(rows: list[Hop]) -> dict[str, Tensor]:
    """The hops that the unit lets leave the vault."""
    return {f"hop_{k}": hop for k, hop in enumerate(rows) if isinstance(hop, Tensor)}


@dataclass(frozen=True)
class _Inference(GAP):
    """GAP's aggregations without any training."""

    name = "gap-inference"
    trains = False

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        return (AggregationStage("aggregation", self.hops, scale * unit.aggregation_sensitivity(1.0)),)
