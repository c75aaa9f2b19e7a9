"""The graph in the order aggregation reads it: for every node, the nodes that send to it.

An edge `source -> target` carries the row of `source` to `target`. `MemoryEdges` lists, for target 0, 1, 2, ..., the
sources that send to it, in one flat array (compressed sparse rows by destination); `hushgraph.graph.disk.DiskEdges`
keeps the same arrays in files. The number of nodes is fixed and public: isolated nodes keep their (empty) place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hushgraph.graph.degree import capped
from hushgraph.graph.disk_reading import are_distinct_others
from hushgraph.graph.packed import INT32_LIMIT, checked_edges, offsets_of, pack, unpack_minor
from hushgraph.graph.sums import (
    Quantized,
    Run,
    check_quantized,
    counted_by_source,
    kernels_for,
    sum_runs,
    summed_by_source,
    target_runs,
)
from hushgraph.noise.source import NoiseSource

_BLOCK_EDGES, _BLOCK_TARGETS = 1 << 26, 1 << 15  # summed at a time: the results stay in the cache


class Edges(Protocol):
    """The directed edges of a graph, in memory or on disk: same numbers, bit for bit, from either."""

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones included."""
        ...

    @property
    def num_edges(self) -> int:
        """How many directed edges are stored."""
        ...

    def in_degree(self) -> Tensor:
        """How many edges end at each node, int64."""
        ...

    def out_degree(self) -> Tensor:
        """How many edges start at each node, int64."""
        ...

    def out_sums(self, values: Tensor) -> Tensor:
        """For every node, the exact sum of the whole numbers below 2^20 that the nodes it sends to have, int64."""
        ...

    def is_symmetric(self) -> bool:
        """True when every edge has its reverse (as often as the edge itself)."""
        ...

    def sum(self, rows: Quantized, *, narrow: bool = False) -> Tensor:
        """For every node, the exact sum of the rows of the nodes that send to it: int64 `[nodes, columns]`.

        With `narrow`, int32 if no list is so long that a sum could need more.
        """
        ...

    def cap(self, max_degree: int, noise: NoiseSource) -> Edges:
        """The edges left when every sender keeps at most `max_degree` distinct targets: see `degree.capped`."""
        ...

    def edge_index(self) -> Tensor:
        """All edges as a `[2, E]` int64 tensor, sorted by target and then by source."""
        ...

    def edge_blocks(self) -> Iterator[Tensor]:
        """The same, a part at a time."""
        ...

    def pairs_by_source(self) -> Iterator[np.ndarray]:
        """All edges as sorted numbers `source << 32 | target`, a part at a time, those that are equal in one part."""
        ...

    def load(self) -> MemoryEdges:
        """The edges in memory."""
        ...

    def ending_at(self, receivers: Tensor) -> Edges:
        """The edges that end at a node of the boolean mask `receivers`."""
        ...


