"""The PageRank of nodes that were chosen before, with discrete Laplace noise, as the publication of `em-v1` has it.

Proof: docs/proofs/dpappr.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_values import ChosenEntries
from hushgraph.noise.discrete import step_probability
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class PageRankLaplace(ChosenEntries):
    """The entries named by a released choice, as whole steps of bound / 2^10, with noise P[k] ~ exp(-|k| / scale).

    Bound (L1): M K times 2^10 steps: every entry may move by the whole range, so each is purely 2^10 / scale private.
    """

    name = "pagerank-laplace"
    law = "discrete-laplace"
    steps = 1 << 10  # the law is sampled for scales up to 2^24 steps

    def sensitivity(self, unit: Unit) -> float:
        """All entries may move by the whole range."""
        return float(self.steps * self.num_rows * self.top) if unit.footprint.records <= 1 else math.inf

    def reference(self, unit: Unit) -> float:
        """The scale with which all entries together cost about as much as a Gaussian of multiplier 1."""
        return self.steps * math.sqrt(0.5 * math.pi * self.num_rows * self.top)

    def event(self, unit: Unit, scale: float) -> Event:
        """M K releases of pure epsilon 2^10 / scale, whose losses lie in an interval of twice that length."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        return events.bounded_range(2.0 * self.steps / scale, self.num_rows * self.top)

    def release(
        self, data: Any, scale: float, noise: NoiseSource, chosen: TopRows, among: Tensor | None = None
    ) -> TopRows:
        """The entries with noise."""
        return self.with_sizes(chosen, self._noisy(self.sizes(data, chosen, among), scale, noise))

    def _noisy(self, sizes: np.ndarray, scale: float, noise: NoiseSource) -> np.ndarray:
        drawn = noise.two_sided_geometric(sizes.size, step_probability(1.0 / scale))
        noisy: np.ndarray = sizes + drawn.reshape(sizes.shape)
        return noisy

    def log_likelihood(self, seen: TopRows, exact: np.ndarray, scale: float) -> float:
        """Two-sided exponential."""
        steps = seen.weights.double().numpy() * (self.steps / self.bound)
        return float(-(np.abs(steps - exact) / scale).sum())

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """All entries, in whole steps."""
        return self.sizes(data, *inputs).astype(np.float64)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The same with noise."""
        return self._noisy(self.sizes(data, *inputs), scale, noise).astype(np.float64)

    def usable_scale(self, scale: float) -> float:
        """Noise of less than a step has no law; nothing that is private needs so little."""
        return max(scale, 1.0)
