"""Clip, sum, perturb: DP-SGD where an example reads the nodes of a released row. Proof: docs/proofs/dpappr.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.pagerank import TopRows
from hushgraph.graph.rows import SparseRows
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.gradient import LOUD, Gradient, SumsWatcher
from hushgraph.nn.layers import MLP, Linear
from hushgraph.nn.weighted import WeightedMean, WeightedRows
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps
from hushgraph.training.loop import train_private
from hushgraph.training.losses import are_present, weighted_labels
from hushgraph.training.sampler import PoissonSampler
from hushgraph.training.weighted import WeightedExamples, train_weighted

_CANARY_NUMBERS = 1 << 22
_HOPELESS = 100.0
"""Sums that move by so many deviations in all have an epsilon of thousands, which takes minutes to compute."""


@dataclass(frozen=True)
class WeightedGradient(Gradient):
    """Noisy sums of clipped gradients: the example of a source reads the nodes of its row, which is public or released.

    A node is read by its own example and by at most `max_support` others, the same ones whatever its record is. A
    record that becomes empty changes those and takes its own example away; one that is replaced changes all of them.
    """

    max_support: int = 1

    takes_ranks = False
    stops_early = False
    name = "weighted-gradient"
    proof = "dpappr"
    reads = frozenset({"features", "labels"})
    released = "sums of gradients over released rows"

    def touched(self, unit: Unit) -> tuple[int, int]:
        """How many examples depend on one unit, before and after the change."""
        others = self.max_support
        return (others + 1, others + 1) if unit.footprint.replaced else (others + 1, others)

    def sensitivity(self, unit: Unit) -> float:
        """All touched examples in one batch: each side moves by at most the clip norm."""
        return self.max_grad_norm * sum(self.touched(unit)) if unit.footprint.records <= 1 else math.inf

    def reference(self, unit: Unit) -> float:
        """The largest change of one sum."""
        return self.sensitivity(unit)

    def event(self, unit: Unit, scale: float) -> Event:
        """Poisson batches in which one unit touches several examples; no protection where nobody would call it one."""
        moved = self.sample_rate * self.max_grad_norm * sum(self.touched(unit))
        if scale == 0.0 or moved * math.sqrt(self.steps) > _HOPELESS * scale:
            return events.non_private()
        self.require(unit)
        return events.sampled_group(self.sample_rate, scale / self.max_grad_norm, *self.touched(unit), steps=self.steps)

    def check(self, *inputs: Any) -> None:
        """No node may be read by more examples than planned, and no source may have two."""
        rows = inputs[1]
        if torch.unique(rows.sources).numel() != rows.sources.numel() or bool((rows.sources < 0).any()):
            raise InputError("sources: expected distinct nodes, by their numbers; got some twice or below 0")
        if rows.support() > self.max_support:
            raise InputError(f"support: expected at most {self.max_support} rows a node; got {rows.support()}")

    def query(self, data: Any, module: WeightedMean, rows: TopRows, training: Training) -> None:  # type: ignore[override]
        """Train plainly on the sources that have a label."""
        self.train_plainly(data, module, rows, training)

    def release(  # type: ignore[override]
        self, data: Any, scale: float, noise: NoiseSource, module: WeightedMean, rows: TopRows, training: Training
    ) -> None:
        """Train by clipped, noised steps on Poisson batches of sources."""
        self.check(module, rows)
        self.train_noisily(data, scale, noise, module, rows, training)

    def train_plainly(self, data: Any, module: WeightedMean, rows: TopRows, training: Training) -> None:
        """On all labeled sources at once."""
        labels = data.labels[rows.sources]
        there = torch.nonzero(are_present(labels)).squeeze(1)
        examples = _examples(data, rows).rows(there)
        train_weighted(module, examples, _weighted(labels[there], training), training, data.report)

    def train_noisily(
        self, data: Any, scale: float, noise: NoiseSource, module: WeightedMean, rows: TopRows, training: Training
    ) -> None:
        """On Poisson batches of all sources."""
        sampler = PoissonSampler(rows.sources.numel(), self.sample_rate)
        steps = NoisySteps(sampler, self.steps, self.max_grad_norm, scale)
        labels = _weighted(data.labels[rows.sources], training)
        examples = WeightedExamples(module, _examples(data, rows), labels, steps)
        train_private(examples, training, noise, on_step=data.report, keeper=data.keeper)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few steps on Poisson batches."""
        return [cls(0.5, 0.25, 4, max_support=2)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """A linear model; every training node reads itself and the two nodes after it."""
        metadata, sources = graph.metadata, graph.train
        module = MLP(metadata.features, 1, metadata.classes, 1, generator=torch.Generator().manual_seed(0))
        columns = (sources.unsqueeze(1) + torch.arange(3)) % metadata.num_nodes
        weights = torch.tensor([0.01, 1.0, 1.0]).expand(columns.shape)
        return WeightedMean(module), TopRows(sources, columns, weights), Training(epochs=1)

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """Each has a column of its own in all examples, and as many examples as it can touch."""
        return max(50, min(super().most_canaries(stage, unit), math.isqrt(_CANARY_NUMBERS // self.touched(unit)[0])))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """A node whose record turns round every example that reads it.

        Each canary has a feature column of its own. The examples that read it point one way by themselves; the canary's
        feature is so much louder that with it they point the other way, as its own example does.
        """
        module = Linear(len(coins), 2, bias=False)
        torch.nn.init.zeros_(module.weight)
        watch = SumsWatcher(module.weight, self, stage.scale or 1.0, self.touched(unit))
        vault = open_vault(self._planted(unit, coins), progress=lambda *_: watch.step())
        rows = self._canary_rows(len(coins))
        rate = watch.rate * self.sample_rate * rows.sources.numel()
        vault.release(stage.name, WeightedMean(module), rows, Training(epochs=1, lr=rate, optimizer="sgd"))
        return watch.evidence("record")

    def _canary_rows(self, canaries: int) -> TopRows:
        """The row of a canary is itself; `max_support` others read it, and themselves with a third of the weight."""
        size = self.max_support + 1
        sources = torch.arange(canaries * size)
        canary = sources // size * size
        return TopRows(
            sources, torch.stack([sources, canary], dim=1), torch.tensor([0.25, 0.75]).repeat(len(sources), 1)
        )

    def _planted(self, unit: Unit, coins: np.ndarray) -> CheckedGraph:
        """Node after node: a canary and those who read it. An absent one is empty, or points the other way."""
        size, replaced = self.max_support + 1, unit.footprint.replaced
        signs = -torch.ones(len(coins), size)
        signs[:, 0] = torch.where(torch.from_numpy(coins), 1.0, -1.0 if replaced else 0.0)
        nodes = torch.arange(signs.numel())
        there = signs.flatten() != 0.0
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(there, 0)])
        x = SparseRows(ends, (nodes // size)[there], LOUD * signs.flatten()[there], (len(nodes), len(coins)))
        no_edges = torch.empty((2, 0), dtype=torch.int64)
        graph = audit_graph(x, no_edges, train=torch.ones(len(nodes), dtype=torch.bool))
        return graph if replaced else replace(graph, labels=torch.where(there, 0, -1))


def _examples(data: Any, rows: TopRows) -> WeightedRows:
    """What the examples read; nobody else's features."""
    return WeightedRows(data.features, rows.columns, rows.weights)


def _weighted(labels: Tensor, training: Training) -> Tensor:
    """Labels with the public weights of their classes, where there are any."""
    return labels if training.class_weights is None else weighted_labels(labels, training.class_weights)
