"""Clip per root, sum, perturb: DP-SGD where an example is a root with what reaches it. Proof: docs/proofs/dpgnn.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.graph.rows import SparseRows
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.gradient import LOUD, Gradient, SumsWatcher
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mixture import occurrence_bound
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps, RootedExamples
from hushgraph.training.loop import train_private
from hushgraph.training.losses import weighted_labels
from hushgraph.training.sampler import PoissonSampler
from hushgraph.training.whole_graph import train_rooted

_MOST_ROOTS = 60_000


@dataclass(frozen=True)
class RootedGradient(Gradient):
    """Noisy sums of clipped per-root gradients: each root reads the nodes that reach it in `num_layers` steps.

    Every node's own list has at most `max_degree` entries, so a node occurs in at most N = 1 + K + ... + K^r rooted
    examples. A record that becomes empty changes those N, one of which (its own) vanishes; a record that is replaced
    changes those of its old and of its new list, 2N - 1 together. Only an owned record has this bound.
    """

    max_degree: int = 1
    num_layers: int = 1

    takes_ranks = False
    stops_early = False
    name = "rooted-gradient"
    proof = "dpgnn"
    reads = frozenset({"edges", "features", "labels"})
    released = "sums of per-root gradients"

    def touched(self, unit: Unit) -> tuple[int, int]:
        """How many rooted examples depend on one unit, before and after the change."""
        degree = int(min(self.max_degree, unit.footprint.receivers))
        bound = occurrence_bound(degree, self.num_layers)
        return (2 * bound - 1, 2 * bound - 1) if unit.footprint.replaced else (bound, bound - 1)

    def sensitivity(self, unit: Unit) -> float:
        """All touched examples in one batch: each side moves by at most the clip norm."""
        return self.max_grad_norm * sum(self.touched(unit)) if unit.footprint.owned else math.inf

    def reference(self, unit: Unit) -> float:
        """The largest change of one sum."""
        return self.sensitivity(unit)

    def event(self, unit: Unit, scale: float) -> Event:
        """Poisson batches in which one unit touches several examples."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        return events.sampled_group(self.sample_rate, scale / self.max_grad_norm, *self.touched(unit), steps=self.steps)

    def check(self, *inputs: Any) -> None:
        """The network must reach as far as planned."""
        layers = inputs[0].num_layers
        if layers != self.num_layers:
            raise InputError(f"expected a network of {self.num_layers} layers, as planned; got {layers}")

    def query(self, data: Any, network: RootedNetwork, training: Training) -> None:  # type: ignore[override]
        """Train on the whole graph, without privacy."""
        train_rooted(
            network,
            whole_graph(data.whole_lists.load(), network.num_layers),
            data.features,
            data.labels,
            training,
            train=data.labeled("train"),
            val=data.labeled("val"),
            on_epoch=data.report,
        )

    def release(  # type: ignore[override]
        self, data: Any, scale: float, noise: NoiseSource, network: RootedNetwork, training: Training
    ) -> None:
        """Train by clipped, noised steps on Poisson batches of roots."""
        self.check(network)
        train = data.train
        steps = NoisySteps(PoissonSampler(train.numel(), self.sample_rate), self.steps, self.max_grad_norm, scale)
        subgraphs = RootedSubgraphs(data.capped(self.max_degree).load(), train, self.num_layers)
        labels = data.labels[train]
        if training.class_weights is not None:
            labels = weighted_labels(labels, training.class_weights)
        examples = RootedExamples(network, subgraphs, data.features, labels, steps)
        train_private(examples, training, noise, on_step=data.report, keeper=data.keeper)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """One layer and two."""
        return [cls(0.5, 0.25, 4, max_degree=3, num_layers=1), cls(0.5, 0.25, 4, max_degree=2, num_layers=2)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """A small network that reaches as far as planned."""
        made, metadata = torch.Generator().manual_seed(0), graph.metadata
        network = RootedNetwork(metadata.features, 3, metadata.classes, num_layers=self.num_layers, generator=made)
        return network, Training(epochs=1)

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """Each takes as many roots as it can touch."""
        return max(100, min(super().most_canaries(stage, unit), _MOST_ROOTS // self.touched(unit)[0]))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """A node whose record turns round every example that it can reach.

        A canary is a node with a full list of K receivers, who send to K nodes each, and so on: N roots, all in one
        feature column of their own. A root's own features point one way; the canary's are so much louder that every
        root it reaches points the other way. Weights are so small that the network is linear, so the clipped gradient
        of each root is C or -C in the canary's column.
        """
        graph = self._trees(unit, coins)
        network = _small_network(len(coins), self.num_layers)
        column = network.encoder[0].weight
        assert isinstance(column, Tensor)
        watch = SumsWatcher(column, self, stage.scale or 1.0, self.touched(unit))
        vault = open_vault(graph, progress=lambda *_: watch.step())
        rate = watch.rate * self.sample_rate * graph.train.numel()
        vault.release(stage.name, network, Training(epochs=1, lr=rate, optimizer="sgd"))
        return watch.evidence("rooted")

    def _trees(self, unit: Unit, coins: np.ndarray) -> CheckedGraph:
        """All canaries with the trees that they reach: one tree each, or two under replacement."""
        degree = int(min(self.max_degree, unit.footprint.receivers))
        below, replaced = occurrence_bound(degree, self.num_layers) - 1, unit.footprint.replaced
        size = 1 + (2 if replaced else 1) * below
        first, present = size * torch.arange(len(coins)), torch.from_numpy(coins)
        receiver = torch.arange(1, below + 1)
        sender = (receiver - 1) // degree
        trees = []
        for start, named in ((0, present), (below, ~present)) if replaced else ((0, present),):
            own = sender == 0  # node 0 is the canary, whose list is there only if its record names this tree
            fixed = torch.stack([sender[~own] + start, receiver[~own] + start])
            trees.append(_repeated(fixed, first))
            trees.append(_repeated(torch.stack([sender[own], receiver[own] + start]), first[named]))
        return _graph(torch.cat(trees, dim=1), _signs(present, below, replaced, self.num_layers), size)


def _repeated(edges: Tensor, first: Tensor) -> Tensor:
    """The same edges, moved to start at each of `first`."""
    return (edges.unsqueeze(1) + first.reshape(1, -1, 1)).reshape(2, -1)


def _signs(present: Tensor, below: int, replaced: bool, layers: int) -> Tensor:
    """`[canaries, nodes of one]`: the feature of every node, in multiples of `LOUD`.

    A mean over few rows takes at most half of a message away, a layer at a time: 4^r drowns out all others.
    """
    louder = 4.0**layers
    canary = torch.where(present, louder, -louder if replaced else 0.0).unsqueeze(1)
    others = [-torch.ones(len(present), below), *([torch.ones(len(present), below)] if replaced else [])]
    return torch.cat([canary, *others], dim=1)


def _graph(edges: Tensor, signs: Tensor, size: int) -> CheckedGraph:
    canaries, nodes = len(signs), signs.numel()
    values = LOUD * signs.flatten()
    there = values != 0.0
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(there, 0)])
    columns = torch.arange(canaries).repeat_interleave(size)
    x = SparseRows(ends, columns[there], values[there], (nodes, canaries))
    return audit_graph(x, edges, train=torch.ones(nodes, dtype=torch.bool))


def _small_network(canaries: int, layers: int) -> RootedNetwork:
    """One hidden number; all weights that a gradient passes on its way to the first layer are 1 or -1."""
    network = RootedNetwork(canaries, 1, 2, num_layers=layers, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        for layer in network.convolutions:
            for name, parameter in layer.named_parameters():
                if name.endswith("weight"):
                    parameter.fill_(1.0)
        last = network.decoder[0].weight
        assert isinstance(last, Tensor)
        last.copy_(torch.tensor([[1.0], [-1.0]]))
    return network
