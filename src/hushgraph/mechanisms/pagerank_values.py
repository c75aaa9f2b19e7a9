"""The PageRank of nodes that were chosen before, with noise: the values of DP-APPR's `em-v1`.

Proof: docs/proofs/dpappr.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from hushgraph.data.checks import CheckedGraph
from hushgraph.errors import InputError
from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_rows import STEPS, PageRankMechanism
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class PageRankValues(PageRankMechanism, GaussianMechanism):
    """The entries named by a released choice, cut to [0, bound] and to a grid, with Gaussian noise.

    Bound (L2): sqrt(M K) times `bound`: every one of M K entries may move by the whole range.
    """

    bound: float = 0.001

    name = "pagerank-values"
    released = "entries of personalized PageRank"

    def sensitivity(self, unit: Unit) -> float:
        """All entries may move by the whole range."""
        return self.bound * math.sqrt(self.num_rows * self.top) if unit.footprint.records <= 1 else math.inf

    def check(self, *inputs: Any) -> None:
        """As many rows and entries as planned."""
        super().check(inputs[0].sources)
        if inputs[0].columns.shape != (self.num_rows, self.top):
            raise InputError(f"entries: expected {self.num_rows} x {self.top}; got {tuple(inputs[0].columns.shape)}")

    def query(self, data: Any, chosen: TopRows) -> TopRows:
        """The exact entries, bounded."""
        return self._with(chosen, self._whole(data, chosen))

    def release(self, data: Any, scale: float, noise: NoiseSource, chosen: TopRows) -> TopRows:
        """The entries with noise."""
        sizes = self._whole(data, chosen)
        sizes = sizes + noise.integer_gaussian(sizes.shape, in_steps(scale, self.bound / STEPS)).numpy()
        return self._with(chosen, sizes)

    def _whole(self, data: Any, chosen: TopRows) -> np.ndarray:
        rows = self.pagerank(data, chosen.sources)
        count, width = rows.shape
        keys = np.repeat(np.arange(count) * width, np.diff(rows.indptr)) + rows.indices
        wanted = np.arange(count)[:, None] * width + chosen.columns.numpy()
        place = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
        values = np.where(keys[place] == wanted, rows.data[place], 0.0)
        return self.whole_sizes(np.minimum(values, self.bound))

    def _with(self, chosen: TopRows, sizes: np.ndarray) -> TopRows:
        weights = torch.from_numpy(sizes * (self.bound / STEPS)).to(torch.float32)
        return TopRows(chosen.sources, chosen.columns, weights)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few rows."""
        return [cls(6, 2, 0.01, 0.05)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """Two other nodes for each of the first ones."""
        sources, nodes = torch.arange(self.num_rows), graph.metadata.num_nodes
        columns = torch.stack([(sources + 1) % nodes, (sources + 2) % nodes], dim=1)
        return (TopRows(sources, columns, torch.full(columns.shape, 0.5)),)

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """All entries."""
        return self._whole(data, *inputs) * (self.bound / STEPS)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The same with noise."""
        return self.release(data, scale, noise, *inputs).weights.double().numpy()
