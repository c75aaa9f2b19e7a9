"""PGC for link prediction, on privately collected features.

The edges are public under the local unit; what is protected are the features. Some links are held out to measure how
well the others predict them. Whatever is done with the reports after they were drawn costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from hushgraph.data.checks import CheckedGraph
from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.links import LinkSplit, split_links, unlinked_pairs
from hushgraph.methods.base import Output
from hushgraph.methods.model import Model
from hushgraph.methods.pgc import Estimates, PerFeatureMethod
from hushgraph.nn.hop_similarity import HOPS, HopRows, HopWeights, fit_weights, log_degrees
from hushgraph.nn.propagation import Neighborhood, PropagatedRows
from hushgraph.nn.vgae import LinkEncoder, divergence, link_scores, reconstruction_loss
from hushgraph.privacy.plan import Plan
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.loop import BestEpoch
from hushgraph.training.whole_graph import at_inference, fresh_start, train_on_graph
from hushgraph.vault import Vault

SCORERS = ("hops", "vgae")
# The rows and biases of all nodes, and what was found out in training.
_Learned = tuple[Tensor, Tensor, dict[str, Any]]


@dataclass(frozen=True)
class PGCLinks(PerFeatureMethod):
    """Settings of PGC for link prediction.

    `scorer` is "hops" (ours): a pair scores by the cosines of its rows after 0 to 16 propagations and by its degrees,
    with weights learned on `hidden_share` of the training links from a graph without them; `rank` columns are kept. Or
    it is "vgae", as published: a variational graph auto-encoder, which reads the settings from `hidden_channels` to
    `patience`. There, `hidden_share` of the training links are hidden in every step, others each time, and those are
    predicted; with 0, as published, the network sees every link that it is asked to predict.
    """

    scorer: str = setting("hops", among=SCORERS)
    rank: int = setting(256, least=1, help="columns kept by the scorer hops")
    hidden_channels: int = setting(32, least=1)
    width: int = setting(16, least=1, help="columns of a node's row (vgae)")
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(0.01, least=0)
    epochs: int = setting(500, least=1)
    patience: int = setting(10, least=1)
    val_share: float = setting(0.05, above=0, help="links held out for validation")
    test_share: float = setting(0.10, above=0, help="links held out for the test")
    hidden_share: float = setting(0.2, least=0, below=1, help="training links hidden while learning")

    name = "pgc-links"
    summary = "one random bit per feature from every person; predicts links from averages over neighbors"
    paper = "Sajadmanesh and Gatica-Perez 2020"
    aliases = {"hidden": "hidden_channels"}

    def problems(self) -> list[str]:
        """As for every method, and what the scorer needs."""
        found = super().problems()
        if self.scorer == "hops" and self.hidden_share == 0.0:
            found.append("hidden_share: the scorer 'hops' learns from hidden links; expected more than 0; got 0")
        return found

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The weights of the hops, or an auto-encoder."""
        if self.scorer == "hops":
            return HopWeights()
        return LinkEncoder(plan.metadata.features, self.hidden_channels, self.width, self.dropout)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Collect once, hold out links, learn from the others."""
        if not train:
            raise InputError("predict: this model predicts links, not classes; use link_scores")
        estimates, nodes = self.estimates(vault), vault.metadata.num_nodes
        split = vault.generator("held-out links")
        links = split_links(vault.edges.edge_index(), nodes, self.val_share, self.test_share, split)
        graph = Neighborhood(MemoryEdges.from_edge_index(links.train_edges, nodes))
        learn = self._compare_hops if self.scorer == "hops" else self._auto_encode
        rows, bias, settings = learn(network, estimates, graph, links, vault)
        kept = {"rows": rows, "bias": bias, "test_links": links.test, "test_apart": links.test_apart}
        return Output(kept=kept, settings=settings)

    def evaluate(self, model: Model, graph: CheckedGraph) -> dict[str, Any]:
        """The area under the curve on held-out links; edges are public under this unit."""
        linked, apart = (model.link_scores(model.kept[name]) for name in ("test_links", "test_apart"))
        return {"test_auc": 100.0 * area_under_curve(linked, apart), "note": "edges are public under this unit"}

    def _compare_hops(
        self, network: nn.Module, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> _Learned:
        """Weights of the hops from links that the graph does not show, then rows on the graph with all train links."""
        generator = vault.generator("weights")
        shown, hidden = self._hide_some(links.train, graph, generator)
        apart = unlinked_pairs(links.train_edges, graph.num_nodes, hidden.shape[1], generator)
        pairs = torch.cat([hidden, apart], dim=1)
        linked = (torch.arange(pairs.shape[1]) < hidden.shape[1]).to(torch.float64)
        degrees = log_degrees(shown)[pairs].sum(dim=0)
        weights = fit_weights(HopRows(estimates.reports, shown).cosines(pairs), degrees, linked)
        network.load_state_dict(weights.state_dict())
        vault.report("training", 1, 2)
        used = tuple(hop for hop, weight in zip(HOPS, weights.hops, strict=True) if weight > 0) or HOPS[:1]
        kept = torch.stack([weights.hops[HOPS.index(hop)] for hop in used])
        rows = HopRows(estimates.reports, graph, used).narrow(kept, self.rank, generator)
        vault.report("training", 2, 2)
        shares = {str(hop): round(float(weight), 3) for hop, weight in zip(HOPS, weights.hops, strict=True)}
        bias = weights.degree * log_degrees(graph)
        return rows, bias, {"hop_weights": shares, "degree_weight": round(float(weights.degree), 3)}

    def _auto_encode(
        self, network: nn.Module, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> _Learned:
        """As published."""
        rows = estimates.propagated(graph.kprop, 0)
        epoch = self._train(network, rows, graph, links, vault)
        with torch.no_grad():
            embedding = network(rows, graph)[0]
        return embedding, torch.zeros(graph.num_nodes), {"epochs": epoch}

    def _train(
        self, network: nn.Module, rows: PropagatedRows, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> int:
        nodes = vault.metadata.num_nodes

        def loss() -> Tensor:
            shown, predicted = self._hide_some(links.train, graph)
            mean, log_std = network(rows, shown)
            sampled = mean + torch.randn_like(mean) * log_std.exp()
            apart = torch.randint(nodes, (2, links.train.shape[1]))
            return reconstruction_loss(sampled, predicted, apart) + divergence(mean, log_std) / nodes

        def watched() -> float:
            rows_now = network(rows, graph)[0]
            return area_under_curve(link_scores(rows_now, links.val), link_scores(rows_now, links.val_apart))

        judge = at_inference(network, watched)
        best = BestEpoch(network, judge, patience=self.patience, least=min(100, self.epochs), every=10)
        training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
        with fresh_start(network, int(torch.randint(2**62, (1,), generator=vault.generator("weights")))):
            train_on_graph(network, loss, training, best=best, on_epoch=vault.progress_of("training"))
        return best.epoch

    def _hide_some(
        self, links: Tensor, graph: Neighborhood, generator: torch.Generator | None = None
    ) -> tuple[Neighborhood, Tensor]:
        """The graph without a random share of the train links, and those links (no generator: torch's global one)."""
        hidden = torch.rand(links.shape[1], generator=generator) < self.hidden_share
        if self.hidden_share == 0.0 or not bool(hidden.any()):
            return graph, links
        kept = links[:, ~hidden]
        edges = torch.cat([kept, kept.flip(0)], dim=1)
        return Neighborhood(MemoryEdges.from_edge_index(edges, graph.num_nodes)), links[:, hidden]


def area_under_curve(linked: Tensor, apart: Tensor) -> float:
    """The chance that a linked pair scores above an unlinked one (ties count half)."""
    truth = torch.cat([torch.ones(linked.numel()), torch.zeros(apart.numel())])
    return float(roc_auc_score(truth.numpy(), torch.cat([linked, apart]).detach().numpy()))
