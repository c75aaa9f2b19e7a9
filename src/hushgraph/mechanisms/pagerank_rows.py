"""Rows of personalized PageRank with Gaussian noise, of which the largest entries are kept: DP-APPR's `gm`.

Proof: docs/proofs/dpappr.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
import torch
from scipy import special
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.pagerank import TopRows, largest_entries, pagerank
from hushgraph.mechanisms.canaries import SCALES, Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.view import View
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism, Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

STEPS = 1 << 16
"""Whole steps to the bound of a row, or of an entry."""
_NUMBERS_AT_ONCE = 1 << 23
_MOST_CANARIES, _CANARY_NUMBERS = 1_000, 1 << 29


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
    steps: ClassVar[int] = STEPS

    def __post_init__(self) -> None:
        whole = {"num_rows": self.num_rows, "top": self.top}
        InputError.collect(
            [f"{name}: expected a whole number of at least 1; got {n!r}" for name, n in whole.items() if not n >= 1]
            + ([] if 0 < self.bound < math.inf else [f"bound: expected a positive number; got {self.bound!r}"])
        )

    def check(self, *inputs: Any) -> None:
        """Distinct sources, as many as planned; they and all columns are `among` the nodes of the graph."""
        sources, among = inputs[0], inputs[1] if len(inputs) > 1 else None
        if sources.numel() != self.num_rows or torch.unique(sources).numel() != self.num_rows:
            raise InputError(f"sources: expected {self.num_rows} distinct nodes, as planned; got {sources.numel()}")
        if among is None:
            return
        if bool((among.diff() <= 0).any()) or not bool(torch.isin(sources, among).all()):
            raise InputError("among: expected distinct nodes in ascending order, all sources with them; got others")

    def pagerank(self, data: Any, sources: Tensor, among: Tensor | None = None) -> scipy.sparse.csr_array:
        """The rows as they are."""
        return pagerank(data.whole_lists, sources, among=among, alpha=self.alpha, rho=self.rho, way="push")

    def whole_sizes(self, values: np.ndarray) -> np.ndarray:
        """Values in [0, bound] as whole steps, rounded down."""
        return np.floor(values * (self.steps / self.bound)).astype(np.int64)

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
        """Every canary has releases of its own, of as many rows as planned in a graph of that many nodes."""
        return max(4, min(_MOST_CANARIES, _CANARY_NUMBERS // (self.num_rows + 1) ** 2))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """A hub that all sources lead to, or an edge of theirs: how likely what was released is with and without it.

        Removing the hub moves all rows at once, so each canary has a vault of its own; the likelihoods are exact.
        """
        if not unit.has_edges:
            return None
        worlds = [hub_graph(unit, self.num_rows, planted) for planted in (False, True)]
        inputs = self.canary_inputs()
        exact = [self.before_noise(_view(graph, self), None, *inputs) for graph in worlds]
        scale, ratios = stage.scale or 1.0, np.zeros((len(SCALES), len(coins)))
        for number, coin in enumerate(coins):
            vault = open_vault(worlds[int(coin)])
            for _ in range(stage.count):
                seen = vault.release(stage.name, *inputs)
                for at, less in enumerate(SCALES):
                    absent, planted = (self.log_likelihood(seen, one, less * scale) for one in exact)
                    ratios[at, number] += planted - absent
        return Evidence(ratios, "hub" if unit.footprint.records else "edge")

    def canary_inputs(self) -> tuple[Any, ...]:
        """Every node but the hub, which is the last one, is a source."""
        return (torch.arange(self.num_rows),)

    @abstractmethod
    def log_likelihood(self, seen: TopRows, exact: np.ndarray, scale: float) -> float:
        """How likely it is that `seen` is released where `before_noise` is `exact`, up to what is the same for all."""


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

    def query(self, data: Any, sources: Tensor, among: Tensor | None = None) -> TopRows:
        """The largest entries of the exact rows, bounded."""
        return self._top(self._dense_blocks(self._clipped(data, sources, among), None, None), sources, among)

    def release(
        self, data: Any, scale: float, noise: NoiseSource, sources: Tensor, among: Tensor | None = None
    ) -> TopRows:
        """The largest entries of the noisy rows."""
        return self._top(self._dense_blocks(self._clipped(data, sources, among), scale, noise), sources, among)

    def _clipped(self, data: Any, sources: Tensor, among: Tensor | None = None) -> scipy.sparse.csr_array:
        """The rows in whole steps, each of norm at most `STEPS`, which is checked on the numbers themselves."""
        rows = self.pagerank(data, sources, among)
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

    def _top(self, blocks: Iterator[np.ndarray], sources: Tensor, among: Tensor | None) -> TopRows:
        found = [largest_entries(block, min(self.top, block.shape[1])) for block in blocks]
        columns, sizes = (np.concatenate(part) for part in zip(*found, strict=True))
        weights = torch.from_numpy(sizes * (self.bound / STEPS)).to(torch.float32)
        return TopRows.of(sources, columns, weights, among)

    def log_likelihood(self, seen: TopRows, exact: np.ndarray, scale: float) -> float:
        """The entries that are shown have their density; all others lie below the least of them."""
        shown = seen.weights.double().numpy()
        normal = (shown - np.take_along_axis(exact, seen.columns.numpy(), axis=1)) / scale
        below = special.log_ndtr((shown[:, -1:] - exact) / scale)
        hidden = below.sum() - np.take_along_axis(below, seen.columns.numpy(), axis=1).sum()
        return float(hidden - 0.5 * (normal**2).sum())

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


def hub_graph(unit: Unit, leaves: int, planted: bool) -> CheckedGraph:
    """Leaves and a hub, the last node. What is planted is the hub with its edges, or one edge of the hub.

    A hub that owns its list sends to its leaves and nobody names it; other edges go both ways.
    """
    f, hub = unit.footprint, leaves
    reached = torch.arange(int(min(leaves, unit.promised_degree)))
    out = torch.stack([torch.full_like(reached, hub), reached])
    if f.records == 0:
        out = out if planted else out[:, 1:]
    elif not planted:
        out = out[:, :0]
    one_way = f.other_entries == 0
    return audit_graph(torch.zeros(leaves + 1, 1), out if one_way else torch.cat([out, out.flip(0)], dim=1))


def _view(graph: CheckedGraph, mechanism: Mechanism) -> View:
    """What a mechanism sees of a graph that was made for an audit."""
    return View(graph, mechanism.reads, None, NoiseSource.from_os(), "canary")