@dataclass(frozen=True, eq=False)
class MemoryEdges:
    """Sources of every target: those of target `t` are `sources[offsets[t] : offsets[t + 1]]`, in increasing order.

    Attributes:
        offsets: `num_nodes + 1` positions; int32, or int64 from 2^31 edges on.
        sources: one int32 node number per edge.

    The tensors are shared, not copied: treat them as read-only.
    """

    offsets: Tensor
    sources: Tensor

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> MemoryEdges:
        """Sort the `[2, E]` edges (row 0 sources, row 1 targets) by target, then by source."""
        return MemoryEdges.from_pairs(*checked_edges(edge_index, num_nodes), num_nodes)

    @classmethod
    def from_pairs(cls, source: np.ndarray, target: np.ndarray, num_nodes: int) -> MemoryEdges:
        """From the two ends of every edge: node numbers below `num_nodes`."""
        kernels = kernels_for(len(source))
        if kernels is None:
            return cls.from_packed(pack(target, source), num_nodes)
        offsets = np.empty(num_nodes + 1, dtype=np.int64 if len(source) >= INT32_LIMIT else np.int32)
        sources = np.empty(len(source), dtype=np.int32)
        kernels.by_target(np.ascontiguousarray(source), np.ascontiguousarray(target), offsets, sources, num_nodes)
        return cls(torch.from_numpy(offsets), torch.from_numpy(sources))

    @classmethod
    def from_packed(cls, packed: np.ndarray, num_nodes: int) -> MemoryEdges:
        """From pairs `target << 32 | source` (see `packed.pack`), which are sorted in place."""
        # Sorting packed 64-bit numbers in place is faster than two counting sorts and needs no second copy.
        packed.sort()
        return cls(torch.from_numpy(offsets_of(packed, num_nodes)), torch.from_numpy(unpack_minor(packed)))

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones included."""
        return self.offsets.numel() - 1

    @property
    def num_edges(self) -> int:
        """How many directed edges are stored, duplicates counted."""
        return self.sources.numel()

    def in_degree(self) -> Tensor:
        """How many edges end at each node, int64."""
        return torch.diff(self.offsets).to(torch.int64)

    def out_degree(self) -> Tensor:
        """How many edges start at each node, int64; where each is known to have its reverse, as many end there."""
        if self.__dict__.get("_symmetric"):
            return self.in_degree()
        return counted_by_source([self.sources], self.num_nodes, self.num_edges)

    def out_sums(self, values: Tensor) -> Tensor:
        """For every node, the exact sum of the whole numbers below 2^20 that the nodes it sends to have, int64."""
        return summed_by_source(self._runs(), values)

    def targets(self) -> Tensor:
        """The target of every stored edge, int32, aligned with `sources`."""
        nodes = torch.arange(self.num_nodes, dtype=torch.int32)
        return torch.repeat_interleave(nodes, self.in_degree(), output_size=self.num_edges)

    def edge_index(self) -> Tensor:
        """The edges as a `[2, E]` int64 tensor, sorted by target and then by source."""
        return torch.stack((self.sources.to(torch.int64), self.targets().to(torch.int64)))

    def edge_blocks(self) -> Iterator[Tensor]:
        """All edges at once: they are in memory anyway."""
        yield self.edge_index()

    def pairs_by_source(self) -> Iterator[np.ndarray]:
        """All edges as sorted numbers `source << 32 | target`, a part at a time, those that are equal in one part."""
        for first, last, offsets, targets in self.transpose()._runs():
            yield pack(np.repeat(np.arange(first, last), np.diff(offsets.numpy())), targets.numpy())

    def load(self) -> MemoryEdges:
        """This object."""
        return self

    def ending_at(self, receivers: Tensor) -> MemoryEdges:
        """The edges that end at a node of the boolean mask `receivers`; the last two answers are kept."""
        answers: list[tuple[Tensor, MemoryEdges]] = self.__dict__.setdefault("_parts", [])
        for mask, edges in answers:
            if torch.equal(mask, receivers):
                return edges
        answers.append((receivers.clone(), self._only_at(receivers)))
        del answers[:-2]
        return answers[-1][1]

    def _only_at(self, receivers: Tensor) -> MemoryEdges:
        arrays = (receivers.numpy(), self.offsets.numpy(), self.sources.numpy())
        found = lists_at(*arrays, kernels_for(self.num_edges))
        return MemoryEdges(*map(torch.from_numpy, found))

    def induced(self, nodes: Tensor) -> MemoryEdges:
        """The edges between the distinct `nodes`, which are numbered anew in the order given."""
        number = torch.full((self.num_nodes,), -1, dtype=torch.int64)
        number[nodes] = torch.arange(nodes.numel())
        ends = number[self.edge_index()]
        return MemoryEdges.from_edge_index(ends[:, (ends >= 0).all(dim=0)], nodes.numel())

    def sum(self, rows: Quantized, *, narrow: bool = False) -> Tensor:
        """For every node, the exact sum of the rows of the nodes that send to it: int64 `[nodes, columns]`.

        With `narrow`, int32 if no list is so long that a sum could need more.
        """
        check_quantized(rows, self.num_nodes)
        return sum_runs(self._runs(), rows, self.num_edges, longest_list(self) if narrow else None)

    def _runs(self) -> Iterator[Run]:
        for first, last in target_runs(self.offsets, _BLOCK_EDGES, _BLOCK_TARGETS):
            offsets = self.offsets[first : last + 1]
            yield first, last, offsets, self.sources[int(offsets[0]) : int(offsets[-1])]

    def cap(self, max_degree: int, noise: NoiseSource) -> MemoryEdges:
        """The edges left when every sender keeps at most `max_degree` distinct targets: see `degree.capped`."""
        parts = [capped(part, max_degree, noise) for part in self.pairs_by_source()]
        kept = np.concatenate([*parts, np.empty(0, dtype=np.int64)])
        return MemoryEdges.from_pairs(kept >> 32, kept & 0xFFFFFFFF, self.num_nodes)

    def transpose(self) -> MemoryEdges:
        """The graph with every edge turned round; itself, where it is known to be symmetric."""
        if self.__dict__.get("_symmetric"):
            return self
        return MemoryEdges.from_pairs(self.targets().numpy(), self.sources.numpy(), self.num_nodes)

    def is_symmetric(self) -> bool:
        """True when every edge has its reverse (as often as the edge itself)."""
        return self._symmetric

    @cached_property
    def _symmetric(self) -> bool:
        other = self.transpose()
        return torch.equal(self.offsets, other.offsets) and torch.equal(self.sources, other.sources)

    def known_symmetric(self) -> MemoryEdges:
        """This object, of which somebody knows that it is symmetric: it is not looked at for that."""
        self.__dict__["_symmetric"] = True
        return self

    def are_distinct_lists(self) -> bool:
        """Whether lists ascend and name other nodes alone, nobody twice: nothing else may be added up as it is."""
        offsets, sources = self.offsets, self.sources
        kinds = offsets.dtype in (torch.int32, torch.int64), sources.dtype is torch.int32
        flat = (part.dim() == 1 and part.is_contiguous() for part in (offsets, sources))
        if not all((*kinds, *flat)) or [int(end) for end in offsets[[0, -1]]] != [0, self.num_edges]:
            return False
        low, high = (int(end) for end in torch.aminmax(sources)) if self.num_edges else (0, -1)
        if bool((offsets.diff() < 0).any()) or low < 0 or high >= self.num_nodes:
            return False
        return all(are_distinct_others(first, part.numpy(), found.numpy()) for first, _, part, found in self._runs())

    def count_duplicates(self) -> int:
        """How many stored edges repeat an earlier one."""
        return int(self._repeats().sum())

    def coalesce(self) -> MemoryEdges:
        """The same graph with every repeated edge kept once."""
        repeats = self._repeats()
        if not bool(repeats.any()):
            return self
        before = torch.zeros(self.num_edges + 1, dtype=self.offsets.dtype)
        torch.cumsum(repeats, 0, dtype=self.offsets.dtype, out=before[1:])
        offsets = self.offsets - before[self.offsets.to(torch.int64)]
        return MemoryEdges(offsets, self.sources[~repeats])

    def _repeats(self) -> Tensor:
        """True where an edge equals the one before it (sources are sorted within each target)."""
        repeats = torch.zeros(self.num_edges, dtype=torch.bool)
        torch.eq(self.sources[1:], self.sources[:-1], out=repeats[1:])
        starts = self.offsets[:-1][self.offsets[:-1] < self.offsets[1:]]
        repeats[starts.to(torch.int64)] = False
        return repeats


def lists_at(
    nodes: np.ndarray, offsets: np.ndarray, sources: np.ndarray, kernels: ModuleType | None
) -> tuple[np.ndarray, np.ndarray]:
    """The lists of the nodes of a boolean mask, and where each begins and the last one ends; other nodes have none."""
    counts = np.diff(offsets)
    ends = np.zeros_like(offsets)
    np.cumsum(counts * nodes, out=ends[1:])
    if kernels is None:
        return ends, sources[np.repeat(nodes, counts)]
    found = np.empty(int(ends[-1]), dtype=sources.dtype)
    kernels.lists_of(nodes, offsets, sources, found)
    return ends, found


def list_problems(edges: Edges) -> list[str]:
    """What is wrong with lists that are to be used as they are; refuses a folder that is not what its header says."""
    if isinstance(edges, MemoryEdges) and not edges.are_distinct_lists():
        return [
            "edges: expected lists of distinct neighbors in increasing order, as a graph folder holds them; got "
            "others. Give the edges as edge_index: what repeats is left out there"
        ]
    if hasattr(edges, "verify_once"):  # a folder that was opened without a look at it
        edges.verify_once()
    return []


def longest_list(edges: Edges) -> int:
    """How many edges end at the node with the most."""
    return int(edges.in_degree().max()) if edges.num_nodes else 0
