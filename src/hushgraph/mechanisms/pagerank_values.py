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
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_rows import PageRankMechanism
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class ChosenEntries(PageRankMechanism):
    """What the mechanisms on values share: the entries named by a released choice, as whole steps of their range."""

    bound: float = 0.001

    released = "entries of personalized PageRank"

    def check(self, *inputs: Any) -> None:
        """As many rows and entries as planned, all of them among the nodes of the graph."""
        chosen, among = inputs[0], inputs[1] if len(inputs) > 1 else None
        super().check(chosen.sources, among)
        if chosen.columns.shape != (self.num_rows, self.top):
            raise InputError(f"entries: expected {self.num_rows} x {self.top}; got {tuple(chosen.columns.shape)}")
        if among is not None and not bool(torch.isin(chosen.columns, among).all()):
            raise InputError("entries: expected nodes among those of the graph; got others")

    def query(self, data: Any, chosen: TopRows, among: Tensor | None = None) -> TopRows:
        """The exact entries, bounded."""
        return self.with_sizes(chosen, self.sizes(data, chosen, among))

    def sizes(self, data: Any, chosen: TopRows, among: Tensor | None = None) -> np.ndarray:
        """The entries in whole steps, from none to `steps`."""
        rows = self.pagerank(data, chosen.sources, among)
        columns = chosen.columns if among is None else torch.searchsorted(among, chosen.columns)
        count, width = rows.shape
        keys = np.repeat(np.arange(count) * width, np.diff(rows.indptr)) + rows.indices
        wanted = np.arange(count)[:, None] * width + columns.numpy()
        place = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
        values = np.where(keys[place] == wanted, rows.data[place], 0.0)
        return self.whole_sizes(np.minimum(values, self.bound)).clip(0, self.steps)

    def with_sizes(self, chosen: TopRows, sizes: np.ndarray) -> TopRows:
        """The choice with weights of so many steps."""
        weights = torch.from_numpy(sizes * (self.bound / self.steps)).to(torch.float32)
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

    def canary_inputs(self) -> tuple[Any, ...]:
        """For every source the hub first: with it all entries go from nothing to their bound, where they reach it."""
        sources = torch.arange(self.num_rows)
        columns = (self.num_rows - torch.arange(self.top)).clamp(min=0).expand(self.num_rows, self.top)
        return (TopRows(sources, columns, torch.full(columns.shape, 1.0 / self.top)),)


@dataclass(frozen=True)
class PageRankValues(ChosenEntries, GaussianMechanism):
    """The entries named by a released choice, cut to [0, bound] and to a grid, with Gaussian noise.

    Bound (L2): sqrt(M K) times `bound`: every one of M K entries may move by the whole range.
    """

    name = "pagerank-values"

    def sensitivity(self, unit: Unit) -> float:
        """All entries may move by the whole range."""
        return self.bound * math.sqrt(self.num_rows * self.top) if unit.footprint.records <= 1 else math.inf

    def release(
        self, data: Any, scale: float, noise: NoiseSource, chosen: TopRows, among: Tensor | None = None
    ) -> TopRows:
        """The entries with noise."""
        sizes = self.sizes(data, chosen, among)
        return self.with_sizes(
            chosen, sizes + noise.integer_gaussian(sizes.shape, in_steps(scale, self.bound / self.steps)).numpy()
        )

    def log_likelihood(self, seen: TopRows, exact: np.ndarray, scale: float) -> float:
        """Gaussian."""
        return float(-0.5 * (((seen.weights.double().numpy() - exact) / scale) ** 2).sum())

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """All entries."""
        return self.sizes(data, *inputs) * (self.bound / self.steps)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The same with noise."""
        return self.release(data, scale, noise, *inputs).weights.double().numpy()
