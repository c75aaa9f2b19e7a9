"""Rooted subgraphs: for every root, the nodes that reach it along owned lists in at most r steps.

The graph given here is the capped one: every node's own list has at most K entries. A node then occurs in at most
N(K, r) = 1 + K + ... + K^r subgraphs, and all of them together hold at most num_nodes * N(K, r) rows, so they are built
once and kept. How many nodes a single subgraph holds is not bounded (many may send to one root): rows are stored one
root after the other without padding. Proof of the bound: docs/proofs/dpgnn.md.

Within a root, rows are ordered by their distance from it. Layer l of an r-layer network computes the rows at distance
at most r - l, which are always the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges


@dataclass(frozen=True)
class Messages:
    """The edges of one layer: input rows send to output rows. Edges are sorted by the output row.

    `own` is the place of every output row among the input rows; `sources` the input row of every edge; the edges of
    output row i are `offsets[i]` to `offsets[i + 1]`.
    """

    num_inputs: int
    own: Tensor
    offsets: Tensor
    sources: Tensor

    @cached_property
    def counts(self) -> Tensor:
        """How many messages every output row receives, int64."""
        return self.offsets.diff()

    @cached_property
    def targets(self) -> Tensor:
        """The output row of every edge."""
        return torch.repeat_interleave(torch.arange(self.own.numel()), self.counts, output_size=self.sources.numel())

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor]:
        """The edges sorted by input row: their numbers, and where each input row's run begins."""
        ordered, edges = torch.sort(self.sources, stable=True)
        return edges, torch.searchsorted(ordered, torch.arange(self.num_inputs + 1))


@dataclass(frozen=True)
class RootedBatch:
    """Some rooted subgraphs side by side. `nodes` are the rows of level 0; level r has one row per root.

    `row_offsets[l]` says where each root's rows begin on level l; `layers[l]` leads from level l to level l + 1.
    """

    nodes: Tensor
    row_offsets: tuple[Tensor, ...]
    layers: tuple[Messages, ...]

    @property
    def num_roots(self) -> int:
        """How many roots there are."""
        return self.row_offsets[0].numel() - 1


class RootedSubgraphs:
    """The subgraphs of `roots` in the capped graph `edges`, for networks of `num_layers` layers."""

    def __init__(self, edges: MemoryEdges, roots: Tensor, num_layers: int) -> None:
        if num_layers < 1:
            raise InputError(f"expected at least one layer; got {num_layers}; a network without layers needs no graph")
        self.num_layers, self.num_roots = num_layers, roots.numel()
        root, node, distance = _reach_back(edges, roots.numpy().astype(np.int64), num_layers)
        order = np.lexsort((node, distance, root))
        root, node, distance = root[order], node[order], distance[order]
        self.nodes = torch.from_numpy(node)
        self.row_starts = _starts(root, self.num_roots)
        self.rows_within = _counts_up_to(root, distance, self.num_roots, num_layers)
        self._add_edges(edges, root, node, distance)

    def _add_edges(self, edges: MemoryEdges, root: np.ndarray, node: np.ndarray, distance: np.ndarray) -> None:
        """For every row below the last distance: where its in-neighbors stand within the same root."""
        receives = np.flatnonzero(distance < self.num_layers)
        entry, sender = _in_neighbors(edges, node[receives])
        target = receives[entry]
        keys = root * edges.num_nodes + node
        by_key = np.argsort(keys, kind="stable")
        source = by_key[np.searchsorted(keys[by_key], root[target] * edges.num_nodes + sender)]
        starts = self.row_starts.numpy()
        self.edge_sources = torch.from_numpy(source - starts[root[source]])
        self.edge_starts = _starts(root[target], self.num_roots)
        self.edges_within = _counts_up_to(root[target], distance[target], self.num_roots, self.num_layers)
        self.in_counts = torch.from_numpy(np.bincount(target, minlength=len(node)))

    @property
    def num_rows(self) -> Tensor:
        """How many rows each root has, int64."""
        return self.rows_within[self.num_layers]

    def nodes_of(self, positions: Tensor) -> Tensor:
        """The nodes in the subgraphs of the roots at these positions, one root after the other."""
        return self.nodes[ragged(self.row_starts[positions], self.num_rows[positions])]

    def batch(self, positions: Tensor) -> RootedBatch:
        """The subgraphs of the roots at these positions (among the roots given), in this order."""
        starts = self.row_starts[positions]
        counts = [self.rows_within[self.num_layers - level][positions] for level in range(self.num_layers + 1)]
        offsets = [_offsets(count) for count in counts]
        layers = tuple(self._layer(positions, starts, level, counts, offsets) for level in range(self.num_layers))
        return RootedBatch(self.nodes[ragged(starts, counts[0])], tuple(offsets), layers)

    def _layer(
        self, positions: Tensor, starts: Tensor, level: int, counts: list[Tensor], offsets: list[Tensor]
    ) -> Messages:
        own = ragged(offsets[level][:-1], counts[level + 1])
        edge_counts = self.edges_within[self.num_layers - level - 1][positions]
        local = self.edge_sources[ragged(self.edge_starts[positions], edge_counts)]
        sources = local + torch.repeat_interleave(offsets[level][:-1], edge_counts)
        received = self.in_counts[ragged(starts, counts[level + 1])]
        return Messages(int(offsets[level][-1]), own, _offsets(received), sources)


