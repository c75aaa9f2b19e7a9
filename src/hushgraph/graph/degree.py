"""The degree cap that keeps a node's reach at D: owned lists, own randomness, no refill.

A node's outgoing list is part of its own record. A list with more than D entries keeps D of them, chosen by random
keys that belong to (owner, entry) alone. Nothing another node does changes the list, so taking one record away moves
a sum of unit-norm rows by at most sqrt(D): see docs/proofs/degree-cap.md. A cap that fills freed places from what is
left does not have this property.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.csr import checked_edges, pack
from hushgraph.mechanisms.noise import NoiseSource

_LABEL = "degree cap"


def cap_owned_lists(edge_index: Tensor, num_nodes: int, max_degree: int, noise: NoiseSource) -> Tensor:
    """The edges kept when every sender keeps at most `max_degree` distinct targets, sorted by sender and target.

    Guarantee: the kept list of node `u` is a function of the noise key, `u` and `u`'s own list (as a set), and of
    nothing else. Repeated entries count once; lists of at most `max_degree` distinct entries stay whole; every subset
    of `max_degree` entries of a longer list is equally likely.

    Edge cases: a self-loop is an entry like any other; `max_degree` 0 keeps nothing.
    """
    source, target = checked_edges(edge_index, num_nodes)
    packed = np.sort(pack(source, target))
    packed = capped(packed, max_degree, noise)
    return torch.from_numpy(np.stack((packed >> 32, packed & 0xFFFFFFFF)))


def capped(packed: np.ndarray, max_degree: int, noise: NoiseSource) -> np.ndarray:
    """The same on sorted pairs `owner << 32 | target` that hold whole lists; sorted again."""
    if isinstance(max_degree, bool) or not isinstance(max_degree, int) or max_degree < 0:
        raise InputError(
            f"expected a degree cap of 0 or more; got {max_degree!r}; choose it without looking at the data"
        )
    packed = _distinct(packed)
    lengths = _list_lengths(packed)
    long = lengths > max_degree
    if not long.any():
        return packed
    in_long = np.repeat(long, lengths)
    kept = _choose(packed[in_long], lengths[long], max_degree, noise)
    keep = ~in_long
    keep[in_long] = kept
    return packed[keep]


def _choose(packed: np.ndarray, lengths: np.ndarray, max_degree: int, noise: NoiseSource) -> np.ndarray:
    """True for the `max_degree` entries with the smallest random keys of every list."""
    keys = noise.pair_keys(_LABEL, packed >> 32, packed & 0xFFFFFFFF)
    list_number = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((keys, list_number))
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    kept = np.zeros(len(packed), dtype=bool)
    kept[order[np.arange(len(packed)) - first < max_degree]] = True
    return kept


def _distinct(packed: np.ndarray) -> np.ndarray:
    if len(packed) < 2:
        return packed
    new = np.empty(len(packed), dtype=bool)
    new[0] = True
    np.not_equal(packed[1:], packed[:-1], out=new[1:])
    return packed if new.all() else packed[new]


def _list_lengths(packed: np.ndarray) -> np.ndarray:
    """Length of every owner's run in sorted pairs."""
    if len(packed) == 0:
        return np.empty(0, dtype=np.int64)
    owners = packed >> 32
    ends = np.flatnonzero(owners[1:] != owners[:-1]) + 1
    return np.diff(ends, prepend=0, append=len(packed))
