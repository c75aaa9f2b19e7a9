"""Sums over in-neighbors: the one graph operation of aggregation-based methods.

`torch.nn.functional.embedding_bag` with 32-bit indices reads each source row once and adds it in registers; of the
libraries at hand it is the fastest by 2 to 4 times (`benchmarks/aggregation.py` measures it against the others). Each
target's rows are added one after the other in stored order, so the result does not depend on threads or on how
targets are grouped into blocks.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.errors import InputError
from hushgraph.graph.edges import INT32_LIMIT, InNeighbors

_ALIGNMENT = 64
_FLOAT64_RUN = 1 << 22


def sum_in_neighbors(graph: InNeighbors, rows: Tensor) -> Tensor:
    """For every node, the sum of the `rows` of the nodes that send to it (zeros where there are none).

    `rows` is `[num_nodes, columns]`, float32 or float64; the sum has the same type and is accumulated in it. float32
    is the fast path. No gradient flows through the sum: it is meant to be noised and released.
    """
    check_rows(rows, graph.num_nodes)
    table = aligned_rows(rows)
    limit = INT32_LIMIT - 1 if table.dtype == torch.float32 else _FLOAT64_RUN
    if graph.num_edges <= limit:
        return sum_bags(graph.sources, graph.offsets, table)
    out = torch.empty((graph.num_nodes, table.shape[1]), dtype=table.dtype)
    for first, last in target_runs(graph.offsets, limit):
        offsets = graph.offsets[first : last + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        out[first:last] = sum_bags(graph.sources[begin:end], (offsets - begin).to(torch.int32), table)
    return out


def aligned_rows(rows: Tensor) -> Tensor:
    """The rows, contiguous and starting at a multiple of 64 bytes (a copy only when they are not so already)."""
    rows = rows.detach()
    if rows.is_contiguous() and rows.data_ptr() % _ALIGNMENT == 0:
        return rows
    spare = _ALIGNMENT // rows.element_size()
    buffer = torch.empty(rows.numel() + spare, dtype=rows.dtype)
    skip = (-buffer.data_ptr() % _ALIGNMENT) // rows.element_size()
    return buffer[skip : skip + rows.numel()].view(rows.shape).copy_(rows)


def sum_bags(sources: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    """Sum of `table[sources[offsets[i] : offsets[i + 1]]]` for every i; int32 indices and offsets."""
    if sources.numel() == 0 or table.shape[1] == 0:
        return torch.zeros((offsets.numel() - 1, table.shape[1]), dtype=table.dtype)
    if table.dtype == torch.float64:
        return _sum_bags_float64(sources, offsets, table)
    with torch.no_grad():
        return embedding_bag(sources, table, offsets, mode="sum", include_last_offset=True)


def _sum_bags_float64(sources: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    """`embedding_bag` has no fast kernel for float64; scipy's product with a matrix of ones is five times faster."""
    ones = np.ones(sources.numel())
    matrix = csr_array((ones, sources.numpy(), offsets.numpy()), shape=(offsets.numel() - 1, table.shape[0]))
    return torch.from_numpy(matrix @ table.numpy())


def target_runs(offsets: Tensor, max_edges: int) -> list[tuple[int, int]]:
    """Cut targets into runs `[first, last)` of at most `max_edges` edges (a longer single target is a run alone)."""
    runs: list[tuple[int, int]] = []
    num_nodes, first = offsets.numel() - 1, 0
    while first < num_nodes:
        limit = int(offsets[first]) + max_edges
        last = int(torch.searchsorted(offsets, limit, right=True)) - 1
        last = min(max(last, first + 1), num_nodes)
        runs.append((first, last))
        first = last
    return runs


def check_rows(rows: Tensor, num_nodes: int) -> None:
    """Refuse rows of another shape or type than a sum over `num_nodes` nodes needs."""
    problems = []
    if rows.dim() != 2 or rows.shape[0] != num_nodes:
        problems.append(f"expected rows of shape [{num_nodes}, columns]; got {list(rows.shape)}; give one row per node")
    if rows.dtype not in (torch.float32, torch.float64):
        problems.append(f"expected float32 or float64 rows; got {rows.dtype}; convert with .to(torch.float32)")
    InputError.collect(problems)
