"""Rows of personalized PageRank with Gaussian noise, of which the largest entries are kept: DP-APPR's `gm`.

Proof: docs/proofs/dpappr.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hushgraph.data.checks import CheckedGraph
from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.pagerank import TopRows, largest_entries, pagerank
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism, Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

STEPS = 1 << 16
"""Whole steps to the bound of a row, or of an entry."""
_NUMBERS_AT_ONCE = 1 << 23
_MOST_CANARIES = 2_000


@dataclass(frozen=True)
class PageRankMechanism(Mechanism):
    """What the mechanisms on PageRank rows share: `num_rows` sources, of which `top` entries each are released.

    A source's row depends on the whole graph, so one unit may change all rows completely: bounds hold for any change.
    They are claimed for units that change at most one record.
    """

    num_rows: int = 1
    top: int = 4
    bound: float = 0.01
    alpha: float = 0.25
    rho: float = 1e-4

    proof = "dpappr"
    reads = frozenset({"edges"})

    def __post_init__(self) -> None:
        whole = {"num_rows": self.num_rows, "top": self.top}
        InputError.collect(
            [f"{name}: expected a whole number of at least 1; got {n!r}" for name, n in whole.items() if not n >= 1]
            + ([] if 0 < self.bound < math.inf else [f"bound: expected a positive number; got {self.bound!r}"])
        )

    def check(self, *inputs: Any) -> None:
        """Distinct sources, as many as planned."""
        sources = inputs[0]
        if sources.numel() != self.num_rows or torch.unique(sources).numel() != self.num_rows:
            raise InputError(f"sources: expected {self.num_rows} distinct nodes, as planned; got {sources.numel()}")

    def pagerank(self, data: Any, sources: Tensor) -> scipy.sparse.csr_array:
        """The rows as they are."""
        return pagerank(data.whole_lists, sources, alpha=self.alpha, rho=self.rho, way="push")

    def whole_sizes(self, values: np.ndarray) -> np.ndarray:
        """Values in [0, bound] as whole steps, rounded down."""
        return np.floor(values * (STEPS / self.bound)).astype(np.int64)

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """The first nodes."""
        return (torch.arange(self.num_rows),)

    def to_tensors(self, value: TopRows) -> dict[str, Any]:
        """Sources, columns, weights."""
        return {"sources": value.sources, "columns": value.columns, "weights": value.weights}

    def from_tensors(self, tensors: dict[str, Any]) -> TopRows:
        """The inverse of `to_tensors`."""
        return TopRows(**tensors)

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """One node of the graph, told apart in many runs, is all there is: its removal moves all rows at once."""
        return min(self.num_rows, _MOST_CANARIES)


@dataclass(frozen=True)
class PageRankRows(PageRankMechanism, GaussianMechanism):
    """Rows of norm at most `bound`, on a grid, with Gaussian noise on every entry; the `top` largest are released.

    Bound (L2): sqrt(2 M) times `bound`. Entries are not negative, so two rows are at most sqrt(2) `bound` apart.
    """

    name = "pagerank-rows"
    released = "rows of personalized PageRank"

    def sensitivity(self, unit: Unit) -> float:
        """All rows may change, each to one at a right angle."""
        return self.bound * math.sqrt(2.0 * self.num_rows) if unit.footprint.records <= 1 else math.inf

    def query(self, data: Any, sources: Tensor) -> TopRows:
        """The largest entries of the exact rows, bounded."""
        return self._top(self._dense_blocks(self._clipped(data, sources), None, None), sources)

    def release(self, data: Any, scale: float, noise: NoiseSource, sources: Tensor) -> TopRows:
        """The largest entries of the noisy rows."""
        return self._top(self._dense_blocks(self._clipped(data, sources), scale, noise), sources)

    def _clipped(self, data: Any, sources: Tensor) -> scipy.sparse.csr_array:
        """The rows in whole steps, each of norm at most `STEPS`, which is checked on the numbers themselves."""
        rows = self.pagerank(data, sources)
        norms = np.sqrt(rows.power(2).sum(axis=1))
        factors = self.bound / np.maximum(norms * (1.0 + 1e-9), self.bound)
        rows.data = self.whole_sizes(rows.data * np.repeat(factors, np.diff(rows.indptr)))
        if rows.nnz and int(rows.power(2).sum(axis=1).max()) > STEPS**2:
            raise HushgraphError(f"expected rows of norm at most {self.bound}; got a longer one; nothing was released")
        return rows

    def _dense_blocks(
        self, rows: scipy.sparse.csr_array, scale: float | None, noise: NoiseSource | None
    ) -> Iterator[np.ndarray]:
        """The rows with their zeros and with noise, in whole steps, a block at a time."""
        at_once = max(1, _NUMBERS_AT_ONCE // rows.shape[1])
        for start in range(0, rows.shape[0], at_once):
            block = rows[start : start + at_once].toarray()
            if noise is not None and scale is not None:
                block = block + noise.integer_gaussian(block.shape, in_steps(scale, self.bound / STEPS)).numpy()
            yield block

    def _top(self, blocks: Iterator[np.ndarray], sources: Tensor) -> TopRows:
        found = [largest_entries(block, min(self.top, block.shape[1])) for block in blocks]
        columns, sizes = (np.concatenate(part) for part in zip(*found, strict=True))
        weights = torch.from_numpy(sizes * (self.bound / STEPS)).to(torch.float32)
        return TopRows(sources, torch.from_numpy(columns), weights)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few rows."""
        return [cls(6, 2, 0.5, 0.05)]

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """All entries of all rows."""
        return np.concatenate(list(self._dense_blocks(self._clipped(data, *inputs), None, None))) * (self.bound / STEPS)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The same with noise."""
        return np.concatenate(list(self._dense_blocks(self._clipped(data, *inputs), scale, noise))) * (
            self.bound / STEPS
        )
