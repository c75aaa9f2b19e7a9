"""Pairs of node numbers as single 64-bit numbers: one sort orders them by the first and then by the second."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError

INT32_LIMIT = 2**31


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
        ends = [torch.aminmax(row) for row in edge_index]  # each is read as it lies
        low, high = min(int(one.min) for one in ends), max(int(one.max) for one in ends)
        if low < 0 or high >= num_nodes:
            raise InputError(f"expected node numbers from 0 to {num_nodes - 1}; got {low} to {high}; check num_nodes")
    return edge_index[0].numpy(), edge_index[1].numpy()


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


def distinct(packed: np.ndarray) -> np.ndarray:
    """Sorted pairs with each repeated pair kept once."""
    if len(packed) < 2:
        return packed
    new = np.empty(len(packed), dtype=bool)
    new[0] = True
    np.not_equal(packed[1:], packed[:-1], out=new[1:])
    return packed if new.all() else packed[new]


def run_lengths(packed: np.ndarray) -> np.ndarray:
    """How many pairs each major number has, in sorted pairs and in the order of the majors that occur."""
    if len(packed) == 0:
        return np.empty(0, dtype=np.int64)
    majors = packed >> 32
    ends = np.flatnonzero(majors[1:] != majors[:-1]) + 1
    return np.diff(ends, prepend=0, append=len(packed))
