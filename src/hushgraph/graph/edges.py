"""The graph in the order aggregation reads it: for every node, the nodes that send to it.

An edge `source -> target` carries the row of `source` to `target`. `InNeighbors` lists, for target 0, 1, 2, ..., the
sources that send to it, in one flat array (compressed sparse rows by destination). The number of nodes is fixed and
public: isolated nodes keep their (empty) place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError

INT32_LIMIT = 2**31


@dataclass(frozen=True, eq=False)
class InNeighbors:
    """Sources of every target: those of target `t` are `sources[offsets[t] : offsets[t + 1]]`, in increasing order.

    Attributes:
        offsets: `num_nodes + 1` positions; int32, or int64 from 2^31 edges on.
        sources: one int32 node number per edge.

    The tensors are shared, not copied: treat them as read-only.
    """

    offsets: Tensor
    sources: Tensor

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> InNeighbors:
        """Sort the `[2, E]` edges (row 0 sources, row 1 targets) by target, then by source."""
        source, target = checked_edges(edge_index, num_nodes)
        return InNeighbors.from_packed(pack(target, source), num_nodes)

    @classmethod
    def from_packed(cls, packed: np.ndarray, num_nodes: int) -> InNeighbors:
        """From pairs `target << 32 | source` (see `pack`), which are sorted in place."""
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
        """How many edges start at each node, int64."""
        return torch.bincount(self.sources, minlength=self.num_nodes)

    def targets(self) -> Tensor:
        """The target of every stored edge, int32, aligned with `sources`."""
        nodes = torch.arange(self.num_nodes, dtype=torch.int32)
        return torch.repeat_interleave(nodes, self.in_degree(), output_size=self.num_edges)

    def edge_index(self) -> Tensor:
        """The edges as a `[2, E]` int64 tensor, sorted by target and then by source."""
        return torch.stack((self.sources.to(torch.int64), self.targets().to(torch.int64)))

    def transpose(self) -> InNeighbors:
        """The graph with every edge turned round."""
        return InNeighbors.from_packed(pack(self.sources.numpy(), self.targets().numpy()), self.num_nodes)

    def is_symmetric(self) -> bool:
        """True when every edge has its reverse (as often as the edge itself)."""
        return self._symmetric

    @cached_property
    def _symmetric(self) -> bool:
        other = self.transpose()
        return torch.equal(self.offsets, other.offsets) and torch.equal(self.sources, other.sources)

    def has_self_loops(self) -> bool:
        """True when some node sends to itself."""
        return bool((self.sources == self.targets()).any())

    def count_duplicates(self) -> int:
        """How many stored edges repeat an earlier one."""
        return int(self._repeats().sum())

    def coalesce(self) -> InNeighbors:
        """The same graph with every repeated edge kept once."""
        repeats = self._repeats()
        if not bool(repeats.any()):
            return self
        before = torch.zeros(self.num_edges + 1, dtype=self.offsets.dtype)
        torch.cumsum(repeats, 0, dtype=self.offsets.dtype, out=before[1:])
        offsets = self.offsets - before[self.offsets.to(torch.int64)]
        return InNeighbors(offsets, self.sources[~repeats])

    def _repeats(self) -> Tensor:
        """True where an edge equals the one before it (sources are sorted within each target)."""
        repeats = torch.zeros(self.num_edges, dtype=torch.bool)
        torch.eq(self.sources[1:], self.sources[:-1], out=repeats[1:])
        starts = self.offsets[:-1][self.offsets[:-1] < self.offsets[1:]]
        repeats[starts.to(torch.int64)] = False
        return repeats


def checked_edges(edge_index: Tensor, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets as arrays, after checking shape, type and range."""
    problems = []
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        problems.append(
            f"expected an edge index of shape [2, E]; got {list(edge_index.shape)}; stack sources and targets"
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        problems.append(f"expected integer node numbers; got {edge_index.dtype}; convert to torch.int64")
    if not 0 <= num_nodes < INT32_LIMIT:
        problems.append(f"expected between 0 and 2^31 - 1 nodes; got {num_nodes}; split the graph")
    InputError.collect(problems)
    if edge_index.numel():
        low, high = (int(value) for value in torch.aminmax(edge_index))
        if low < 0 or high >= num_nodes:
            raise InputError(f"expected node numbers from 0 to {num_nodes - 1}; got {low} to {high}; check num_nodes")
    return edge_index[0].numpy(), edge_index[1].numpy()


def count_duplicates(edge_index: Tensor, num_nodes: int) -> int:
    """How many edges repeat an earlier edge."""
    return InNeighbors.from_edge_index(edge_index, num_nodes).count_duplicates()


def coalesce(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The distinct edges, sorted by target and then by source."""
    return InNeighbors.from_edge_index(edge_index, num_nodes).coalesce().edge_index()


def pack(major: np.ndarray, minor: np.ndarray) -> np.ndarray:
    """One int64 per pair of node numbers, ordered by `major` and then by `minor`."""
    packed = major.astype(np.int64)
    packed <<= 32
    packed |= minor
    return packed


def unpack_minor(packed: np.ndarray) -> np.ndarray:
    """The `minor` numbers of packed pairs, int32."""
    return packed.astype(np.uint32).view(np.int32)  # the low half; node numbers are below 2^31


def offsets_of(packed: np.ndarray, num_nodes: int) -> np.ndarray:
    """Where each major number's run begins in sorted packed pairs (`num_nodes + 1` positions)."""
    positions = np.searchsorted(packed, np.arange(num_nodes + 1, dtype=np.int64) << 32)
    return positions.astype(np.int64 if len(packed) >= INT32_LIMIT else np.int32)
