"""DP-SGD over exact rows of PageRank, which one unit may all change: the baseline `dpsgd` of DP-APPR.

Proof: docs/proofs/dpappr.md.
"""

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
from hushgraph.graph.rows import dense_rows
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.gradient import LOUD, SumsWatcher
from hushgraph.mechanisms.pagerank_top import PageRankTop
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.mechanisms.view import View
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.nn.layers import Linear
from hushgraph.nn.weighted import WeightedMean
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training

_LOUDER = 64.0
"""How much louder than a leaf the hub is, which has a smaller weight in the leaf's row."""
_REACH = 0.25
"""A hub of more than this over rho leaves keeps too little of each walk to be in its row."""
_MOST_CANARIES, _MOST_STEPS, _MOST_NUMBERS = 1_000, 20_000, 1 << 29


@dataclass(frozen=True)
class PageRankGradient(WeightedGradient):
    """Noisy sums of clipped gradients over the exact rows of `num_rows` sources, each with its `top` largest entries.

    One unit may change all rows: every example is charged as if it did, whatever `max_support` is.
    """

    num_rows: int = 1
    top: int = 4
    alpha: float = 0.25
    rho: float = 1e-4
    own_weight: float = 0.5

    name = "pagerank-gradient"
    reads = frozenset({"edges", "features", "labels"})
    released = "sums of gradients over exact rows of PageRank"

    def touched(self, unit: Unit) -> tuple[int, int]:
        """All examples; a record that becomes empty takes its own example away."""
        emptied = unit.footprint.records == 1 and not unit.footprint.replaced
        return self.num_rows, self.num_rows - int(emptied)

    def sensitivity(self, unit: Unit) -> float:
        """All examples in one batch."""
        return self.max_grad_norm * sum(self.touched(unit)) if unit.footprint.records <= 1 else math.inf

    def check(self, *inputs: Any) -> None:
        """As many distinct sources as planned."""
        sources = inputs[1]
        if sources.numel() != self.num_rows or torch.unique(sources).numel() != self.num_rows:
            raise InputError(f"sources: expected {self.num_rows} distinct nodes, as planned; got {sources.numel()}")

    def query(  # type: ignore[override]
        self, data: Any, module: WeightedMean, sources: Tensor, among: Tensor | None, training: Training
    ) -> None:
        """Train plainly on the exact rows."""
        self.train_plainly(data, module, self._rows(data, sources, among), training)

    def release(  # type: ignore[override]
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        module: WeightedMean,
        sources: Tensor,
        among: Tensor | None,
        training: Training,
    ) -> None:
        """Train by clipped, noised steps on the exact rows."""
        self.check(module, sources)
        self.train_noisily(data, scale, noise, module, self._rows(data, sources, among), training)

    def _rows(self, data: Any, sources: Tensor, among: Tensor | None) -> TopRows:
        """The largest entries with their values; they stay here."""
        walk = (self.num_rows, self.top, 1.0, self.alpha, self.rho)
        chosen = PageRankTop(*walk).query(data, sources, among)
        return PageRankValues(*walk).query(data, chosen, among).mixed(self.own_weight)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few steps on Poisson batches of few rows."""
        return [cls(0.5, 0.25, 4, 2, num_rows=3, top=2)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """A linear model, and the first training nodes."""
        module, *_ = super().example_inputs(graph)
        return module, graph.train[: self.num_rows], None, Training(epochs=1)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """One noisy sum over all sources."""
        return super().after_noise(data, scale, noise, *inputs) * (self.num_rows / data.train.numel())

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """Every canary has a training of its own, on as many rows as planned."""
        return max(4, min(_MOST_CANARIES, _MOST_STEPS // self.steps, _MOST_NUMBERS // (self.num_rows + 1) ** 2))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """A hub in every row, or an edge to it, whose features turn round every example that reads them.

        Without the hub every example points the other way, by its own features, and the hub's own is gone. It moves
        all examples at once, so each canary has a vault of its own.
        """
        worlds = [self._planted(unit, np.array([coin])) for coin in (False, True)]
        absent, planted = (self._signs(graph) for graph in worlds)
        moved = planted != absent
        touched = int((planted[moved] > 0).sum()), int((absent[moved] < 0).sum())
        found = [self._watched(stage, touched, worlds[int(coin)], open_vault) for coin in coins]
        repeated = [one.repeated for one in found if one.repeated is not None]
        return Evidence(
            np.concatenate([one.ratios for one in found], axis=1),
            "hub" if unit.footprint.records else "edge",
            repeated=np.concatenate(repeated) if repeated else None,
        )

    def _watched(self, stage: Stage, touched: tuple[int, int], graph: CheckedGraph, open_vault: OpenVault) -> Evidence:
        """One training, and what its sums say about the hub."""
        module = Linear(1, 2, bias=False)
        torch.nn.init.zeros_(module.weight)
        watch = SumsWatcher(module.weight, self, stage.scale or 1.0, touched)
        vault = open_vault(graph, progress=lambda *_: watch.step())
        training = Training(epochs=1, lr=watch.rate * self.sample_rate * self.num_rows, optimizer="sgd")
        vault.release(stage.name, WeightedMean(module), torch.arange(self.num_rows), None, training)
        return watch.evidence("hub")

    def _planted(self, unit: Unit, coins: np.ndarray) -> CheckedGraph:
        """Sources, of which the first is the hub of all others. An edge that is planted leads to a hub that is none."""
        f, there = unit.footprint, bool(coins[0])
        hub = 0 if f.records else self.num_rows
        most = min(self.num_rows - 1, unit.promised_degree, _REACH / self.rho) if f.records else 1
        leaves = torch.arange(int(most) if unit.has_edges else 0) + (1 if f.records else 0)
        signs = torch.zeros(self.num_rows + (0 if f.records else 1))
        signs[leaves] = -1.0
        signs[hub] = 1.0 if there or not f.records else -1.0 if f.replaced else 0.0
        out = torch.stack([torch.full_like(leaves, hub), leaves])
        if not (there or f.replaced):
            out = out[:, :0]
        edges = out if f.other_entries == 0 else torch.cat([out, out.flip(0)], dim=1)
        x = (LOUD * signs).unsqueeze(1)
        x[hub] *= _LOUDER
        graph = audit_graph(x, edges, train=torch.ones(len(signs), dtype=torch.bool))
        emptied = bool(f.records) and not there and not f.replaced
        return replace(graph, labels=torch.where(torch.arange(len(signs)) == hub, -1, 0)) if emptied else graph

    def _signs(self, graph: CheckedGraph) -> np.ndarray:
        """Where the example of each source points; an example without a label, or of nothing, points nowhere."""
        data = View(graph, self.reads, None, NoiseSource.from_os(), "canary")
        sources = torch.arange(self.num_rows)
        rows = self._rows(data, sources, None)
        read = (dense_rows(data.features)[rows.columns].squeeze(2) * rows.weights).sum(dim=1)
        return torch.where(data.labels[sources] >= 0, read.sign(), 0.0).numpy()
