"""t-SNE of the embeddings of training nodes under DP-APPR in paper mode (Figs 5.6-5.7). Not private: evaluation.

    python studies/dpappr_embeddings.py

Trains twelve models and writes docs/pictures/dpappr-fig-5-6.svg and dpappr-fig-5-7.svg. Needs HUSHGRAPH_DATA,
matplotlib and scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot, rcParams
from sklearn.manifold import TSNE

import hushgraph as hg
from hushgraph.graph.checks import check_graph
from hushgraph.methods.dpappr import DPAPPR
from hushgraph.privacy.units import NodeWithEdges

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SHOWN, EPSILONS = 600, (1.0, 8.0, 64.0)
GRAPHS = {
    "5-6": ("cora_ml/cora_ml", 70, 0.09, 2e-3),
    "5-7": ("planetoid/pubmed", 60, 0.01, 2e-4),
}


def draw(figure_number: str) -> None:
    """One figure: two variants by three claimed epsilons."""
    source, rows, sample, delta = GRAPHS[figure_number]
    data = hg.datasets.load(source, split=[0.80, 0.0, 0.20], project=256)
    graph = check_graph(data)
    order = torch.randperm(graph.train.numel(), generator=torch.Generator().manual_seed(0))
    nodes = graph.train[order[:SHOWN]]
    figure, axes = pyplot.subplots(2, len(EPSILONS), figsize=(10, 6.5), layout="constrained")
    for line, variant in zip(axes, ("gm", "em-v1"), strict=True):
        for place, epsilon in zip(line, EPSILONS, strict=True):
            method = DPAPPR(
                variant=variant, rows=rows, sample=sample, epochs=200, batch_size=60, lr=0.005, own_weight=0.0,
                pagerank_share=0.5, activation="relu",
            )  # fmt: skip
            options = {"ledger": hg.Ledger.in_memory(warn=False), "seed": 0, "paper_mode": True}
            model = method.fit(data, NodeWithEdges(), hg.Budget(epsilon, delta), **options)
            with torch.no_grad():
                embedded = model.network.scorer.layers[:-1](graph.features[nodes]).numpy()
            flat = TSNE(random_state=0, init="pca").fit_transform(embedded.astype(np.float64))
            place.scatter(flat[:, 0], flat[:, 1], c=graph.labels[nodes], s=5, cmap="tab10", rasterized=True)
            place.set(title=f"{variant}, claimed epsilon {epsilon:g}", xticks=[], yticks=[])
    figure.suptitle(f"{SHOWN} training nodes of {Path(source).name}, paper mode. Not private: evaluation")
    figure.savefig(PICTURES / f"dpappr-fig-{figure_number}.svg", metadata={"Date": None}, dpi=120)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rcParams["svg.hashsalt"] = "hushgraph"
    for number in GRAPHS:
        draw(number)
