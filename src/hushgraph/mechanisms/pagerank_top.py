"""The nodes that matter most to each source, chosen by the exponential mechanism: DP-APPR's `em`.

Scores are PageRank entries cut to [0, bound] and rounded down to levels; a level has a whole number as its weight, and
nodes are drawn one after the other with probabilities in exact proportion to these weights. That is the law of the top
entries after Gumbel noise of scale `bound * scale`, without its rounding. Proof: docs/proofs/dpappr.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.pagerank import TopRows, largest_entries
from hushgraph.mechanisms.pagerank_rows import PageRankMechanism
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.units import Unit

LEVELS = 1 << 10
_LARGEST_WEIGHT, _MOST_NODES, _WORD = 1 << 30, 1 << 22, 1 << 53


@dataclass(frozen=True)
class PageRankTop(PageRankMechanism):
    """`top` distinct nodes for each source, all of equal weight. Noise of `scale` s: one pick has epsilon 1/s a score.

    Bound: sqrt(M K), the norm of K picks for each of M rows, in which every score may move by the whole range.
    """

    bound: float = 0.001

    name = "pagerank-top"
    law = "exponential"
    released = "the nodes of the largest PageRank"

    def sensitivity(self, unit: Unit) -> float:
        """Every pick of every row."""
        return math.sqrt(self.num_rows * self.top) if unit.footprint.records <= 1 else math.inf

    def event(self, unit: Unit, scale: float) -> Event:
        """M K picks, each of bounded range 2 / scale."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        return events.bounded_range(2.0 / scale, self.num_rows * self.top)

    def weights(self, scale: float) -> np.ndarray:
        """The weight of every level; the largest is at most e^(1/scale) times the smallest, in exact numbers."""
        least = min(_LARGEST_WEIGHT, math.ceil(_LARGEST_WEIGHT * math.exp(-1.0 / scale) * (1.0 + 1e-12)))
        sizes = _LARGEST_WEIGHT * np.exp((np.arange(LEVELS + 1) / LEVELS - 1.0) / scale)
        return np.clip(np.rint(sizes).astype(np.int64), least, _LARGEST_WEIGHT)

    def scores(self, data: Any, sources: Tensor, among: Tensor | None = None) -> scipy.sparse.csr_array:
        """The levels of all entries."""
        rows = self.pagerank(data, sources, among)
        rows.data = np.floor(np.minimum(rows.data, self.bound) * (LEVELS / self.bound)).astype(np.int64)
        rows.data = np.clip(rows.data, 0, LEVELS)
        return rows

    def query(self, data: Any, sources: Tensor, among: Tensor | None = None) -> TopRows:
        """The nodes with the largest entries."""
        rows, found = self.pagerank(data, sources, among), []
        for start in range(0, rows.shape[0], 256):
            found.append(largest_entries(rows[start : start + 256].toarray(), min(self.top, rows.shape[1]))[0])
        return self._equal(np.concatenate(found), sources, among)

    def release(
        self, data: Any, scale: float, noise: NoiseSource, sources: Tensor, among: Tensor | None = None
    ) -> TopRows:
        """Drawn without replacement, the heavier the likelier."""
        weights, rows = self.weights(scale), self.scores(data, sources, among)
        if not self.top <= rows.shape[1] <= _MOST_NODES:
            raise InputError(f"nodes: expected from {self.top} to 2^22; got {rows.shape[1]}")
        rows.data = weights[rows.data] - weights[0]
        return self._equal(successive_draws(rows, int(weights[0]), self.top, noise), sources, among)

    def _equal(self, columns: np.ndarray, sources: Tensor, among: Tensor | None) -> TopRows:
        return TopRows.of(sources, columns, torch.full(columns.shape, 1.0 / self.top), among)

    def log_likelihood(self, seen: TopRows, exact: np.ndarray, scale: float) -> float:
        """The product of the picks' probabilities: each node's weight over those of all that were not picked yet."""
        weights = self.weights(scale)[np.rint(exact * LEVELS).astype(np.int64)].astype(np.float64)
        picked = np.take_along_axis(weights, seen.columns.numpy(), axis=1)
        left = weights.sum(axis=1, keepdims=True) - np.cumsum(picked, axis=1) + picked
        return float(np.log(picked / left).sum())

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few rows."""
        return [cls(6, 2, 0.01, 0.05)]

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The scores, in multiples of their range."""
        return self.scores(data, *inputs).toarray() / LEVELS


def successive_draws(more: scipy.sparse.csr_array, base: int, count: int, noise: NoiseSource) -> np.ndarray:
    """`count` distinct columns for every row, each drawn in proportion to `base` + its entry of `more`, exactly."""
    rows, columns = more.shape
    keys = np.repeat(np.arange(rows) * columns, np.diff(more.indptr)) + more.indices
    weights, chosen = more.data.copy(), np.full((rows, count), -1, dtype=np.int64)
    for pick in range(count):
        ends = np.concatenate(([0], np.cumsum(weights)))
        first = ends[more.indptr[:-1]]
        room = ends[more.indptr[1:]] - first
        waiting = np.arange(rows)
        while len(waiting):
            drawn = _below(room[waiting] + columns * base, noise)
            inside = drawn < room[waiting]
            found = np.where(inside, 0, (drawn - room[waiting]) // base)
            place = np.searchsorted(ends, (first[waiting] + drawn)[inside], side="right") - 1
            found[inside] = more.indices[place]
            fresh = (chosen[waiting] != found[:, None]).all(axis=1)
            chosen[waiting[fresh], pick] = found[fresh]
            waiting = waiting[~fresh]
        taken = np.arange(rows) * columns + chosen[:, pick]
        weights[np.isin(keys, taken)] = 0
    return chosen


def _below(bounds: np.ndarray, noise: NoiseSource) -> np.ndarray:
    """A whole number below each bound, all equally likely: 53 fair bits, drawn again beyond the last multiple."""
    words = noise.integers(len(bounds), _WORD).numpy().copy()
    top = _WORD - _WORD % bounds
    while (beyond := words >= top).any():
        words[beyond] = noise.integers(int(beyond.sum()), _WORD).numpy()
    return words % bounds
