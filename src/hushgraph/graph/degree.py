"""The degree cap that keeps a node's reach at D: owned lists, own randomness, no refill.

A node's outgoing list is part of its own record. A list with more than D entries keeps D of them, chosen by random
keys that belong to (owner, entry) alone. Nothing another node does changes the list, so taking one record away moves
a sum of unit-norm rows by at most sqrt(D): see docs/proofs/degree-cap.md. A cap that fills freed places from what is
left does not have this property.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.packed import distinct, run_lengths
from hushgraph.noise.source import NoiseSource

_LABEL = "degree cap"
_RUN = 1 << 19


def capped(packed: np.ndarray, max_degree: int, noise: NoiseSource) -> np.ndarray:
    """The pairs kept when every owner keeps at most `max_degree` distinct entries.

    `packed` are sorted pairs `owner << 32 | entry` that hold whole lists; so is the result.

    Guarantee: the kept list of node `u` is a function of the noise key, `u` and `u`'s own list (as a set), and of
    nothing else. Repeated entries count once; lists of at most `max_degree` distinct entries stay whole; every subset
    of `max_degree` entries of a longer list is equally likely.

    Edge cases: a self-loop is an entry like any other; `max_degree` 0 keeps nothing.
    """
    if isinstance(max_degree, bool) or not isinstance(max_degree, int) or max_degree < 0:
        raise InputError(
            f"expected a degree cap of 0 or more; got {max_degree!r}; choose it without looking at the data"
        )
    packed = distinct(packed)
    lengths = run_lengths(packed)
    if len(lengths) == 0 or lengths.max() <= max_degree:
        return packed
    keep = np.empty(len(packed), dtype=bool)
    for first, last, begin, end in _runs_of_lists(lengths):
        keep[begin:end] = _choose(packed[begin:end], lengths[first:last], max_degree, noise)
    return packed[keep]


def _runs_of_lists(lengths: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """Whole lists, about `_RUN` entries at a time: (first list, last list, first entry, last entry)."""
    ends = np.cumsum(lengths)
    first = begin = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(ends, begin + _RUN, side="right")), first + 1)
        yield first, last, begin, int(ends[last - 1])
        first, begin = last, int(ends[last - 1])


def _choose(packed: np.ndarray, lengths: np.ndarray, max_degree: int, noise: NoiseSource) -> np.ndarray:
    """True for the entries of short lists, and for the `max_degree` smallest random keys of every long one."""
    keep = np.repeat(lengths <= max_degree, lengths)
    in_long = np.flatnonzero(~keep)
    if max_degree > 0 and len(in_long):
        entries = packed[in_long]
        keys = noise.pair_keys(_LABEL, entries >> 32, entries & 0xFFFFFFFF)
        keep[in_long] = _smallest(keys, lengths[lengths > max_degree], max_degree)
    return keep


def _smallest(keys: np.ndarray, lengths: np.ndarray, count: int) -> np.ndarray:
    """True for the `count` smallest keys of every list (all lists longer than `count`)."""
    bits = np.uint64(max(len(lengths) - 1, 1).bit_length())
    number = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    # The list number above the leading bits of the key: sorting plain integers is far faster than sorting an order.
    ranked = (number << (np.uint64(64) - bits)) | (keys >> bits)
    begins = np.cumsum(lengths) - lengths
    largest_kept = np.sort(ranked)[begins + count - 1]
    keep = ranked <= np.repeat(largest_kept, lengths)
    for tied in np.flatnonzero(np.add.reduceat(keep, begins, dtype=np.int64) > count):
        # Two keys of one list agree in all leading bits, about once in 10^6 runs of this function: sort that list.
        part = slice(begins[tied], begins[tied] + lengths[tied])
        keep[part] = False
        keep[part.start + np.argsort(keys[part], kind="stable")[:count]] = True
    return keep
