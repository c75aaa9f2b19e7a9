"""Approximate personalized PageRank of many sources: sparse rows, exact up to a residual of `rho` per unit of degree.

The row of a source v solves p = alpha e_v + (1 - alpha) W p for the lazy walk W = (I + A D^-1) / 2, up to the stop
rule. Three ways to it:

* "ista" (Fountoulakis et al. 2019): shrinkage steps on the regularized problem whose solution has exactly the residual
  rho d on its support; a node's step is in proportion to its degree. Stops at a gradient of (1 + gamma) rho alpha.
* "ista-unit": the same with steps of one for every node: the same solution, many more steps where degrees are high.
* "push" (Andersen, Chung, Lang 2006): the fastest; stops when every residual is below rho d.

Directed edges count in both directions. A node without neighbors keeps its mass.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import Edges, MemoryEdges

Way = Literal["ista", "ista-unit", "push"]
WAYS: tuple[str, ...] = get_args(Way)
_LEAST_PER_THREAD = 64


def pagerank(
    edges: Edges,
    sources: Tensor,
    *,
    among: Tensor | None = None,
    alpha: float = 0.25,
    rho: float = 1e-4,
    gamma: float = 1e-4,
    way: Way = "ista",
) -> scipy.sparse.csr_array:
    """The rows of `sources`, `[sources, nodes]`, float64 with sorted columns.

    With `among` (ascending), in the graph of those nodes alone: column j is node `among[j]`.
    """
    InputError.collect(_problems(edges, sources, alpha, rho, gamma, way))
    lists = neighbor_lists(edges if among is None else edges.load().induced(among))
    if among is not None:
        sources = torch.searchsorted(among, sources)
    parts = np.array_split(sources.numpy().astype(np.int64), _threads(sources.numel()))
    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(lambda part: _rows(lists, part, alpha, rho, gamma, way), parts))
    return scipy.sparse.csr_array(scipy.sparse.vstack(found, format="csr"))


def neighbor_lists(edges: Edges) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and neighbors, each edge in both directions once. What lies on the disk in both stays there."""
    if isinstance(edges, DiskEdges) and edges.is_symmetric():
        edges.require_symmetric()
        return edges.mapped()
    held = edges.load()
    if not held.is_symmetric():
        index = held.edge_index()
        held = MemoryEdges.from_edge_index(torch.cat([index, index.flip(0)], dim=1), held.num_nodes).coalesce()
    return held.offsets.numpy(), held.sources.numpy()


def _rows(
    lists: tuple[np.ndarray, np.ndarray], sources: np.ndarray, alpha: float, rho: float, gamma: float, way: Way
) -> scipy.sparse.csr_array:
    from hushgraph.graph import pagerank_kernels as kernels  # numba takes a second to load

    offsets, neighbors = lists
    if way == "push":
        ends, columns, values = kernels.push_rows(offsets, neighbors, sources, alpha, rho)
    else:
        ends, columns, values = kernels.ista_rows(offsets, neighbors, sources, alpha, rho, gamma, way == "ista")
    rows = scipy.sparse.csr_array((values, columns, ends), shape=(len(sources), len(offsets) - 1))
    rows.sort_indices()
    return rows


def _threads(count: int) -> int:
    return max(1, min(torch.get_num_threads(), count // _LEAST_PER_THREAD))


def _problems(edges: Edges, sources: Tensor, alpha: float, rho: float, gamma: float, way: str) -> list[str]:
    problems = [
        f"{name}: expected above 0 and below 1; got {value!r}"
        for name, value in (("alpha", alpha), ("rho", rho), ("gamma", gamma))
        if not 0.0 < value < 1.0
    ]
    if way not in WAYS:
        problems.append(f"way: expected one of {', '.join(WAYS)}; got {way!r}")
    if sources.numel() and not 0 <= int(sources.min()) <= int(sources.max()) < edges.num_nodes:
        problems.append(f"sources: expected node numbers from 0 to {edges.num_nodes - 1}; got others")
    return problems


@dataclass(frozen=True)
class TopRows:
    """The `K` entries kept of each source's row: `columns` and `weights`, both `[sources, K]`, the heaviest first."""

    sources: Tensor
    columns: Tensor
    weights: Tensor

    @classmethod
    def of(cls, sources: Tensor, columns: np.ndarray, weights: Tensor, among: Tensor | None = None) -> TopRows:
        """With columns that count the nodes `among` the graph's (None: all of them)."""
        named = torch.from_numpy(np.ascontiguousarray(columns))
        return cls(sources, named if among is None else among[named], weights)

    def with_support(self, most: int) -> TopRows:
        """At most `most` rows of other sources keep an entry for any one node, the heaviest ones; others become zero.

        An entry without weight names the source itself, so that nobody else is read for it.
        """
        column, weight = self.columns.flatten(), self.weights.flatten()
        row = self.sources.repeat_interleave(self.columns.shape[1])
        others = torch.nonzero((column != row) & (weight > 0)).squeeze(1)
        order = others[np.lexsort((others.numpy(), -weight[others].numpy(), column[others].numpy()))]
        place = torch.arange(order.numel())
        first = torch.searchsorted(column[order].contiguous(), column[order].contiguous())
        gone = torch.ones_like(column, dtype=torch.bool)
        gone[order[place - first < most]] = False
        gone[(column == row) & (weight > 0)] = False
        shape = self.columns.shape
        kept = torch.where(gone, 0.0, weight).view(shape)
        return TopRows(self.sources, torch.where(gone, row, column).view(shape), kept)

    def with_own(self, nodes: Tensor) -> TopRows:
        """With a row of itself alone for each of the `nodes` that has none."""
        more = nodes[~torch.isin(nodes, self.sources)]
        own = more.unsqueeze(1).expand(-1, self.columns.shape[1])
        parts = (self.sources, more), (self.columns, own), (self.weights, torch.zeros(own.shape))
        return TopRows(*(torch.cat(part) for part in parts))

    def support(self) -> int:
        """How many rows of other sources the most popular node has an entry in."""
        row = self.sources.unsqueeze(1).expand_as(self.columns)
        others = self.columns != row
        named = torch.unique(torch.stack([row[others], self.columns[others]]), dim=1)
        return int(torch.bincount(named[1]).max()) if named.numel() else 0

    def mixed(self, own: float) -> TopRows:
        """Rows of total 1: `own` for the source itself, the rest in proportion to the weights; a row of none is own."""
        weights = self.weights.clamp(min=0.0).double()
        total = weights.sum(1, keepdim=True)
        shares = torch.where(total > 0, (1.0 - own) * weights / total.clamp(min=1e-300), 0.0)
        rest = 1.0 - shares.sum(1, keepdim=True)
        columns = torch.cat([self.sources.unsqueeze(1), self.columns], dim=1)
        return TopRows(self.sources, columns, torch.cat([rest, shares], dim=1).to(torch.float32))


def largest_entries(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the `count` largest entries of each row, the largest first."""
    found = np.argpartition(rows, rows.shape[1] - count, axis=1)[:, rows.shape[1] - count :]
    values = np.take_along_axis(rows, found, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)
