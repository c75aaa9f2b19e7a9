"""What studies/pgc-figures-2.1-2.5.yaml runs: variance of randomizers, and the error of a convolution of reports."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch_geometric.data import Data

from hushgraph import local
from hushgraph.attacks.base import dense_features
from hushgraph.study.lab import Lab

Metrics = dict[str, float | None]
COLUMNS = 200
"""Features that the error is taken over, drawn by the seed: it is a mean over features."""
DEGREES = {
    "degree_1": (1, 1),
    "degree_2_3": (2, 3),
    "degree_4_7": (4, 7),
    "degree_8_15": (8, 15),
    "degree_16_up": (16, np.inf),
}
"""Groups of nodes in which the error is averaged: least and largest degree."""


def variance(lab: Lab, *, mechanism: str, at: float) -> Metrics:
    """The exact variance of an estimate of one feature in [0, 1] whose value is `at` (Figs 2.1 and 2.4)."""
    return {"variance": float(local.scalar(mechanism, lab.budget.epsilon).variance(at))}


def variance_at_mean(lab: Lab, *, mechanism: str) -> Metrics:
    """The same at the mean of all features of a graph (Fig. 2.5)."""
    mean = float(dense_features(lab.data).clamp(0.0, 1.0).mean())
    return {"variance": float(local.scalar(mechanism, lab.budget.epsilon).variance(mean)), "mean_feature": mean}


def error(lab: Lab, *, mechanism: str) -> Metrics:
    """Mean absolute error of the first convolution, over nodes and by degree (Figs 2.2 and 2.3)."""
    rng = np.random.default_rng(lab.cell.seed)
    features = dense_features(lab.data).clamp(0.0, 1.0).numpy()
    chosen = features[:, rng.permutation(features.shape[1])[:COLUMNS]].astype(np.float64)
    randomizer = local.scalar(mechanism, lab.budget.epsilon)
    reported = randomizer.estimate(randomizer.perturb(chosen, rng))
    weights, degrees = _convolution(lab.data)
    wrong = np.abs(weights @ (reported - chosen)).mean(axis=1)
    found: Metrics = {"error": float(wrong.mean())}
    for name, (least, largest) in DEGREES.items():
        group = (degrees >= least) & (degrees <= largest)
        found[name] = float(wrong[group].mean()) if group.any() else None
    return found


def _convolution(data: Data) -> tuple[sparse.csr_matrix, np.ndarray]:
    """D^-1/2 (A + I) D^-1/2, and the degrees without the node itself."""
    assert isinstance(data.edge_index, torch.Tensor)
    number = int(data.num_nodes or 0)
    source, target = data.edge_index.numpy()
    links = sparse.coo_matrix((np.ones(len(source)), (target, source)), shape=(number, number)).tocsr()
    degrees = np.asarray(links.sum(axis=1)).ravel()
    root = sparse.diags(1.0 / np.sqrt(degrees + 1.0))
    return sparse.csr_matrix(root @ (links + sparse.identity(number)) @ root), degrees
