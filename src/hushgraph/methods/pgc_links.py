"""PGC for link prediction: a variational graph auto-encoder on privately collected features.

The edges are public under the local unit; what is protected are the features. Some links are held out to measure how
well the others predict them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph.accounting.plan import Plan
from hushgraph.errors import InputError
from hushgraph.facts import PublicFacts
from hushgraph.graph.csr import InNeighbours
from hushgraph.graph.link_split import LinkSplit, split_links
from hushgraph.intake import CheckedGraph
from hushgraph.methods import parameters
from hushgraph.methods.base import TrainedModel
from hushgraph.methods.pgc import PerFeatureMethod
from hushgraph.nn.kprop import PropagatedRows
from hushgraph.nn.propagation import Neighbourhood
from hushgraph.nn.vgae import LinkEncoder, area_under_curve, divergence, link_scores, reconstruction_loss
from hushgraph.run import Run
from hushgraph.training.early_stopping import Patience, train_watched
from hushgraph.vault import Vault


@dataclass(frozen=True)
class PGCLinks(PerFeatureMethod):
    """Choices of PGC for link prediction. `val_share` and `test_share` of the links are held out.

    `hidden_share` of the train links are hidden in every step, others each time, and those are predicted. With 0, as
    published, the network sees every link that it is asked to predict: on noisy features it learns links by heart
    (area under the curve above 99% on train links and below 83% on others, Cora at epsilon 1).
    """

    hidden: int = 32
    width: int = 16
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.01
    epochs: int = 500
    patience: int = 10
    val_share: float = 0.05
    test_share: float = 0.10
    hidden_share: float = 0.3

    name = "pgc-links"
    summary = "one random bit per feature from every person; predicts links with a graph auto-encoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.hidden_share < 1.0:
            raise InputError(f"hidden_share: expected at least 0 and below 1; got {self.hidden_share!r}")
        InputError.collect(
            [
                *parameters.at_least(1, hidden=self.hidden, width=self.width, epochs=self.epochs),
                *parameters.at_least(1, patience=self.patience),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr, val_share=self.val_share, test_share=self.test_share),
            ]
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Collect once, hold out links, train the auto-encoder on the others."""
        estimates = self.collect(vault, plan)
        nodes = vault.facts.num_nodes
        links = split_links(vault.edge_index, nodes, self.val_share, self.test_share, vault.generator("held-out links"))
        graph = Neighbourhood(InNeighbours.from_edge_index(links.train_edges, nodes))
        network = self.rebuild(vault.facts, {})
        rows = estimates.propagated(graph.kprop, 0)
        patience = self._train(network, rows, graph, links, vault)
        with torch.no_grad():
            embedding = network(rows, graph)[0]
        return LinkModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network,
            settings={"epochs": patience.best_epoch},
            released={"rows": embedding, "test_links": links.test, "test_apart": links.test_apart},
        )

    def _train(
        self, network: LinkEncoder, rows: PropagatedRows, graph: Neighbourhood, links: LinkSplit, vault: Vault
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

    def _hide_some(self, links: Tensor, graph: Neighbourhood) -> tuple[Neighbourhood, Tensor]:
        """The graph without a random share of the train links, and those links; drawn from torch's global state."""
        hidden = torch.rand(links.shape[1]) < self.hidden_share
        if self.hidden_share == 0.0 or not bool(hidden.any()):
            return graph, links
        kept = links[:, ~hidden]
        edges = torch.cat([kept, kept.flip(0)], dim=1)
        return Neighbourhood(InNeighbours.from_edge_index(edges, graph.num_nodes)), links[:, hidden]

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> LinkEncoder:
        """The untrained network."""
        if facts.num_features is None:
            raise InputError("PGC needs the number of features")
        return LinkEncoder(facts.num_features, self.hidden, self.width, self.dropout)


@dataclass
class LinkModel(TrainedModel):
    """The auto-encoder after training; its rows are post-processing of the reports."""

    def link_scores(self, pairs: Tensor) -> Tensor:
        """One score per pair of nodes (`[2, P]`); larger means likelier linked."""
        return link_scores(self.released["rows"], pairs)

    def finish(self, graph: CheckedGraph, vault: Vault, run: Run, seconds: float) -> None:
        """As for every model, with the area under the curve on held-out links."""
        super().finish(graph, vault, run, seconds)
        linked = self.link_scores(self.released["test_links"])
        apart = self.link_scores(self.released["test_apart"])
        self.metrics = {"test_auc": 100.0 * area_under_curve(linked, apart), "note": "edges are public under this unit"}

    def class_scores(self, graph: Any | None) -> Tensor:
        """None: this model predicts links."""
        raise InputError("predict: this model predicts links, not classes; use link_scores")
