"""One run of DP-APPR, measured as its publication does: predictions about test nodes from a graph of their own."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.graph.checks import check_graph
from hushgraph.methods.dpappr import DPAPPR
from hushgraph.methods.dpappr_paper import row_scales
from hushgraph.nn.weighted import power_iteration
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import NodeWithEdges
from hushgraph.study.experiments.fit import Fit
from hushgraph.study.lab import Lab
from hushgraph.study.metrics import rmse


class Measured(Fit):
    """Accuracy by power iteration among test nodes, and of own features alone; degrees guessed from embeddings."""

    def __call__(self, lab: Lab, **settings: Any) -> dict[str, float | None]:
        """All measures of one fit. Not private: evaluation."""
        method = lab.method
        assert isinstance(method, DPAPPR)
        return self.of(lab, method, lab.budget)

    def of(self, lab: Lab, method: DPAPPR, budget: Budget) -> dict[str, float | None]:
        """The measures of `method` at `budget`."""
        options = {"ledger": lab.ledger, "paper_mode": lab.cell.paper_mode}
        model = method.fit(lab.data, lab.unit, budget, seed=lab.seed, **options)
        scorer, graph = model.network.scorer, check_graph(lab.data)
        with torch.no_grad():
            own = scorer(graph.features)
            hidden = scorer.layers[:-1](graph.features).double().numpy()
        test = graph.test
        smooth = power_iteration(own[test], graph.edges.load().induced(test), method.alpha, method.power_steps)
        truth = graph.labels[test]
        rows = [stage for stage in model.plan.stages if stage.name == "rows"]
        return {
            "test_accuracy": _percent(smooth, truth),
            "own_accuracy": _percent(own[test], truth),
            **_degrees(graph.edges.in_degree().double().numpy(), hidden, graph.train.numpy(), lab.cell.seed or 0),
            "row_noise": rows[0].scale / method.row_bound if rows and rows[0].scale else None,
            "proved_epsilon": model.certificate.epsilon,
            "fit_seconds": model.seconds["total"],
        }


def _percent(scores: Tensor, truth: Tensor) -> float:
    return 100.0 * float((scores.argmax(dim=1) == truth).double().mean())


def _degrees(degrees: np.ndarray, embeddings: np.ndarray, train: np.ndarray, seed: int) -> dict[str, float]:
    """Half of the training nodes' degrees are known; a ridge regression on embeddings guesses the others."""
    order = np.random.default_rng(seed).permutation(train)
    known, asked = np.array_split(order, 2)
    center, spread = embeddings[known].mean(axis=0), embeddings[known].std(axis=0) + 1e-9
    x = (embeddings - center) / spread
    gram = x[known].T @ x[known] + len(known) * 1e-2 * np.eye(x.shape[1])
    mean = degrees[known].mean()
    guessed = mean + x[asked] @ np.linalg.solve(gram, x[known].T @ (degrees[known] - mean))
    return {
        "degree_rmse": rmse(degrees[asked], guessed),
        "degree_rmse_of_the_mean": rmse(degrees[asked], np.full(len(asked), mean)),
    }


def split(lab: Lab, *, rows_epsilon: float) -> dict[str, float | None]:
    """Paper mode with epsilon for DP-SGD alone, and `rows_epsilon` more for the rows; infinite: they cost nothing."""
    assert lab.cell.method is not None
    method, training = DPAPPR(**lab.cell.method.settings), lab.budget
    if not math.isfinite(rows_epsilon):
        return measured.of(lab, method, training)
    total = rows_epsilon + training.epsilon
    return measured.of(lab, replace(method, pagerank_share=rows_epsilon / total), Budget(total, training.delta))


def secret(lab: Lab, *, rate: float) -> dict[str, float | None]:
    """A run on nodes that each are in a secret sample with chance `rate`; the others count as empty.

    What it may spend on the sample follows from the cell's budget: docs/proofs/dpappr.md, "A secret sample".
    """
    assert lab.cell.method is not None
    method, inner = DPAPPR(**lab.cell.method.settings), before_sampling(lab.budget, rate)
    chosen = np.random.default_rng([lab.cell.seed, 1]).random(lab.data.num_nodes) < rate
    sample = emptied(lab.data, torch.from_numpy(chosen))
    model = method.fit(sample, lab.unit, inner, seed=lab.seed, ledger=lab.ledger)
    scorer, graph = model.network.scorer, check_graph(lab.data)
    with torch.no_grad():
        own = scorer(graph.features)[graph.test]
    edges = graph.edges.load().induced(graph.test)
    smooth = power_iteration(own, edges, method.alpha, method.power_steps)
    return {
        "test_accuracy": _percent(smooth, graph.labels[graph.test]),
        "own_accuracy": _percent(own, graph.labels[graph.test]),
        "inner_epsilon": inner.epsilon,
    }


def before_sampling(budget: Budget, rate: float) -> Budget:
    """What a run on a secret sample may spend, so that all of it stays within the budget."""
    return Budget(math.log1p(math.expm1(budget.epsilon) / rate), budget.definite_delta / rate)


def emptied(data: Data, kept: Tensor) -> Data:
    """The graph in which every node that is not kept is an empty record: no features, no label, no edge."""
    sample = copy.copy(data)
    sample.x = data.x * kept.unsqueeze(1)
    sample.y = torch.where(kept, data.y, -1)
    sample.edge_index = data.edge_index[:, kept[data.edge_index].all(dim=0)]
    return sample


def noise(lab: Lab) -> dict[str, float | None]:
    """Noise of one entry of a row over C1, for half of the cell's epsilon and delta, as published and as proved.

    `sampled` is the published noise where the claim is divided by q', and `proved_for_sampled` what such rows cost.
    """
    assert lab.cell.method is not None
    method, unit, budget = DPAPPR(**lab.cell.method.settings), NodeWithEdges(), lab.budget
    metadata, half, delta = check_graph(lab.data).metadata, 0.5 * budget.epsilon, 0.5 * budget.definite_delta
    plain, sampled = (row_scales(method, metadata, half / q, delta)[0] for q in (1.0, method.sample or 1.0))
    (ours,) = method._within_share(method.row_stages(metadata), unit, budget)
    found = {"published": plain, "proved": ours, "sampled": sampled}
    return {
        **{name: (stage.scale or 0.0) / method.row_bound for name, stage in found.items()},
        "ratio": (plain.scale or 0.0) / (ours.scale or 1.0),
        "proved_for_sampled": PrivacyLoss(sampled.event(unit), unit.relation).epsilon(delta),
    }


measured = Measured()
