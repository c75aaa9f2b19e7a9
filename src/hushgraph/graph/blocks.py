"""Sums over in-neighbors of a graph on disk, a run of targets at a time, within a memory limit.

Each target's rows are added in stored order by the kernel of the in-memory path, and noise is addressed by row, so the
result is the same bit for bit whatever the limit, and a block that is computed again gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.store import BlockedGraph
from hushgraph.graph.sums import aligned_rows, check_rows, sum_bags, target_runs
from hushgraph.noise.source import NoiseSource, round_to_grid

# Edges a block holds when the limit allows more: small enough for the processor's cache, so that what was read from
# the file is still near when it is used.
_FASTEST_BLOCK = 1 << 20


class RowNoise(NamedTuple):
    """Which noise a release gets: row `r` gets `source.gaussian_rows(label, r, ...)`. One label per release."""

    source: NoiseSource
    label: str
    std: float


def aggregate_blocks(
    graph: BlockedGraph,
    rows: Tensor | np.ndarray,
    *,
    memory_limit: int,
    out: Tensor | np.ndarray | None = None,
    noise: RowNoise | None = None,
) -> Tensor:
    """For every node the sum of the `rows` that reach it, plus noise when given.

    `rows` may be a tensor, or a memory-mapped array larger than memory: then it is read by groups of columns that fit
    into most of the limit. Without noise the result has the type of `rows`; with noise it is the float64 sum with
    noise, rounded to the noise's grid, cast to the type of `out`, or float64. `out` is written and returned;
    `memory_limit` counts neither `out` nor a `rows` tensor that is in memory already.
    """
    on_disk = isinstance(rows, np.memmap)
    shape, dtype = _checked(rows, graph.num_nodes)
    result = _result(shape, torch.float64 if noise else dtype, out)
    room = memory_limit // 4 if on_disk else memory_limit
    for columns in _column_groups(shape, dtype, memory_limit - room if on_disk else None):
        table = _read_columns(rows, columns, room) if on_disk else aligned_rows(torch.as_tensor(rows))
        for first, last in blocks(graph, shape[1], dtype.itemsize, room):
            sums = sum_block(graph, table, first, last)
            if noise is not None:
                sums = _released(sums, noise, first, shape[1], columns)
            result[first:last, columns] = sums.to(result.dtype)
    return result


def blocks(graph: BlockedGraph, num_columns: int, element_size: int, memory_limit: int) -> Iterator[tuple[int, int]]:
    """Runs of targets `[first, last)` whose edges, sums and noise need about `memory_limit` bytes."""
    per_target = 16 + num_columns * (element_size + 4 * 8)
    targets = max(memory_limit // 2 // per_target, 1)
    entries = min(max(memory_limit // 2 // 4, 1), _FASTEST_BLOCK)
    for start in range(0, graph.num_nodes, targets):
        stop = min(start + targets, graph.num_nodes)
        offsets = torch.from_numpy(graph.offsets(start, stop))
        for first, last in target_runs(offsets, entries):
            yield start + first, start + last


def sum_block(graph: BlockedGraph, table: Tensor, first: int, last: int) -> Tensor:
    """The sums of targets `first .. last` alone: what one worker computes, or computes again."""
    offsets = graph.offsets(first, last)
    sources = graph.sources(int(offsets[0]), int(offsets[-1]))
    relative = torch.from_numpy((offsets - offsets[0]).astype(np.int32))
    return sum_bags(torch.from_numpy(sources), relative, table)


def _released(sums: Tensor, noise: RowNoise, first: int, width: int, columns: slice) -> Tensor:
    """Sums with their rows' noise, on the grid: raw sums never reach `out`, which may be a file."""
    drawn = noise.source.gaussian_rows(noise.label, first, len(sums), width, noise.std)
    return round_to_grid(drawn[:, columns].add_(sums), noise.std)


def _checked(rows: Tensor | np.ndarray, num_nodes: int) -> tuple[tuple[int, int], torch.dtype]:
    known = {"float32": torch.float32, "float64": torch.float64}
    name = str(rows.dtype).removeprefix("torch.")
    stand_in = torch.empty(tuple(rows.shape), dtype=known.get(name, torch.int64), device="meta")
    check_rows(stand_in, num_nodes)
    return (stand_in.shape[0], stand_in.shape[1]), stand_in.dtype


def _result(shape: tuple[int, int], dtype: torch.dtype, out: Tensor | np.ndarray | None) -> Tensor:
    if out is None:
        return torch.empty(shape, dtype=dtype)
    result = torch.from_numpy(out) if isinstance(out, np.ndarray) else out
    if tuple(result.shape) != shape or not result.is_floating_point():
        raise InputError(
            f"expected an output of floats of shape {list(shape)}; got {result.dtype} {list(result.shape)}; "
            "give one row per node"
        )
    return result


def _column_groups(shape: tuple[int, int], dtype: torch.dtype, room: int | None) -> Iterator[slice]:
    """All columns at once, or as many at a time as fit into `room` bytes (at least one)."""
    widest = shape[1] if room is None else room // max(shape[0] * dtype.itemsize, 1)
    groups = math.ceil(shape[1] / max(widest, 1))
    width = math.ceil(shape[1] / max(groups, 1))
    for start in range(0, shape[1], max(width, 1)):
        yield slice(start, min(start + width, shape[1]))


def _read_columns(rows: np.ndarray | Tensor, columns: slice, room: int) -> Tensor:
    """Copy some columns of a memory-mapped array into memory, a few rows at a time."""
    width = columns.stop - columns.start
    dtype = torch.float32 if rows.dtype.itemsize == 4 else torch.float64
    table = torch.empty((rows.shape[0], width), dtype=dtype)
    step = max(room // max(rows.shape[1] * rows.dtype.itemsize, 1), 1)
    for start in range(0, rows.shape[0], step):
        table[start : start + step] = torch.from_numpy(np.array(rows[start : start + step, columns]))
    return aligned_rows(table)
