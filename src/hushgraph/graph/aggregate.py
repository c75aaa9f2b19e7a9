"""Sums over in-neighbours: the one graph operation of aggregation-based methods.

`torch.nn.functional.embedding_bag` with 32-bit indices reads each source row once and adds it in registers; of the
libraries at hand it is the fastest by 2 to 4 times (`benchmarks/aggregation.py` measures it against the others). Each
target's rows are added one after the other in stored order, so the result does not depend on threads or on how
targets are grouped into blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.errors import InputError
from hushgraph.graph.csr import INT32_LIMIT, InNeighbours

_ALIGNMENT = 64


def sum_in_neighbours(graph: InNeighbours, rows: Tensor) -> Tensor:
    """For every node, the sum of the `rows` of the nodes that send to it (zeros where there are none).

    `rows` is `[num_nodes, columns]`, float32 or float64; the sum has the same type and is accumulated in it.
    No gradient flows through it: its result is meant to be noised and released.
    """
    _check_rows(rows, graph.num_nodes)
    table = aligned_rows(rows)
    if graph.num_edges < INT32_LIMIT:
        return sum_bags(graph.sources, graph.offsets, table)
    return _sum_in_parts(graph, table)


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
    """Sum of `table[sources[offsets[i] : offsets[i + 1]]]` for every i; indices and offsets of one integer type."""
    if sources.numel() == 0 or table.shape[1] == 0:
        return torch.zeros((offsets.numel() - 1, table.shape[1]), dtype=table.dtype)
    with torch.no_grad():
        return embedding_bag(sources, table, offsets, mode="sum", include_last_offset=True)


def _sum_in_parts(graph: InNeighbours, table: Tensor) -> Tensor:
    """The same with more edges than a 32-bit offset can count: runs of targets, each below the limit."""
    out = torch.empty((graph.num_nodes, table.shape[1]), dtype=table.dtype)
    for first, last in target_runs(graph.offsets, INT32_LIMIT - 1):
        begin, end = int(graph.offsets[first]), int(graph.offsets[last])
        offsets = (graph.offsets[first : last + 1] - begin).to(torch.int32)
        out[first:last] = sum_bags(graph.sources[begin:end], offsets, table)
    return out


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


def _check_rows(rows: Tensor, num_nodes: int) -> None:
    problems = []
    if rows.dim() != 2 or rows.shape[0] != num_nodes:
        problems.append(f"expected rows of shape [{num_nodes}, columns]; got {list(rows.shape)}; give one row per node")
    if rows.dtype not in (torch.float32, torch.float64):
        problems.append(f"expected float32 or float64 rows; got {rows.dtype}; convert with .to(torch.float32)")
    InputError.collect(problems)
