"""DP-SGD over exact rows of PageRank, which one unit may all change: the baseline `dpsgd` of DP-APPR.

Proof: docs/proofs/dpappr.md.
"""

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
from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_top import PageRankTop
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.nn.weighted import WeightedMean
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training


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
        """None is known: an audit says so."""
        return 1_000_000

    def canary(self, stage: Stage, unit: Unit, coins: Any, open_vault: Any, rng: Any) -> Any:
        """None."""
        return None
