"""A noisy graph, released once, and any graph network trained on it: EdgeRand, LapGraph (Wu et al. 2022) and ARR.

1. Where the method needs it, the number of edges is asked with noise, for a small share of the budget.
2. One graph is released: every pair of nodes at most once, whatever the number of layers.
3. A network is trained on it with the public features and labels. That is post-processing and costs nothing.

Proof: docs/proofs/graph-release.md. Features and labels must be public, so the units are edges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import Rows
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.mechanisms.edge_flip import EdgeFlip
from hushgraph.mechanisms.noisy_edges import NoisyEdges
from hushgraph.mechanisms.raw import Raw
from hushgraph.methods.base import Method, Output
from hushgraph.nn.graph_network import AGGREGATIONS, JUMPS, GraphNetwork
from hushgraph.nn.layers import ACTIVATIONS
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata, count_pairs
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.loop import BestEpoch
from hushgraph.training.losses import mean_loss, share_right
from hushgraph.training.whole_graph import at_inference, train_on_graph
from hushgraph.vault import Vault

DENSITIES = ("free", "kept")


@dataclass(frozen=True)
class GraphRelease(Method):
    """What methods that release a graph share: the network that is trained on it."""

    convolution: str = setting("sage", help="sage, gcn, gin, gat, or a convolution of torch_geometric.nn by its name")
    aggregation: str = setting("mean", among=AGGREGATIONS, help="how sage collects its neighbors")
    num_layers: int = setting(2, least=1, most=1000, help="convolutions")
    pre_layers: int | None = setting(
        None, least=0, most=1000, help="layers of an MLP before the convolutions; by rule 1"
    )
    post_layers: int = setting(1, least=0, most=1000, help="layers of an MLP behind the convolutions")
    jumping: str | None = setting(None, among=JUMPS, help="rows of all convolutions for what follows; by rule none")
    hidden_channels: int = setting(16, least=1, most=1 << 16, help="width of all layers")
    activation: str = setting("selu", among=ACTIVATIONS)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int = setting(100, least=1)
    count_share: float = setting(0.01, above=0, below=1, help="share of epsilon for the number of edges, where asked")

    aliases = {"hidden": "hidden_channels", "backbone": "convolution"}
    takes_multilabel = True

    @abstractmethod
    def graph_stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The releases that the graph is made of."""

    @abstractmethod
    def released_graph(self, vault: Vault) -> MemoryEdges:
        """Carry them out."""

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The graph; features and labels as they are, which is free where they are public and refused elsewhere."""
        raw = [Stage(part, Raw(part)) for part in ("features", "labels")]
        return [*self.graph_stages(metadata, unit, budget), *raw]

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Edges that were declared public."""
        known = metadata.num_public_edges
        return [note(Code.PUBLIC_EDGES, edges=known)] if known else []

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The graph network."""
        return GraphNetwork(
            plan.metadata.features,
            plan.metadata.classes,
            convolution=self.convolution,
            aggregation=self.aggregation,
            num_layers=self.num_layers,
            hidden_channels=self.hidden_channels,
            pre_layers=self._by_rule()[0] if self.pre_layers is None else self.pre_layers,
            post_layers=self.post_layers,
            jumping=self.jumping or self._by_rule()[1],
            activation=self.activation,
            dropout=self.dropout,
            generator=generator,
        )

    def _by_rule(self) -> tuple[int, str]:
        """Layers before the convolutions, and jumping knowledge, where the settings leave them open."""
        return 1, "none"

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Release the graph, then train on it."""
        from hushgraph.nn.pyg_models import PygNeighborhood, kept_features

        edges = self.released_graph(vault)
        graph, features = PygNeighborhood(edges), kept_features(vault.release("features"))
        if train:
            self._train(network, features, graph, vault)
        with torch.no_grad():
            scores: Tensor = network.eval()(features, graph)
        return Output(scores=scores, settings={"released_edges": edges.num_edges})

    def _train(self, network: nn.Module, features: Rows, graph: Any, vault: Vault) -> None:
        """Full-batch training; the weights of the best epoch on the validation nodes are kept."""
        labels, train, val = vault.release("labels"), vault.labeled("train"), vault.labeled("val")

        def loss() -> Tensor:
            return mean_loss(network(features, graph)[train], labels[train])

        judge = at_inference(network, lambda: share_right(network(features, graph)[val], labels[val]))
        training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
        best = BestEpoch(network, judge) if val.numel() else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=vault.generator("dropout"))))
            train_on_graph(network, loss, training, best=best, on_epoch=vault.progress_of("training"))

    # The number of edges

    def count_stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> list[Stage]:
        """A noisy count of all entries, unless their number was declared."""
        if metadata.num_edges is not None:
            return []
        count = EdgeCount(max(1, metadata.num_nodes - 1))
        count.require(unit)
        epsilon = self.count_share * budget.epsilon if budget.is_private else 1.0
        return [Stage("count", count, noise=None, scale=float(count.whole_scale_within(epsilon, unit)))]

    def private_links(self, vault: Vault, *, undirected: bool) -> tuple[int, int]:
        """How many pairs are linked, as declared or counted with noise, and how many there are; without public ones."""
        declared, sides = vault.metadata.num_edges, 2 if undirected else 1
        entries = vault.release("count") if declared is None else declared
        public = vault.metadata.num_public_edges // sides
        pairs = count_pairs(vault.metadata.num_nodes, undirected=undirected) - public
        return min(max(0, entries // sides - public), pairs), pairs


@dataclass(frozen=True)
class EdgeRand(GraphRelease):
    """Randomized response on every pair. With `density` free the graph is as dense as the noise makes it."""

    density: str = setting(
        "free", among=DENSITIES, help="free, as published; kept: thinned to the noisy count of edges"
    )
    max_links: int = setting(30_000_000, least=1, help="refuse to release more pairs than about this many")

    name = "edge-rand"
    summary = "every pair of nodes flipped by randomized response, then a graph network on what comes out"
    paper = "Wu et al., IEEE S&P 2022"

    def graph_stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """Randomized response, after the count where the density is kept."""
        flip = Stage("graph", EdgeFlip(undirected=unit.footprint.mirrored))
        if self.density == "kept":
            return [*self.count_stages(metadata, unit, budget), flip]
        if budget.is_private and unit.footprint.records == 0:
            self._require_few(metadata, flip.mechanism.sensitivity(unit) / budget.epsilon, unit.footprint.mirrored)
        return [flip]

    def remarks(self, plan: Plan) -> Sequence[str]:
        """How many links come out that are none, where nothing thins them."""
        stage = plan["graph"]
        if self.density == "kept" or not stage.scale or plan.runs_exactly("graph"):
            return ()
        flip = plan.mechanism("graph", EdgeFlip)
        pairs = count_pairs(plan.metadata.num_nodes, undirected=flip.undirected)
        false = flip.rates(stage.scale)[1] * pairs
        return [f"graph: about {false:,.0f} pairs that are not linked come out as links; density=kept thins them"]

    def _require_few(self, metadata: Metadata, scale: float, undirected: bool) -> None:
        """Refuse a release that would be far denser than any graph of people."""
        _, absent = EdgeFlip().rates(scale)
        expected = absent * count_pairs(metadata.num_nodes, undirected=undirected)
        if expected > self.max_links:
            raise InputError(
                f"{self.name}: expected to release at most {self.max_links:.3g} pairs (max_links); at epsilon "
                f"{1.0 / scale:.3g} on {metadata.num_nodes} nodes it would be about {expected:.2g}. Use density=kept, "
                "the methods arr or lap-graph, or raise max_links"
            )

    def released_graph(self, vault: Vault) -> MemoryEdges:
        """The flipped graph, thinned where the density is kept."""
        stage = vault.plan["graph"]
        flip = vault.plan.mechanism("graph", EdgeFlip)
        if vault.plan.runs_exactly("graph"):
            edges: MemoryEdges = vault.release("graph")
            return edges
        keep = 1.0
        if self.density == "kept":
            private, pairs = self.private_links(vault, undirected=flip.undirected)
            keep = flip.keep_rate(stage.scale or 1.0, private / max(1, pairs))
        found: MemoryEdges = vault.release("graph", keep)
        return found


@dataclass(frozen=True)
class ARR(EdgeRand):
    """Asymmetric randomized response: randomized response, then links kept at the rate that keeps the density."""

    density: str = setting("kept", among=DENSITIES, help="kept: links are thinned to the noisy count of edges")

    name = "arr"
    summary = "asymmetric randomized response on every pair, which keeps the density, then a graph network"
    paper = "Imola, Murakami, Chaudhuri, USENIX Security 2022"


@dataclass(frozen=True)
class SageEDP(ARR):
    """The baseline of the GAP and ProGAP papers: ARR, then GraphSAGE that sums. `form` says whose layers.

    gap: an MLP of two layers before and of one behind; progap: one before, one behind, and jumping knowledge.
    """

    form: str = setting("gap", among=("gap", "progap"), help="whose layers: those of the GAP or the ProGAP paper")
    aggregation: str = setting("sum", among=AGGREGATIONS, help="how sage collects its neighbors")

    name = "sage-edp"
    summary = "the baseline SAGE-EDP: ARR, then GraphSAGE with sums and MLP layers around it"
    paper = "Sajadmanesh et al., USENIX Security 2023"

    def _by_rule(self) -> tuple[int, str]:
        """Those of the paper."""
        return (2, "none") if self.form == "gap" else (1, "cat")


@dataclass(frozen=True)
class LapGraph(GraphRelease):
    """Laplace noise on every pair; those with the largest sums, as many as the noisy count says, are the graph."""

    name = "lap-graph"
    summary = "noise on every pair of nodes, the largest kept as edges, then a graph network on them"
    paper = "Wu et al., IEEE S&P 2022"

    def graph_stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The count, and the pairs."""
        pairs = Stage("graph", NoisyEdges(undirected=unit.footprint.mirrored))
        return [*self.count_stages(metadata, unit, budget), pairs]

    def released_graph(self, vault: Vault) -> MemoryEdges:
        """As many private links as the count leaves beside the public ones."""
        if vault.plan.runs_exactly("graph"):
            edges: MemoryEdges = vault.release("graph")
            return edges
        undirected = vault.plan.mechanism("graph", NoisyEdges).undirected
        found: MemoryEdges = vault.release("graph", self.private_links(vault, undirected=undirected)[0])
        return found
