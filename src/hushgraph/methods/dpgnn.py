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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from hushgraph.errors import UnprovenError
from hushgraph.graph.edges import Edges
from hushgraph.graph.rooted import whole_graph
from hushgraph.graph.rows import Rows
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.mechanisms.rooted_gradient import RootedGradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn.layers import ACTIVATIONS
from hushgraph.nn.own import own_module
from hushgraph.nn.rooted import CONVOLUTIONS, RootedNetwork
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Held, Vault

# By rule from public sizes. Chosen by validation accuracy at epsilon 8 on JohnsHopkins55, Cornell5 and pubmed (4,000 to
# 15,000 training nodes), where a cap of 2 was best or close to it; the larger caps are those of the publication, for
# graphs of 100,000 nodes and more, and were not compared in between.
PRIVATE_STEPS, PRIVATE_LR = 150, 0.02
PLAIN_EPOCHS, PLAIN_LR = 300, 0.005
SMALLEST_CAP, LARGEST_CAP = 2, {1: 7, 2: 3, 3: 2}
NODES_PER_ENTRY = 7_000
AVERAGED = 0.5  # the weights after the last half of the private steps are averaged
INFERENCES = ("full", "noisy")


@dataclass(frozen=True)
class DPGNN(Method):
    """Settings of DP-GNN.

    `max_degree` is the cap K on every node's own list in training; the cap of the unit holds as well. By rule it is
    one entry per 7,000 training nodes, at least 2 and at most 7, 3, 2 for 1, 2, 3 layers: more entries cost more noise,
    which more training nodes drown out. `inference="noisy"` charges one noisy sum per layer.

    In Python, `encoder` is a module of your own from features to the rows that are sent, and `head` one from the rows
    after message passing to class scores; both have to treat every row alone (docs/modules.md).
    """

    num_layers: int = setting(1, least=1, most=1000, help="message-passing layers")
    convolution: str = setting("gcn", among=CONVOLUTIONS)
    max_degree: int | None = setting(None, least=1, help="cap on outgoing lists in training; by rule 2 to 7")
    hidden_channels: int = setting(64, least=1, most=1 << 16, help="width of all layers")
    encoder_layers: int = setting(1, least=1, most=1000)
    decoder_layers: int = setting(1, least=1, most=1000)
    heads: int = setting(4, least=1, most=1000, help="attention heads")
    activation: str = setting("tanh", among=ACTIVATIONS)
    optimizer: str = setting("adam", among=("adam", "sgd"))
    lr: float | None = setting(None, above=0, help="learning rate; by rule 0.02, 0.005 without privacy")
    weight_decay: float = setting(0.0, least=0)
    epochs: int | None = setting(None, least=1, help="by rule what makes 150 steps; 300 without privacy")
    batch_size: int = setting(2048, least=1, help="expected number of roots per step")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one root's gradient")
    inference: str = setting("full", among=INFERENCES, help="full reads raw neighborhoods; noisy charges sums")
    inference_noise: float = setting(1.0, above=0, help="noise multiplier of inference over that of gradients")

    encoder: nn.Module | None = setting(None, in_python=True, help="in place of the encoder's layers")
    head: nn.Module | None = setting(None, in_python=True, help="in place of the decoder's layers")

    name = "dp-gnn"
    summary = "message passing on rooted subgraphs, trained by DP-SGD: the weights are private"
    takes_multilabel = True
    paper = "Daigavane et al. 2021"
    aliases = {"layers": "num_layers", "hidden": "hidden_channels"}

    def problems(self) -> list[str]:
        """As for every method, and what concerns several settings at once."""
        found = super().problems()
        if self.num_layers > max(LARGEST_CAP) and self.max_degree is None:
            found.append(f"max_degree: expected a number with {self.num_layers} layers; got none (reach grows as K^r)")
        if self.inference == "noisy":
            _require_noisy_inference(self.convolution)
        return found

    def cap(self, metadata: Metadata) -> int:
        """K, given or by rule."""
        if self.max_degree is not None:
            return self.max_degree
        return min(max(SMALLEST_CAP, metadata.num_train // NODES_PER_ENTRY), LARGEST_CAP[self.num_layers])

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The gradient steps; with noisy inference also one sum per layer."""
        rate = min(1.0, self.batch_size / max(1, metadata.num_train))
        steps = PRIVATE_STEPS if self.epochs is None else self.epochs * math.ceil(1.0 / rate)
        training = RootedGradient(self.max_grad_norm, rate, steps, self.cap(metadata), self.num_layers)
        inference = Stage("inference", NeighborSum(), self.num_layers, noise=self.inference_noise)
        return [Stage("network", training), *([inference] if self.inference == "noisy" else [])]

    def inference_plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """Another graph is always read through noisy sums."""
        noisy = self if self.inference == "noisy" else replace(self, inference="noisy")
        return super(DPGNN, noisy).inference_plan(metadata, unit, budget, paper_mode=paper_mode)

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """As for every method, and the smaller cap in training."""
        return [*super().public_notes(metadata, unit), note(Code.TRAINING_CAP, max_degree=self.cap(metadata))]

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Predictions, unless inference is noisy."""
        return [note(Code.RAW_PREDICTIONS)] if self.inference == "full" else []

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """Encoder, message-passing layers, decoder."""
        features, classes, width = plan.metadata.features, plan.metadata.classes, self.hidden_channels
        encoder = decoder = None
        if self.encoder is not None:
            encoder = own_module(self.encoder, "encoder", features, generator, plain=False)
            width = int(cast(int, encoder.out_features))
        if self.head is not None:
            decoder = own_module(self.head, "head", width, generator, plain=False, out=classes)
        return RootedNetwork(
            features,
            width,
            classes,
            num_layers=self.num_layers,
            convolution=self.convolution,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            heads=self.heads if self.convolution == "attention" else 1,
            activation=self.activation,
            generator=generator,
            own_encoder=encoder,
            own_decoder=decoder,
        )

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Train on rooted subgraphs, then predict."""
        assert isinstance(network, RootedNetwork)
        if train:
            plain = vault.plan.runs_exactly("network")
            lr = self.lr or (PLAIN_LR if plain else PRIVATE_LR)
            optimizer = cast(Any, self.optimizer)
            training = Training(self.epochs or PLAIN_EPOCHS, lr, optimizer, self.weight_decay, average_last=AVERAGED)
            vault.release("network", network, training)
        if "inference" in vault.plan and not vault.plan.runs_exactly("inference"):
            return self._noisy_inference(vault, network)

        def scores(features: Rows, edges: Edges) -> Tensor:
            return cast(Tensor, network.eval()(features, whole_graph(edges.load(), network.num_layers)))

        return Output(scores=vault.raw_scores(scores))

    def _noisy_inference(self, vault: Vault, network: RootedNetwork) -> Output:
        """The network with every sum over neighbors replaced by a charged noisy sum."""
        std = vault.plan["inference"].scale or 0.0
        rows: Held = vault.apply(network.row_encoder(), vault.features)
        for level in range(network.num_layers):
            sent = vault.apply(network.row_sender(), rows)
            received = vault.release("inference", sent)
            rows = vault.apply(network.row_layer(level, std), vault.stack([sent, received]))
        return Output(scores=vault.scores(network.row_decoder(), rows))


def _require_noisy_inference(convolution: str) -> None:
    """Refuse attention: what a node sends depends there on who receives it, so no sum of bounded rows computes it."""
    if convolution == "attention":
        raise UnprovenError(
            "noisy inference: expected convolution gcn, sage or gin; got attention, whose weights depend on sender and"
            " receiver together and are divided by a total over private neighbors: one noisy sum of rows cannot stand"
            " in for it, and equal weights would be another network; use inference=full, or train with gcn or gin"
        )
