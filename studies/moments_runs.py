"""What the runs of the study of noisy-moments do: one release by class, at several epsilons.

The exact sums follow from the data and the seed of the public features, not from epsilon or the ridge: runs that
differ in those alone share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

import hushgraph as hg
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.class_sums import ClassSums
from hushgraph.mechanisms.view import View
from hushgraph.methods.noisy_moments import NoisyMoments
from hushgraph.nn.described import Described
from hushgraph.noise.source import NoiseSource
from hushgraph.study.lab import Lab
from hushgraph.training.moment_ridge import PublicMoment

Metrics = dict[str, float | None]


@dataclass(frozen=True)
class Sums:
    """The exact sums of one seed, and the rows that scores and the ridge are computed from."""

    exact: Tensor
    public: Tensor
    test: Tensor
    moment: PublicMoment


_LATEST: dict[str, Sums] = {}


def solved(lab: Lab) -> Metrics:
    """Accuracy on test pictures and, to choose settings by, on public pictures, whose labels are not used otherwise."""
    method, graph = cast(NoisyMoments, lab.method), check_graph(lab.data, needs_edges=False)
    plan = method.plan(graph.metadata, hg.units.Record(), lab.budget)
    known = _sums(lab, replace(method, ridge_share=1.0), graph)
    scale, seed = plan["sums"].scale or 0.0, lab.seed or 0
    noise = NoiseSource.seeded(seed).stream("sums").integer_gaussian(tuple(known.exact.shape), 1e6 * scale)
    sums = known.exact + noise / 1e6
    weights, ridge = known.moment.solve(sums.T, graph.metadata.num_train, scale, method.ridge_share)
    return {
        "test_accuracy": _accuracy(known.test @ weights, graph.labels[graph.test]),
        "public_accuracy": _accuracy(known.public @ weights, graph.labels[graph.public]),
        "noise": scale,
        "ridge": ridge,
        "proved_epsilon": plan.epsilon,
    }


def _sums(lab: Lab, method: NoisyMoments, graph: CheckedGraph) -> Sums:
    key = repr((lab.cell.dataset, lab.cell.label_share, lab.seed, method))
    if key not in _LATEST:
        _LATEST.clear()
        _LATEST[key] = _counted(lab.seed or 0, method, graph)
    return _LATEST[key]


def _counted(seed: int, method: NoisyMoments, graph: CheckedGraph) -> Sums:
    free = method.plan(graph.metadata, hg.units.Record(), hg.Budget(1.0, 1e-5))
    network = cast(Described, method.network(free, torch.Generator().manual_seed(seed)))
    features = cast(Tensor, graph.features)
    with torch.no_grad():
        network.description.fit(features[graph.public])
        head, mechanism = cast(nn.Linear, network.head).double(), ClassSums(graph.metadata.classes)
        view = View(graph, mechanism.reads, None, NoiseSource.seeded(seed), "study")
        mechanism.query(view, head, network.description, features)
        rows = [network.description(features[records]) for records in (graph.public, graph.test)]
    return Sums(head.weight.detach().clone(), *rows, PublicMoment(rows[0]))


def _accuracy(scores: Tensor, truth: Tensor) -> float:
    return 100.0 * float((scores.argmax(dim=1) == truth).float().mean())
