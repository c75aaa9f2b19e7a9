"""PGC for link prediction, on privately collected features.

The edges are public under the local unit; what is protected are the features. Some links are held out to measure how
well the others predict them. Whatever is done with the reports after they were drawn costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.checks import CheckedGraph
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.links import LinkSplit, split_links, unlinked_pairs
from hushgraph.ledger.run import Run
from hushgraph.methods.base import TrainedModel
from hushgraph.methods.pgc import Estimates, PerFeatureMethod
from hushgraph.nn.hop_similarity import HOPS, HopRows, HopWeights, fit_weights, log_degrees
from hushgraph.nn.kprop import PropagatedRows
from hushgraph.nn.propagation import Neighborhood
from hushgraph.nn.vgae import LinkEncoder, area_under_curve, divergence, link_scores, reconstruction_loss
from hushgraph.privacy.plan import Plan
from hushgraph.training.early_stopping import Patience, train_watched
from hushgraph.vault import Vault

SCORERS = ("hops", "vgae")
# The network, the rows and biases of all nodes, and what was found out in training.
_Learned = tuple[nn.Module, Tensor, Tensor, dict[str, Any]]


@dataclass(frozen=True)
class PGCLinks(PerFeatureMethod):
    """Choices of PGC for link prediction. `val_share` and `test_share` of the links are held out.

    `scorer` is "hops" (ours): a pair scores by the cosines of its rows after 0 to 16 propagations and by its degrees,
    with weights learned on `hidden_share` of the train links from a graph without them; `rank` columns are kept. Or it
    is "vgae", as published: a variational graph auto-encoder, which reads the settings from `hidden` to `patience`.

    For "vgae", `hidden_share` of the train links are hidden in every step, others each time, and those are predicted.
    With 0, as published, the network sees every link that it is asked to predict. On noisy features it learns links by
    heart either way: one step of Adam moves thousands of weights, most of which meet noise alone.
    """

    scorer: str = "hops"
    rank: int = 256
    hidden: int = 32
    width: int = 16
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.01
    epochs: int = 500
    patience: int = 10
    val_share: float = 0.05
    test_share: float = 0.10
    hidden_share: float = 0.2

    name = "pgc-links"
    summary = "one random bit per feature from every person; predicts links from averages over neighbors"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.hidden_share < 1.0:
            raise InputError(f"hidden_share: expected at least 0 and below 1; got {self.hidden_share!r}")
        if self.scorer == "hops" and self.hidden_share == 0.0:
            raise InputError("hidden_share: the scorer 'hops' learns from hidden links; expected more than 0; got 0")
        InputError.collect(
            [
                *parameters.one_of(SCORERS, scorer=self.scorer),
                *parameters.at_least(1, rank=self.rank),
                *parameters.at_least(1, hidden=self.hidden, width=self.width, epochs=self.epochs),
                *parameters.at_least(1, patience=self.patience),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr, val_share=self.val_share, test_share=self.test_share),
            ]
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Collect once, hold out links, learn from the others."""
        estimates = self.collect(vault, plan)
        nodes = vault.facts.num_nodes
        links = split_links(vault.edge_index, nodes, self.val_share, self.test_share, vault.generator("held-out links"))
        graph = Neighborhood(InNeighbors.from_edge_index(links.train_edges, nodes))
        learn = self._compare_hops if self.scorer == "hops" else self._auto_encode
        network, rows, bias, settings = learn(estimates, graph, links, vault)
        return LinkModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network,
            settings=settings,
            released={"rows": rows, "bias": bias, "test_links": links.test, "test_apart": links.test_apart},
        )

    def _compare_hops(self, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault) -> _Learned:
        """Weights of the hops from links that the graph does not show, then rows on the graph with all train links."""
        generator = vault.generator("weights")
        shown, hidden = self._hide_some(links.train, graph, generator)
        apart = unlinked_pairs(links.train_edges, graph.num_nodes, hidden.shape[1], generator)
        pairs = torch.cat([hidden, apart], dim=1)
        linked = (torch.arange(pairs.shape[1]) < hidden.shape[1]).to(torch.float64)
        degrees = log_degrees(shown)[pairs].sum(dim=0)
        weights = fit_weights(HopRows(estimates.reports, shown).cosines(pairs), degrees, linked)
        vault.report("training", 1, 2)
        used = tuple(hop for hop, weight in zip(HOPS, weights.hops, strict=True) if weight > 0) or HOPS[:1]
        kept = torch.stack([weights.hops[HOPS.index(hop)] for hop in used])
        rows = HopRows(estimates.reports, graph, used).narrow(kept, self.rank, generator)
        vault.report("training", 2, 2)
        shares = {str(hop): round(float(weight), 3) for hop, weight in zip(HOPS, weights.hops, strict=True)}
        bias = weights.degree * log_degrees(graph)
        return weights, rows, bias, {"hop_weights": shares, "degree_weight": round(float(weights.degree), 3)}

    def _auto_encode(self, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault) -> _Learned:
        """As published."""
        network = LinkEncoder(estimates.reports.shape[1], self.hidden, self.width, self.dropout)
        rows = estimates.propagated(graph.kprop, 0)
        patience = self._train(network, rows, graph, links, vault)
        with torch.no_grad():
            embedding = network(rows, graph)[0]
        return network, embedding, torch.zeros(graph.num_nodes), {"epochs": patience.best_epoch}

    def _train(
        self, network: LinkEncoder, rows: PropagatedRows, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> Patience:
        nodes = vault.facts.num_nodes

        def loss() -> Tensor:
            shown, predicted = self._hide_some(links.train, graph)
            mean, log_std = network(rows, shown)
            sampled = mean + torch.randn_like(mean) * log_std.exp()
            apart = torch.randint(nodes, (2, links.train.shape[1]))
            return reconstruction_loss(sampled, predicted, apart) + divergence(mean, log_std) / nodes

        def watched() -> float:
            rows_now = network(rows, graph)[0]
            return -area_under_curve(link_scores(rows_now, links.val), link_scores(rows_now, links.val_apart))

        patience = Patience(self.patience, least=min(100, self.epochs), every=10)
        train_watched(
            network,
            loss,
            watched,
            torch.optim.Adam(network.parameters(), lr=self.lr, weight_decay=self.weight_decay),
            epochs=self.epochs,
            patience=patience,
            seed=int(torch.randint(2**62, (1,), generator=vault.generator("weights"))),
            report=lambda done: vault.report("training", done, self.epochs),
        )
        return patience

    def _hide_some(
        self, links: Tensor, graph: Neighborhood, generator: torch.Generator | None = None
    ) -> tuple[Neighborhood, Tensor]:
        """The graph without a random share of the train links, and those links (no generator: torch's global one)."""
        hidden = torch.rand(links.shape[1], generator=generator) < self.hidden_share
        if self.hidden_share == 0.0 or not bool(hidden.any()):
            return graph, links
        kept = links[:, ~hidden]
        edges = torch.cat([kept, kept.flip(0)], dim=1)
        return Neighborhood(InNeighbors.from_edge_index(edges, graph.num_nodes)), links[:, hidden]

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network."""
        if self.scorer == "hops":
            return HopWeights()
        if facts.num_features is None:
            raise InputError("PGC needs the number of features")
        return LinkEncoder(facts.num_features, self.hidden, self.width, self.dropout)


@dataclass
class LinkModel(TrainedModel):
    """Rows whose inner products, with a bias for each node, predict links: post-processing of the reports."""

    def link_scores(self, pairs: Tensor) -> Tensor:
        """One score per pair of nodes (`[2, P]`); larger means likelier linked."""
        return link_scores(self.released["rows"], pairs) + self.released["bias"][pairs].sum(dim=0)

    def finish(self, graph: CheckedGraph, vault: Vault, run: Run, seconds: float) -> None:
        """As for every model, with the area under the curve on held-out links."""
        super().finish(graph, vault, run, seconds)
        linked = self.link_scores(self.released["test_links"])
        apart = self.link_scores(self.released["test_apart"])
        self.metrics = {"test_auc": 100.0 * area_under_curve(linked, apart), "note": "edges are public under this unit"}

    def class_scores(self, graph: Any | None) -> Tensor:
        """None: this model predicts links."""
        raise InputError("predict: this model predicts links, not classes; use link_scores")
