"""Which edges are public knowledge and which are private: by a share of all pairs, or by a rule.

A pair is public or private whether it is linked or not, by a coin or a rule that reads public facts only. So two graphs
that differ in a private edge have the same public ones, which `data.public_edge_index` then holds.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import InputError

_GOLDEN = 0x9E3779B97F4A7C15  # the steps and factors of the generator SplitMix64
_MIXES = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def split_edges(data: Data, private: float | Tensor, seed: int = 0) -> Data:
    """A copy of `data` with `public_edge_index`; all other edges are private.

    private: a number rho makes each pair of nodes private with that chance, by a public coin with `seed`. A tensor with
        one public number per node is a rule: pairs of the same number are public, all others private; so are all pairs
        of a node with a negative number, which stands for unknown.
    """
    source, target = (ends.numpy().astype(np.uint64) for ends in data.edge_index)
    if isinstance(private, Tensor):
        public = _alike(private, data)
    else:
        if isinstance(private, bool) or not isinstance(private, int | float) or not 0 <= private <= 1:
            raise InputError(f"private: expected a share from 0 to 1, or one number per node; got {private!r}")
        low, high = np.minimum(source, target), np.maximum(source, target)
        public = torch.from_numpy(_coins(low << np.uint64(32) | high, seed) >= private)
    result = copy.copy(data)
    result.public_edge_index = data.edge_index[:, public]
    return result


def groups_of(data: Data, rule: str) -> Tensor:
    """The numbers of a rule "array:column", such as "local_info:4": a column of a public array, below 1 unknown."""
    name, _, column = rule.partition(":")
    array: Any = data.get(name)
    width = array.shape[1] if isinstance(array, Tensor) and array.dim() == 2 else 0
    if not column.isdecimal() or int(column) >= width:
        raise InputError(
            f"private_edges: expected a share, or 'array:column' of an array with a row for each node; got '{rule}'"
            + (f", but {name} has {width} columns" if width else "")
        )
    found: Tensor = array[:, int(column)].to(torch.int64)
    return torch.where(found > 0, found, -1)


def _alike(group: Tensor, data: Data) -> Tensor:
    if group.is_floating_point() or group.shape != (data.num_nodes,):
        raise InputError(
            f"private: expected one whole number for each of the {data.num_nodes} nodes; "
            f"got {group.dtype} of shape {tuple(group.shape)}"
        )
    source, target = group[data.edge_index[0]], group[data.edge_index[1]]
    return (source == target) & (source >= 0)


def _coins(numbers: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for every 64-bit number, the same wherever it is asked for."""
    mixed = numbers * np.uint64(_GOLDEN) + np.uint64((seed * _GOLDEN + _GOLDEN) % 2**64)
    for shift, factor in _MIXES:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))) / 2.0**64
