"""Exact sums of whole numbers over in-neighbors: what is released, and what noise is added to.

A released sum must move by no more than its declared bound, for the numbers that the machine adds. So rows are brought
to whole numbers first (`hushgraph.graph.quantized`) and added without any rounding: the result is that of integer
arithmetic, in any order and with any number of threads. Proof: docs/proofs/aggregation.md.

`torch.nn.functional.embedding_bag` with 32-bit indices reads each source row once and adds it in registers; of the
libraries at hand it is the fastest by 2 to 4 times (`benchmarks/aggregation.py` measures it against the others). Whole
numbers up to 2^24 are exact in float32, so bags are cut so short that no partial sum can get beyond that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.errors import InputError
from hushgraph.graph.packed import INT32_LIMIT
from hushgraph.graph.quantized import QuantizedRows

_EXACT_BITS = 24
_ALIGNMENT = 64


def collected(blocks: Iterator[tuple[int, int, Tensor]], shape: tuple[int, int]) -> Tensor:
    """The sums of all nodes from those of runs of nodes, (first, last, sums); int64."""
    out = torch.empty(shape, dtype=torch.int64)
    for first, last, sums in blocks:
        out[first:last] = sums
    return out


def exact_sums(sources: Tensor, offsets: Tensor, rows: QuantizedRows) -> Tensor:
    """The exact sum of the rows `sources[offsets[i] : offsets[i + 1]]` for every i; int32 indices and offsets.

    Float32 where no sum can exceed 2^24 (every whole number up to that is exact), int64 otherwise.
    """
    longest = 1 << (_EXACT_BITS - rows.bits)
    counts = offsets.diff()
    if counts.numel() == 0 or int(counts.max()) <= longest:
        return sum_bags(sources, offsets, rows.values)
    # Bags that are too long are cut: the later pieces are bags of their own, added to the first one in int64.
    cut = (counts > longest).nonzero().squeeze(1)
    more = (counts[cut].to(torch.int64) - 1).div(longest, rounding_mode="floor")
    owners = torch.repeat_interleave(cut, more)
    piece = torch.arange(owners.numel()) - torch.repeat_interleave(more.cumsum(0) - more, more) + 1
    starts = offsets[owners].to(torch.int64) + longest * piece
    pieces = np.insert(offsets.numpy(), (owners + 1).numpy(), starts.numpy().astype(np.int32))
    partial = sum_bags(sources, torch.from_numpy(pieces), rows.values)
    first = torch.arange(counts.numel())
    first[1:] += torch.bincount(owners, minlength=counts.numel())[:-1].cumsum(0)
    later = first[owners] + piece
    return partial.index_select(0, first).to(torch.int64).index_add_(0, owners, partial[later].to(torch.int64))


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
    """Sum of `table[sources[offsets[i] : offsets[i + 1]]]` for every i; int32 indices and offsets, float32 rows."""
    if sources.numel() == 0 or table.shape[1] == 0:
        return torch.zeros((offsets.numel() - 1, table.shape[1]), dtype=table.dtype)
    with torch.no_grad():
        return embedding_bag(sources, table, offsets, mode="sum", include_last_offset=True)


def target_runs(offsets: Tensor, max_edges: int, max_targets: int = INT32_LIMIT) -> Iterator[tuple[int, int]]:
    """Cut targets into runs `[first, last)` of at most `max_edges` edges (a longer single target is a run alone)."""
    num_nodes, first = offsets.numel() - 1, 0
    while first < num_nodes:
        limit = int(offsets[first]) + max_edges
        last = int(torch.searchsorted(offsets, limit, right=True)) - 1
        last = min(max(last, first + 1), num_nodes, first + max_targets)
        yield first, last
        first = last


def check_quantized(rows: QuantizedRows, num_nodes: int) -> None:
    """Refuse rows of another number of nodes."""
    if rows.shape[0] != num_nodes:
        raise InputError(f"expected quantized rows of {num_nodes} nodes; got {rows.shape[0]}; give one row per node")


def check_rows(rows: Tensor, num_nodes: int) -> None:
    """Refuse rows of another shape or type than a sum over `num_nodes` nodes needs."""
    problems = []
    if rows.dim() != 2 or rows.shape[0] != num_nodes:
        problems.append(f"expected rows of shape [{num_nodes}, columns]; got {list(rows.shape)}; give one row per node")
    if rows.dtype not in (torch.float32, torch.float64):
        problems.append(f"expected float32 or float64 rows; got {rows.dtype}; convert with .to(torch.float32)")
    InputError.collect(problems)
