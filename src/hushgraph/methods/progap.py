"""ProGAP: progressive learning with aggregation perturbation (Sajadmanesh, Gatica-Perez, WSDM 2024).

Stage 0 learns from features alone. Stage s normalizes what the newest base of stage s-1 puts out, sums it over
in-neighbors, adds noise (released once and cached), and trains bases 0..s with jumping knowledge and a new head.
At edge level the stages are plain training; at node level each is DP-SGD. Proof: docs/proofs/progap.md.
"""

from __future__ import annotations

import copy
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
from hushgraph.nn.hops import COMBINATIONS
from hushgraph.nn.progressive import ProgressiveNetwork, Submodel, stage_base
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import AggregationStage, GradientStage, Plan, Stage, calibrated
from hushgraph.privacy.units import Unit
from hushgraph.training.plain import BEST_BY, BestBy
from hushgraph.vault import PrivateRows, Recipe, Vault

Hop = Rows | PrivateRows
PLAIN_EPOCHS, PRIVATE_EPOCHS = 100, 5
DEEP, DEEP_EPOCHS = 5, 200


@dataclass(frozen=True)
class ProGAP(Method):
    """Choices of ProGAP; K = `depth` sums, K + 1 stages.

    `epochs` are per stage; None means 5 where training is private; where it is plain, 100 full-batch epochs as in the
    paper, and 200 from depth 5 on, where 100 are too few for six networks at once (docs/results.md).
    Where training is plain, the epoch with the best validation accuracy is kept, or with the lowest validation loss
    (`best_by="loss"`): free there, because sums are cached and labels are public. `layerwise` trains only the newest
    base of each stage. `aggregation_noise` is the noise multiplier of the aggregation relative to that of the gradients
    (node level).
    """

    depth: int = 2
    hidden: int = 16
    base_layers: int = 1
    combine: str = "cat"
    layerwise: bool = False
    activation: str = "selu"
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int | None = None
    best_by: BestBy = "accuracy"
    batch_size: int = 256
    max_grad_norm: float = 1.0
    aggregation_noise: float = 1.0

    name = "progap"
    summary = "one noisy sum of learned rows per stage, each stage trained on all sums so far"
    units = frozenset({"directed-edge", "undirected-edge", "node", "node-replace", "node-promise"})

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *parameters.at_least(1, depth=self.depth, hidden=self.hidden, base_layers=self.base_layers),
                *parameters.at_least(1, epochs=self.epochs, batch_size=self.batch_size),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr, max_grad_norm=self.max_grad_norm),
                *parameters.above(0, aggregation_noise=self.aggregation_noise),
                *parameters.one_of(COMBINATIONS, combine=self.combine),
                *parameters.one_of(BEST_BY, best_by=self.best_by),
            ]
        )

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The paper uses Renyi DP for both levels."""
        return "renyi"

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """K aggregations; at node level also the gradient steps of K + 1 stages."""
        return calibrated(lambda scale: self._stages_at(scale, facts, unit), unit, budget, accountant)

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        trains_privately = "labels" not in unit.public
        ratio = self.aggregation_noise if trains_privately else 1.0
        aggregation = AggregationStage("aggregation", self.depth, scale * ratio * unit.aggregation_sensitivity(1.0))
        if not trains_privately:
            return (aggregation,)
        rate = min(1.0, self.batch_size / facts.num_train)
        steps = (self.epochs or PRIVATE_EPOCHS) * math.ceil(1.0 / rate)
        gradients = [
            GradientStage(f"stage_{s}", steps, scale * self.max_grad_norm, self.max_grad_norm, rate)
            for s in range(self.depth + 1)
        ]
        return (aggregation, *gradients)

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """K + 1 stages: aggregate what the last stage learned, then train on all sums so far."""
        plain = vault.is_public("labels")
        norm = "batch" if plain else "group"
        generator = vault.generator("weights")
        recipe = self._recipe(plain)
        parts: list[Hop] = [vault.features]
        bases: list[nn.Module] = []
        senders: list[nn.Module] = []

        for s in range(self.depth + 1):
            if s > 0:
                senders.append(copy.deepcopy(bases[-1]).eval())
                parts.append(vault.aggregate(vault.apply(senders[-1], parts[-1]), plan.aggregation("aggregation")))
            bases.append(self._base(s, vault.facts, norm, generator))
            model = self._submodel(bases, vault.facts, generator)
            for earlier in bases[:-1]:
                earlier.requires_grad_(not self.layerwise)
            vault.train(model, vault.join(parts), recipe, plan.gradient(f"stage_{s}"), f"stage_{s}")

        network = ProgressiveNetwork(model, senders, norm).requires_grad_(True).eval()
        return ProgapModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network,
            settings={"norm": norm},
            released=_released(vault, network, parts),
            scores=vault.predictions(network, vault.join(parts)),
        )

    def _recipe(self, plain: bool) -> Recipe:
        usual = DEEP_EPOCHS if self.depth >= DEEP else PLAIN_EPOCHS
        epochs = self.epochs or (usual if plain else PRIVATE_EPOCHS)
        return Recipe(epochs, self.lr, weight_decay=self.weight_decay, select_best=plain, best_by=self.best_by)

    def _base(self, stage: int, facts: PublicFacts, norm: str | None, generator: torch.Generator) -> nn.Module:
        if facts.num_features is None or facts.num_classes is None:
            raise InputError("ProGAP needs the number of features and classes to build its network")
        options: dict[str, Any] = {"activation": self.activation, "dropout": self.dropout, "generator": generator}
        return stage_base(stage, facts.num_features, self.hidden, self.base_layers, norm, **options)

    def _submodel(self, bases: list[nn.Module], facts: PublicFacts, generator: torch.Generator) -> Submodel:
        assert facts.num_classes is not None
        return Submodel(bases, self.hidden, facts.num_classes, self.combine, generator=generator)  # type: ignore[arg-type]

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network that saved weights are loaded into."""
        norm, generator = settings["norm"], torch.Generator()
        bases = [self._base(s, facts, norm, generator) for s in range(self.depth + 1)]
        senders = [self._base(s, facts, norm, generator) for s in range(self.depth)]
        return ProgressiveNetwork(self._submodel(bases, facts, generator), senders, norm)


