"""What the runs of studies/hetero-rr.yaml do: a network on what HeteroRR releases, LinkTeller, scores of features."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph import local
from hushgraph.attacks.base import Target, dense_features
from hushgraph.attacks.images import read_images
from hushgraph.attacks.links import LinkTeller
from hushgraph.attacks.reconstruction import ImageReconstruction
from hushgraph.attacks.targets import target_of
from hushgraph.datasets.loading import local_file
from hushgraph.graph.dendrogram import Chain, sensitivity
from hushgraph.noise.source import NoiseSource
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


def proposals(lab: Lab, *, count: int = 1_000_000) -> Metrics:
    """How many proposals a second of CPU time the chain of EdgeRR carries out on a graph."""
    graph: Any = lab.data
    nodes = int(graph.num_nodes)
    number = [edges[0] * nodes + edges[1] for edges in (graph.edge_index, graph.public_edge_index)]
    private = graph.edge_index[:, ~torch.isin(*number)]
    ends = [edges[:, edges[0] < edges[1]].numpy() for edges in (graph.public_edge_index, private)]
    chain = Chain(nodes, (ends[0][0], ends[0][1]), (ends[1][0], ends[1][1]), NoiseSource.seeded(lab.seed or 0))
    rate = 1.0 / (2.0 * sensitivity(nodes))
    chain.run(1_000, rate)  # compiled
    before = time.process_time()
    chain.run(count, rate)
    spent = time.process_time() - before
    return {"proposals_per_second": count / spent, "nodes": float(nodes)}


def reconstructed(lab: Lab, *, images: int = 4_000, columns: int = 32, bins: int = 10) -> Metrics:
    """Images from embeddings (Fig. 8): how much of them a decoder that half of the images are known to brings back.

    `explained` is the share of the variance between images; `auc` tells the reconstruction of an image from that of
    another one.
    """
    found = attack_images(lab.budget.epsilon, lab.seed or 0, images, columns, bins)
    area = float(roc_auc_score(found.truth, found.scores))
    return {"auc": area, "explained": found.details["explained_variance"], "mse": found.details["mse"]}


def attack_images(epsilon: float, seed: int, images: int = 4_000, columns: int = 32, bins: int = 10) -> Any:
    """Attack embeddings of Fashion-MNIST: principal components of the public half, squeezed into [0, 1].

    Importance comes from a linear model of the public half; sensitive is what a covered middle of the image changes.
    """
    data = read_images(local_file("fashion_mnist/fashion_mnist"))
    chosen = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(seed))[:images]
    pixels, labels = dense_features(data)[chosen].flatten(1), data.y[chosen]
    public = torch.arange(images) < images // 2
    center = pixels[public].mean(0)
    basis = torch.linalg.svd(pixels[public] - center, full_matrices=False)[2][:columns]
    scale = ((pixels[public] - center) @ basis.T).std(0)
    covered = pixels.reshape(-1, 28, 28).clone()
    covered[:, 7:21, 7:21] = 0.0
    rows, masked = (torch.sigmoid((one - center) @ basis.T / scale) for one in (pixels, covered.flatten(1)))
    if math.isfinite(epsilon):
        known = Data(x=rows, y=labels, public_mask=public, num_nodes=images)
        model = _linear(rows[public], labels[public], torch.Generator().manual_seed(seed))
        scores = hg.feature_scores(model, known, masked[public])
        theta = local.unified_scores(scores.importance, scores.sensitivity, 0.5)
        device, rng = local.FeatureRR(epsilon, theta, bins), np.random.default_rng(seed)
        rows = torch.as_tensor(device.estimate(device.perturb(rows.numpy(), rng))).float()
    target = Target("embeddings", torch.empty(0), rows)
    held = Data(x=pixels, edge_index=torch.empty((2, 0), dtype=torch.int64), public_mask=public, num_nodes=images)
    return ImageReconstruction(epochs=30, seed=seed).run(target, held)


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
