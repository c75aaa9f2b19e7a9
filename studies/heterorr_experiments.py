"""What the runs of studies/hetero-rr.yaml do: a network on what HeteroRR releases, LinkTeller, scores of features."""

from __future__ import annotations

import math
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import hushgraph as hg
from hushgraph.attacks.links import LinkTeller
from hushgraph.attacks.targets import target_of
from hushgraph.study.lab import Lab

Metrics = dict[str, float | None]
UNPROTECTED = hg.Budget(math.inf)


def replaced(lab: Lab, *, feature_epsilon: float, epochs: int = 100) -> Metrics:
    """A graph network on the replacement that HeteroRR releases at (epsilon of edges, `feature_epsilon`)."""
    graph: Any = lab.data
    if math.isfinite(lab.budget.epsilon):
        method = hg.HeteroRR(hg.EdgeRR(), hg.FeatureRR(low=0.0, high=1.0))
        budget = hg.Budget(feature_epsilon)
        graph = method.release(graph, lab.budget, budget, ledger=_ledger(), seed=lab.seed).data
    model = hg.FeatureRR(epochs=epochs, patience=30, hidden_channels=16, lr=0.03).fit(
        graph, hg.units.Local(private_labels=False), UNPROTECTED, ledger=_ledger(), seed=lab.seed
    )
    return {"test_accuracy": model.metrics["accuracy"]["test"]}


def link_teller(lab: Lab, *, sources: int = 100, per_source: int = 40, epochs: int = 60) -> Metrics:
    """The AUC of LinkTeller about private edges, against a GCN on the graph that is released (epsilon inf: on the raw).

    `public_auc` is that against a GCN on the public edges alone: what private edges have nothing to do with.
    """
    graph = lab.data
    secret, public = graph.clone(), graph.clone()
    nodes = int(graph.num_nodes or 0)
    number = [edges[0] * nodes + edges[1] for edges in (graph.edge_index, graph.public_edge_index)]
    secret.edge_index = graph.edge_index[:, ~torch.isin(*number)]
    public.edge_index = graph.public_edge_index
    shown = graph
    if math.isfinite(lab.budget.epsilon):
        shown = hg.release_graph(lab.method, graph, lab.unit, lab.budget, ledger=_ledger(), seed=lab.seed).data
    attack = LinkTeller(sources=sources, per_source=per_source, seed=lab.seed or 0)

    def auc(seen: Any) -> float:
        model = hg.GCN(epochs=epochs).fit(seen, None, UNPROTECTED, ledger=_ledger(), seed=lab.seed)
        found = attack.run(target_of(model, seen), secret)
        return float(roc_auc_score(found.truth, found.scores))

    return {"auc": auc(shown), "public_auc": auc(public)}


def scored(lab: Lab, *, gamma: float, bins: int, public_share: float = 0.1) -> Metrics:
    """FeatureRR with scores from a model of a few public records, which take no part in the training.

    Sensitive are the raw features of even number: theirs is the change that the projection is measured by.
    """
    graph = lab.data.clone()
    generator = torch.Generator().manual_seed(lab.seed or 0)
    public = graph.train_mask & (torch.rand(int(graph.num_nodes or 0), generator=generator) < public_share)
    graph.train_mask, graph.public_mask = graph.train_mask & ~public, public
    scores = hg.feature_scores(_linear(graph.x[public], graph.y[public], generator), graph, _masked(lab)[public])
    method = hg.FeatureRR(
        low=0.0, high=1.0, gamma=gamma, bins=bins, importance=scores.importance, sensitivity=scores.sensitivity,
        epochs=100, patience=30, hidden_channels=16, lr=0.03,
    )  # fmt: skip
    model = method.fit(graph, lab.unit, lab.budget, ledger=_ledger(), seed=lab.seed)
    return {"test_accuracy": model.metrics["accuracy"]["test"]}


def _linear(rows: Tensor, labels: Tensor, generator: torch.Generator) -> nn.Module:
    """A linear model of public records."""
    model = nn.Linear(rows.shape[1], int(labels.max()) + 1)
    with torch.no_grad():
        model.weight.normal_(0.0, 0.1, generator=generator)
        model.bias.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def _masked(lab: Lab) -> Tensor:
    """The projected rows after raw features of even number were taken out."""
    from hushgraph.datasets.splits import projected

    assert lab.cell.dataset is not None
    raw = hg.datasets.load(lab.cell.dataset.load, split=lab.cell.dataset.split, seed=lab.cell.split_seed or 0).x
    dense = raw.to_dense().clone()
    dense[:, ::2] = 0.0
    return projected(dense, lab.data.x.shape[1])


def _ledger() -> hg.Ledger:
    return hg.Ledger.in_memory(warn=False)
