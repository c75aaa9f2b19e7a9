"""DP-GNN: multi-layer message passing trained with node-level privacy (Daigavane et al., TMLR).

1. Every node's own list is cut to K entries, so that one node occurs in at most N(K, r) rooted subgraphs.
2. Encoder, r message-passing layers and decoder are trained together by DP-SGD or DP-Adam on Poisson batches of roots;
   the gradient of each rooted subgraph is clipped over all weights at once.
3. The weights are the release. Predictions read raw neighborhoods, which the certificate says plainly, or noisy sums
   that are charged like GAP's.

What differs from the publication, and why: docs/proofs/dpgnn.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.checks import CheckedGraph, check_graph, check_unit
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.rooted import whole_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph, open_vault
from hushgraph.nn.rooted import (
    CONVOLUTIONS,
    GCNLayer,
    GINLayer,
    NoisyMean,
    NoisySum,
    RootedNetwork,
    WithConstant,
    WithRest,
)
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import AggregationStage, Plan, RootedGradientStage, Stage, calibrated
from hushgraph.privacy.units import Unit
from hushgraph.training.rowwise import register_rowwise
from hushgraph.vault import RAW_PREDICTIONS, PrivateRows, Recipe, Vault

# By rule from public sizes. Chosen by validation accuracy at epsilon 8 on JohnsHopkins55, Cornell5 and pubmed (4,000 to
# 15,000 train nodes), where a cap of 2 was best or close to it; the larger caps are those of the publication, for
# graphs of 100,000 nodes and more, and were not compared in between.
PRIVATE_STEPS, PRIVATE_LR = 150, 0.02
PLAIN_EPOCHS, PLAIN_LR = 300, 0.005
SMALLEST_CAP, LARGEST_CAP = 2, {1: 7, 2: 3, 3: 2}
NODES_PER_ENTRY = 7_000
INFERENCES = ("full", "noisy")

register_rowwise(WithConstant, "Appends a constant to a row and scales that row.")
register_rowwise(NoisyMean, "Divides a row by its own last entry.")
register_rowwise(WithRest, "Scales a row by its own length and appends what is missing.")
register_rowwise(NoisySum, "Adds the two parts of one row.")


@dataclass(frozen=True)
class DPGNN(Method):
    """Choices of DP-GNN.

    `max_degree` is the cap K on every node's own list; the cap of the unit holds as well. By rule it is one entry per
    7,000 train nodes, at least 2 and at most 7, 3, 2 for 1, 2, 3 layers: more entries cost more noise, which more train
    nodes drown out. `batch_size` is the expected number of roots per step, `epochs` by rule what makes 150 steps.
    `lr` is by rule 0.02, and 0.005 without privacy. `inference="noisy"` charges one noisy sum per layer;
    `inference_noise` is its noise multiplier relative to that of the gradients.
    """

    layers: int = 1
    convolution: str = "gcn"
    max_degree: int | None = None
    hidden: int = 64
    encoder_layers: int = 1
    decoder_layers: int = 1
    heads: int = 4
    activation: str = "tanh"
    optimizer: str = "adam"
    lr: float | None = None
    weight_decay: float = 0.0
    epochs: int | None = None
    batch_size: int = 2048
    max_grad_norm: float = 1.0
    inference: str = "full"
    inference_noise: float = 1.0

    name = "dp-gnn"
    summary = "message passing on rooted subgraphs, trained by DP-SGD: the weights are private"
    units = frozenset({"node", "node-replace"})

    def __post_init__(self) -> None:
        positive = {"layers": self.layers, "hidden": self.hidden, "heads": self.heads, "max_degree": self.max_degree}
        InputError.collect(
            [
                *parameters.at_least(1, **positive, epochs=self.epochs, batch_size=self.batch_size),
                *parameters.at_least(1, encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers),
                *parameters.at_least(0, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr, max_grad_norm=self.max_grad_norm),
                *parameters.above(0, inference_noise=self.inference_noise),
                *parameters.one_of(CONVOLUTIONS, convolution=self.convolution),
                *parameters.one_of(("adam", "sgd"), optimizer=self.optimizer),
                *parameters.one_of(INFERENCES, inference=self.inference),
            ]
        )
        if self.layers > max(LARGEST_CAP) and self.max_degree is None:
            raise InputError(f"max_degree: expected a number with {self.layers} layers; got none (reach grows as K^r)")
        if self.inference == "noisy":
            require_noisy_inference(self.convolution)

    def cap(self, facts: PublicFacts) -> int:
        """K, given or by rule."""
        if self.max_degree is not None:
            return self.max_degree
        return min(max(SMALLEST_CAP, facts.num_train // NODES_PER_ENTRY), LARGEST_CAP[self.layers])

    def steps(self, facts: PublicFacts) -> tuple[float, int]:
        """The sampling rate of roots and the number of steps."""
        rate = min(1.0, self.batch_size / facts.num_train)
        return rate, PRIVATE_STEPS if self.epochs is None else self.epochs * math.ceil(1.0 / rate)

    def not_protected(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """Predictions, unless inference is noisy."""
        return (RAW_PREDICTIONS,) if self.inference == "full" else ()

    def assumptions(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """As for every method, and the smaller cap in training."""
        return (*super().assumptions(facts, unit), f"the cap on a node's own list in training: {self.cap(facts)}")

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """The gradient steps; with noisy inference also one sum per layer."""
        return calibrated(lambda scale: self._stages_at(scale, facts, unit), unit, budget, accountant)

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        rate, steps = self.steps(facts)
        unscaled = RootedGradientStage(
            "network", steps, 1.0, self.max_grad_norm, rate, max_degree=self.cap(facts), layers=self.layers
        )
        gradient = replace(unscaled, std=scale * unscaled.sensitivity(unit))
        if self.inference == "full":
            return (gradient,)
        return gradient, self._inference_stage(scale, unit)

    def _inference_stage(self, scale: float, unit: Unit) -> AggregationStage:
        std = scale * self.inference_noise * unit.aggregation_sensitivity(1.0)
        return AggregationStage("inference", self.layers, std)

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Train on rooted subgraphs, then predict."""
        network = self.network(vault.facts, vault.generator("weights"))
        vault.train_rooted(network, self._recipe(vault.unprotected), plan.rooted_gradient("network"), "network")
        if self.inference == "full" or vault.unprotected:
            released, scores, settings = dict[str, Tensor](), vault.raw_predictions(network), {}
        else:
            stage = plan.aggregation("inference")
            released, scores = noisy_inference(vault, network, stage)
            settings = {"inference_std": stage.std}
        return DPGNNModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network.eval(),
            settings=settings,
            released=released,
            scores=scores,
        )

    def _recipe(self, plain: bool) -> Recipe:
        """The number of private steps is that of the stage; epochs count without privacy only."""
        lr = self.lr or (PLAIN_LR if plain else PRIVATE_LR)
        epochs = self.epochs or PLAIN_EPOCHS
        return Recipe(epochs, lr, cast(Any, self.optimizer), self.weight_decay, select_best=plain)

    def network(self, facts: PublicFacts, generator: torch.Generator) -> RootedNetwork:
        """The untrained network for these sizes."""
        if facts.num_features is None or facts.num_classes is None:
            raise InputError("DP-GNN needs the number of features and classes to build its network")
        return RootedNetwork(
            facts.num_features,
            self.hidden,
            facts.num_classes,
            num_layers=self.layers,
            convolution=self.convolution,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            heads=self.heads if self.convolution == "attention" else 1,
            activation=self.activation,
            generator=generator,
        )

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network that saved weights are loaded into."""
        return self.network(facts, torch.Generator())


def require_noisy_inference(convolution: str) -> None:
    """Refuse attention: what a node sends depends there on who receives it, so no sum of bounded rows computes it."""
    if convolution == "attention":
        raise UnprovenError(
            "noisy inference: expected convolution gcn or gin; got attention, whose weights depend on sender and"
            " receiver together and are divided by a total over private neighbors: one noisy sum of rows cannot stand"
            " in for it, and equal weights would be another network; use inference=full, or train with gcn or gin"
        )


def noisy_inference(vault: Vault, network: RootedNetwork, stage: AggregationStage) -> tuple[dict[str, Tensor], Tensor]:
    """The network with every sum over neighbors replaced by a charged noisy sum; the sums are kept for later."""
    received: dict[str, Tensor] = {}
    rows: Rows | PrivateRows = vault.apply(encoder_of(network), vault.features)
    for level in range(network.num_layers):
        sent = vault.apply(sender_of(network), rows)
        total = vault.aggregate(sent, stage)
        assert isinstance(total, Tensor)
        received[f"received_{level}"] = total
        rows = vault.apply(layer_of(network, level, stage.std), vault.stack([sent, total]))
    return received, vault.predictions(decoder_of(network), rows)


def encoder_of(network: RootedNetwork) -> nn.Sequential:
    """The encoder as a row-wise module."""
    return nn.Sequential(*[part for layer in network.encoder for part in (layer, network.activation)])


def sender_of(network: RootedNetwork) -> nn.Module:
    """What is done to rows before they are sent: a mean needs the number of senders beside the sum."""
    return WithRest() if isinstance(network.convolutions[0], GINLayer) else WithConstant()


def layer_of(network: RootedNetwork, level: int, std: float) -> nn.Sequential:
    """One message-passing layer after its sum, as a row-wise module on (own row, sum with noise of size `std`)."""
    layer = network.convolutions[level]
    if isinstance(layer, GINLayer):
        return nn.Sequential(NoisySum(std), layer.linear, network.activation, layer.second, network.activation)
    assert isinstance(layer, GCNLayer)
    return nn.Sequential(NoisyMean(std), layer.linear, network.activation)


def decoder_of(network: RootedNetwork) -> nn.Sequential:
    """The decoder as a row-wise module."""
    parts = [part for layer in network.decoder for part in (network.activation, layer)]
    return nn.Sequential(*parts[1:])


@dataclass
class DPGNNModel(TrainedModel):
    """DP-GNN after training."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """Scores for the nodes of `graph`.

        Trained for raw neighborhoods: `graph` may be any graph with the same features; the scores read its edges and
        are not protected. Trained for noisy inference: the training graph only, from the kept sums.
        """
        if graph is None:
            raise InputError(
                "predict: DP-GNN reads the features (and, without noise, the edges) of a graph; pass it (--data)"
            )
        network = self._rooted
        if not self.released:
            checked = self._matching(graph)
            scores: Tensor = network(checked.features, whole_graph(checked.edges, network.num_layers))
            return scores
        rows: Tensor = encoder_of(network)(checked_training_graph(self, graph).features)
        for level in range(network.num_layers):
            pair = torch.stack([sender_of(network)(rows), self.released[f"received_{level}"]], dim=1)
            rows = layer_of(network, level, self.settings["inference_std"])(pair)
        scores = decoder_of(network)(rows)
        return scores

    def predict_on(
        self, graph: Any, budget: Budget, *, ledger: Ledger | None = None, seed: int | None = None
    ) -> TrainedModel:
        """Noisy inference on another graph, under the same unit, charged to that graph's own ledger."""
        assert isinstance(self.method, DPGNN)
        require_noisy_inference(self.method.convolution)
        checked = self._matching(graph)
        check_unit(checked, self.unit)
        plan = _Inference(**self.method.as_dict()).plan(checked.facts, self.unit, budget)
        vault, run = open_vault(checked, plan, ledger, seed, None)
        stage = plan.aggregation("inference")
        released, scores = noisy_inference(vault, self._rooted, stage)
        model = DPGNNModel(
            method=self.method,
            facts=checked.facts,
            unit=self.unit,
            network=self.network,
            settings={"inference_std": stage.std},
            released=released,
            scores=scores,
        )
        model.finish(checked, vault, run, sum(vault.seconds.values()))
        return model

    @property
    def _rooted(self) -> RootedNetwork:
        assert isinstance(self.network, RootedNetwork)
        return self.network

    def _matching(self, graph: Any) -> CheckedGraph:
        checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph, known_classes=self.class_names)
        if checked.facts.num_features != self.facts.num_features:
            raise InputError(f"expected {self.facts.num_features} features; got {checked.facts.num_features}")
        return checked


@dataclass(frozen=True)
class _Inference(DPGNN):
    """The noisy sums alone: what inference on a new graph releases."""

    name = "dp-gnn-inference"
    trains = False

    def not_protected(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """Nothing beyond the unit."""
        return ()

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        return (self._inference_stage(scale, unit),)
