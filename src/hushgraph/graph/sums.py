"""Exact sums of whole numbers over in-neighbors: what is released, and what noise is added to.

A released sum must move by no more than its declared bound, for the numbers that the machine adds. So rows are brought
to whole numbers first (`hushgraph.graph.quantized`, `hushgraph.graph.labels`) and added without any rounding: the
result is that of integer arithmetic, in any order and with any number of threads. Proof: docs/proofs/aggregation.md.

There are two ways with the same result. Large graphs use compiled loops over 16-bit numbers (`hushgraph.graph.kernels`)
where numba is installed. Otherwise `torch.nn.functional.embedding_bag` adds whole numbers in float32, where they are
exact up to 2^24: bags are cut so short that no partial sum can get beyond that. `benchmarks/sums.py` compares both with
a float32 running sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from hushgraph.errors import InputError
from hushgraph.graph.labels import QuantizedLabels
from hushgraph.graph.packed import INT32_LIMIT
from hushgraph.graph.quantized import QuantizedRows

Quantized = QuantizedRows | QuantizedLabels
Run = tuple[int, int, Tensor, Tensor]
"""Some targets: (first, last + 1, where each list begins and the last one ends, the sources of all of them)."""
Adder = Callable[[Tensor, Tensor, Tensor], None]
"""Writes the sums of a run: (offsets, sources, int64 or int32 result)."""

LEAST_COMPILED = 1 << 19
"""Edges from which compiled loops are worth loading."""
_LEAST_PER_THREAD = 1 << 16
_EXACT_BITS = 24
_ALIGNMENT = 64


def kernels_for(num_edges: int) -> ModuleType | None:
    """The compiled loops, for graphs that are large enough and where numba is installed."""
    return _kernels() if num_edges >= LEAST_COMPILED else None


@cache
def _kernels() -> ModuleType | None:
    try:
        from hushgraph.graph import kernels
    except ImportError:
        return None
    return kernels


def sum_runs(runs: Iterable[Run], rows: Quantized, num_edges: int, longest: int | None = None) -> Tensor:
    """The exact sums of all targets; the runs are all of them, in order.

    They are int64, or, where `longest` (the length of the longest list) says that they fit, int32.
    """
    add, out = adder(rows, num_edges), room_for_sums(rows, rows.shape[0], longest)
    for first, last, offsets, sources in runs:
        add(offsets, sources, out[first:last])
    return out


def summed_by_source(runs: Iterable[Run], values: Tensor) -> Tensor:
    """For every source, the sum of the whole `values` of its targets, int64: exact in float64 below 2^53."""
    totals = torch.zeros(len(values), dtype=torch.float64)
    wide = values.to(torch.float64)
    for first, last, offsets, sources in runs:
        each = torch.repeat_interleave(wide[first:last], offsets.diff().to(torch.int64), output_size=sources.numel())
        totals += torch.bincount(sources, weights=each, minlength=len(values))
    return totals.to(torch.int64)


def counted_by_source(parts: Iterable[Tensor], num_nodes: int, num_edges: int) -> Tensor:
    """How often every node is among the sources of the parts, int64; all parts together have `num_edges` of them."""
    kernels = kernels_for(num_edges)
    if kernels is None:
        found = torch.zeros(num_nodes, dtype=torch.int64)
        for part in parts:
            found += torch.bincount(part, minlength=num_nodes)
        return found
    counts = np.zeros(num_nodes, dtype=np.uint32 if num_edges < INT32_LIMIT else np.int64)  # the less, the nearer
    for part in parts:
        kernels.count(part.numpy().view(np.uint32), counts)
    return torch.from_numpy(counts.astype(np.int64))


def room_for_sums(rows: Quantized, num_targets: int, longest: int | None = None) -> Tensor:
    """Room for the sums of so many targets: of 32 bits, where they fit for lists that are at most so long."""
    is_narrow = longest is not None and longest << rows.bits < INT32_LIMIT
    # numpy asks the system for large pages, which are faster to fill for the first time
    return torch.from_numpy(np.empty((num_targets, rows.shape[1]), dtype=np.int32 if is_narrow else np.int64))


def adder(rows: Quantized, num_edges: int) -> Adder:
    """What sums the rows over lists of sources, prepared for about `num_edges` of them."""
    kernels = kernels_for(num_edges)
    if kernels is not None and rows.shape[1] > 0:
        if isinstance(rows, QuantizedLabels):
            return partial(_in_threads, _label_kernel(rows))
        if rows.values.dtype == torch.int16:
            return partial(_in_threads, partial(kernels.row_sums, kernels.tables(rows.values.numpy())))
    dense = rows.dense() if isinstance(rows, QuantizedLabels) else rows
    return partial(_add_bags, dense.values.to(torch.float32), 1 << (_EXACT_BITS - dense.bits))


# Compiled


_Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def _label_kernel(rows: QuantizedLabels) -> _Kernel:
    from hushgraph.graph.label_kernels import EqualLabels, OwnLabels

    classes = rows.classes.numpy()
    if rows.hot.dim() == 0:
        return EqualLabels(classes, rows.columns, int(rows.hot), int(rows.cold)).sums
    return OwnLabels(classes, rows.columns, rows.hot.numpy(), rows.cold.numpy()).sums


def _in_threads(kernel: _Kernel, offsets: Tensor, sources: Tensor, out: Tensor) -> None:
    """Sum parts with about as many edges each, one per thread; every target's sum is made by one of them."""
    nodes, ends, sums = sources.numpy().view(np.uint32), offsets.numpy(), out.numpy()
    parts = min(torch.get_num_threads(), 1 + len(nodes) // _LEAST_PER_THREAD)
    cuts = np.searchsorted(ends, ends[0] + len(nodes) * np.arange(1, parts) // parts)
    cuts = [0, *cuts.tolist(), len(ends) - 1]

    def run(first: int, last: int) -> None:
        begin, end = (int(ends[node] - ends[0]) for node in (first, last))
        kernel(nodes[begin:end], ends[first : last + 1], sums[first:last])

    if parts == 1:
        run(0, len(ends) - 1)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, cuts[:-1], cuts[1:]))


# In bags of floats


def _add_bags(table: Tensor, longest: int, offsets: Tensor, sources: Tensor, out: Tensor) -> None:
    """Sums of whole float32 rows in bags of at most `longest`, so that no partial sum exceeds 2^24."""
    offsets = (offsets - offsets[0]).to(torch.int32)
    counts = offsets.diff()
    if counts.numel() == 0 or int(counts.max()) <= longest:
        out.copy_(sum_bags(sources, offsets, table))
        return
    # Bags that are too long are cut: the later pieces are bags of their own, added to the first one in int64.
    cut = (counts > longest).nonzero().squeeze(1)
    more = (counts[cut].to(torch.int64) - 1).div(longest, rounding_mode="floor")
    owners = torch.repeat_interleave(cut, more)
    piece = torch.arange(owners.numel()) - torch.repeat_interleave(more.cumsum(0) - more, more) + 1
    starts = offsets[owners].to(torch.int64) + longest * piece
    pieces = np.insert(offsets.numpy(), (owners + 1).numpy(), starts.numpy().astype(np.int32))
    partial_sums = sum_bags(sources, torch.from_numpy(pieces), table)
    first = torch.arange(counts.numel())
    first[1:] += torch.bincount(owners, minlength=counts.numel())[:-1].cumsum(0)
    later = first[owners] + piece
    out.copy_(partial_sums.index_select(0, first)).index_add_(0, owners, partial_sums[later].to(out.dtype))


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


def check_quantized(rows: Quantized, num_nodes: int) -> None:
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