def whole_graph(edges: MemoryEdges, num_layers: int) -> RootedBatch:
    """The same computation with every node as a root at once and all rows shared: for inference and plain training."""
    nodes = torch.arange(edges.num_nodes)
    messages = Messages(edges.num_nodes, nodes, edges.offsets.to(torch.int64), edges.sources.to(torch.int64))
    offsets = torch.arange(edges.num_nodes + 1)
    return RootedBatch(nodes, (offsets,) * (num_layers + 1), (messages,) * num_layers)


def ragged(starts: Tensor, counts: Tensor) -> Tensor:
    """starts[0], starts[0]+1, ... (counts[0] of them), starts[1], ...: the positions of runs in one tensor."""
    offsets = _offsets(counts)
    total = int(offsets[-1])
    shift = torch.repeat_interleave(starts - offsets[:-1], counts, output_size=total)
    return shift.add_(torch.arange(total))


def _offsets(counts: Tensor) -> Tensor:
    offsets = counts.new_zeros(counts.numel() + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets


def _reach_back(edges: MemoryEdges, roots: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(root, node, distance) of all nodes that reach a root in at most `steps` steps."""
    size = edges.num_nodes
    known = np.arange(len(roots)) * size + roots
    frontier, found, distances = known, [known], [np.zeros(len(roots), dtype=np.int64)]
    for step in range(1, steps + 1):
        entry, sender = _in_neighbors(edges, frontier % size)
        reached = np.unique((frontier // size)[entry] * size + sender)
        frontier = reached[~_contains(known, reached)]
        known = np.sort(np.concatenate((known, frontier)))
        found.append(frontier)
        distances.append(np.full(len(frontier), step))
    keys = np.concatenate(found)
    return keys // size, keys % size, np.concatenate(distances)


def _in_neighbors(edges: MemoryEdges, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All messages to `nodes`: the position of the receiver in `nodes`, and the sender."""
    offsets = edges.offsets.numpy().astype(np.int64)
    counts = offsets[nodes + 1] - offsets[nodes]
    entry = np.repeat(np.arange(len(nodes)), counts)
    place = ragged(torch.from_numpy(offsets[nodes]), torch.from_numpy(counts)).numpy()
    return entry, edges.sources.numpy()[place].astype(np.int64)


def _contains(ordered: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return ordered[place] == wanted


def _starts(root: np.ndarray, num_roots: int) -> Tensor:
    return torch.from_numpy(np.searchsorted(root, np.arange(num_roots)))


def _counts_up_to(root: np.ndarray, distance: np.ndarray, num_roots: int, most: int) -> Tensor:
    """`[most + 1, roots]`: how many entries each root has at a distance of at most 0, 1, ..., most."""
    table = np.bincount(distance * num_roots + root, minlength=(most + 1) * num_roots).reshape(most + 1, num_roots)
    return torch.from_numpy(np.cumsum(table, axis=0))
