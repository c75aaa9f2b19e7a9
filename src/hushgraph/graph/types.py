"""Edges of several types: for each type, every node has a mailbox of its own.

An edge from s to u of type t leads from s to the mailbox (t, u). So a graph with types is a plain graph between senders
and mailboxes: lists are cut and sums are made as ever, and one edge of one type is one edge of that graph. Proof:
docs/proofs/aggregation.md, Types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.disk_reading import refuse_strangers
from hushgraph.graph.edges import Edges, MemoryEdges, list_problems

MOST_TYPES = 64


@dataclass(frozen=True, eq=False)
class EdgeTypes:
    """The names of the types, and the edges from senders to mailboxes: that of type t and node u is t * nodes + u."""

    names: tuple[str, ...]
    entries: Edges

    @classmethod
    def of(cls, edge_index: Tensor, types: Tensor, names: tuple[str, ...], num_nodes: int) -> EdgeTypes:
        """From edges `[2, E]` with the number of a type each; repeated edges are kept once, self loops left out."""
        kept = edge_index[0] != edge_index[1]
        mailboxes = edge_index[1] + types.to(torch.int64) * num_nodes
        pairs = torch.stack([edge_index[0], mailboxes])[:, kept]
        return cls(names, MemoryEdges.from_edge_index(pairs, num_nodes * len(names)).coalesce())

    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse of the same type."""
        return all(part.is_symmetric() for part in parts(self.entries, len(self.names)))

    def largest_degree(self) -> int:
        """The most edges of all types together that start, or end, at one node."""
        ending = self.entries.in_degree().view(len(self.names), -1).sum(dim=0)
        return max(int(self.entries.out_degree().max()), int(ending.max()))


def parts(entries: Edges, count: int) -> Iterator[Edges]:
    """The edges of each type, as edges between nodes."""
    nodes = entries.num_nodes // count
    for first in range(0, entries.num_nodes, nodes):
        if not isinstance(entries, MemoryEdges):
            yield DiskPart(entries, first, nodes)
            continue
        offsets = entries.offsets[first : first + nodes + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        yield MemoryEdges(offsets - begin, entries.sources[begin:end])


class DiskPart(DiskEdges):
    """Those of the edges on disk that end at the nodes from `first` on, which are numbered from 0."""

    def __init__(self, whole: Any, first: int, count: int) -> None:
        self.folder, self.memory_limit, self._sources_file = whole.folder, whole.memory_limit, whole._sources_file
        self._first, self._whole = first, whole  # kept: with the last user of a temporary folder, the folder goes
        self._begin, end = (int(place) for place in whole._offsets(first, first + count)[[0, -1]])
        self._header = {"num_nodes": count, "num_edges": end - self._begin, "repeated": 0, "self_loops": 0}

    def _offsets(self, first: int, last: int) -> np.ndarray:
        return np.asarray(super()._offsets(self._first + first, self._first + last) - self._begin)

    def _sources(self, begin: int, end: int) -> np.ndarray:
        return refuse_strangers(super()._sources(self._begin + begin, self._begin + end), self.num_nodes)


def of_one_type(edges: MemoryEdges, count: int) -> MemoryEdges:
    """Edges without types, as those of the first of `count` types."""
    empty = edges.offsets[-1:].expand((count - 1) * edges.num_nodes)
    return MemoryEdges(torch.cat([edges.offsets, empty]), edges.sources)


def types_of(data: Any, edge_index: Tensor, num_nodes: int) -> EdgeTypes | None:
    """The types of a graph (`data.edge_type`, with `data.edge_type_names` from public knowledge), if it has any."""
    given, names = getattr(data, "edge_type", None), getattr(data, "edge_type_names", None)
    stored: Edges | None = getattr(data, "edge_mailboxes", None)
    if given is None and stored is None:
        return None
    problems = [
        f"edge_type: expected a graph without {other}; got both, for which nothing is proved"
        for other in ("edge_weight", "public_edge_index")
        if getattr(data, other, None) is not None
    ]
    if stored is not None:
        names = tuple(names or ())
        if stored.num_nodes != num_nodes * len(names):
            problems.append(f"edge_mailboxes: expected {num_nodes} for each type; got {stored.num_nodes}")
        problems += list_problems(stored)
        if isinstance(stored, MemoryEdges) and bool((stored.sources >= num_nodes).any()):
            problems.append(f"edge_mailboxes: expected senders among the {num_nodes} nodes; got others")
        InputError.collect(problems)
        return EdgeTypes(names, stored)
    found = _numbered(given, names)
    if not isinstance(names, list | tuple) or not 1 <= len(names) <= MOST_TYPES or len({*map(str, names)}) < len(names):
        problems.append(
            f"edge_type_names: expected the distinct names of 1 to {MOST_TYPES} types from public knowledge; got "
            f"{names!r}. Drop the types (data.edge_type = None) if they do not matter"
        )
    elif found.shape != (edge_index.shape[1],) or found.is_floating_point() or found.dtype is torch.bool:
        problems.append(
            f"edge_type: expected one whole number per edge, [{edge_index.shape[1]}]; got {found.dtype} "
            f"{list(found.shape)}"
        )
    elif found.numel() and not bool(((found >= 0) & (found < len(names))).all()):
        problems.append(f"edge_type: expected numbers from 0 to {len(names) - 1}, or the names; got others")
    InputError.collect(problems)
    assert names is not None
    return EdgeTypes.of(edge_index, found, tuple(map(str, names)), num_nodes)


def _numbered(given: Any, names: Any) -> Tensor:
    """Types as numbers; words are looked up among the declared names."""
    if isinstance(given, Tensor) or np.asarray(given).dtype.kind not in "UO":
        return torch.as_tensor(given)
    numbers = {str(name): number for number, name in enumerate(names or ())}
    return torch.tensor([numbers.get(str(word), -1) for word in np.asarray(given).ravel()])