def _released(vault: Vault, network: ProgressiveNetwork, parts: list[Hop]) -> dict[str, Tensor]:
    """The noisy sums, and the public output of the first base, as far as the unit lets them leave."""
    released = {f"hop_{k}": part for k, part in enumerate(parts) if k > 0 and isinstance(part, Tensor)}
    first = vault.apply(network.first_rows, parts[0])
    return {"hop_0": first, **released} if isinstance(first, Tensor) else released


@dataclass
class ProgapModel(InductiveModel):
    """ProGAP after training. Predictions about the training graph read the cached sums."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """From the cache; at node level the nodes' own features come from `graph`, or are left out (null)."""
        assert isinstance(self.method, ProGAP)
        assert isinstance(self.network, ProgressiveNetwork)
        sums = [self.released.get(f"hop_{k}") for k in range(1, self.method.depth + 1)]
        known = [part for part in sums if part is not None]
        if len(known) < len(sums):
            raise InputError(
                f"under the unit '{self.unit}' aggregated rows are part of each node's own record and are not stored "
                "with the model; use predict_on with the graph and a budget"
            )
        last = self.network.last.eval()
        first = self.released.get("hop_0")
        if graph is not None and first is None:
            first = self.network.first_rows(checked_training_graph(self, graph).features)
        if first is None:
            first = torch.zeros_like(known[0])
        return last.scores([first, *[base(part) for base, part in zip(list(last.bases)[1:], known)]])

    def inference(self) -> Method:
        """The aggregations alone."""
        return _Inference(**self.method.as_dict())

    def release(self, vault: Vault, plan: Plan) -> tuple[dict[str, Tensor], Tensor | None]:
        """Sum stage by stage what the trained senders send."""
        assert isinstance(self.network, ProgressiveNetwork)
        parts: list[Hop] = [vault.features]
        for sender in self.network.senders:
            parts.append(vault.aggregate(vault.apply(sender, parts[-1]), plan.aggregation("aggregation")))
        return _released(vault, self.network, parts), vault.predictions(self.network, vault.join(parts))


@dataclass(frozen=True)
class _Inference(ProGAP):
    """ProGAP's aggregations without any training."""

    name = "progap-inference"
    trains = False

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        return (AggregationStage("aggregation", self.depth, scale * unit.aggregation_sensitivity(1.0)),)
