"""Compiled loops over edges on their way through `hushgraph.graph.buckets`: dealt out, put in order, without repeats.

As `hushgraph.graph.kernels`, beside which they stand: they need numba, and nothing in them is rounded.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_DIGIT = 11  # bits of a pair sorted at a time: so many counters stay in the nearest cache


# Dealt out by ranges of nodes


@njit(cache=True, nogil=True)
def count_ranges(major, minor, shift, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[i]` how many pairs range i of 2^shift majors has. Pairs of equal numbers do not count."""
    for k in range(len(major)):
        counts[major[k] >> shift] += major[k] != minor[k]


@njit(cache=True, nogil=True)
def deal_out(major, minor, shift, minor_bits, place, pairs):  # type: ignore[no-untyped-def]
    """Write `(major - first of its range) << minor_bits | minor` to `pairs`, those of range i from `place[i]` on.

    `place` is moved on. Pairs of equal numbers are left out.
    """
    within = (np.int64(1) << shift) - 1
    for k in range(len(major)):
        if major[k] != minor[k]:
            number = major[k] >> shift
            pairs[place[number]] = ((np.int64(major[k]) & within) << minor_bits) | np.int64(minor[k])
            place[number] += 1


# One range in order


@njit(cache=True, nogil=True)
def distinct_by_major(pairs, bits, minor_bits, offsets, minors):  # type: ignore[no-untyped-def]
    """Write the distinct minors of every major, in increasing order, and where each list begins; how many there are.

    `pairs` are numbers of so many `bits` as `deal_out` writes them; the order that they had is lost.
    """
    ordered = _in_order(pairs, np.empty_like(pairs), bits)
    mask = (np.int64(1) << minor_bits) - 1
    kept, before = 0, np.int64(-1)
    offsets[:] = 0
    for k in range(len(ordered)):
        pair = np.int64(ordered[k])
        is_new = pair != before
        kept += is_new
        minors[kept - 1] = pair & mask
        offsets[(pair >> minor_bits) + 1] += is_new
        before = pair
    for i in range(1, len(offsets)):
        offsets[i] += offsets[i - 1]
    return kept


@njit(cache=True, nogil=True)
def _in_order(values, spare, bits):  # type: ignore[no-untyped-def]
    """The values sorted, a digit at a time from the lowest on, in one of the two arrays."""
    digits = (bits + _DIGIT - 1) // _DIGIT
    width = (bits + digits - 1) // digits
    mask = (np.int64(1) << width) - 1
    counts = _digit_counts(values, digits, width)
    for digit in range(digits):
        low, place = digit * width, counts[digit]
        begin = 0
        for number in range(mask + 1):
            count = place[number]
            place[number] = begin
            begin += count
        for k in range(len(values)):
            value = values[k]
            number = (np.int64(value) >> low) & mask
            spare[place[number]] = value
            place[number] += 1
        values, spare = spare, values
    return values


@njit(cache=True, nogil=True)
def _digit_counts(values, digits, width):  # type: ignore[no-untyped-def]
    """How often each value of each digit occurs; of three digits, as there mostly are, all while a value is at hand."""
    counts = np.zeros((digits, 1 << width), dtype=np.int64)
    mask = (np.int64(1) << width) - 1
    if digits == 3:
        low, middle, high = counts[0], counts[1], counts[2]
        for k in range(len(values)):
            value = np.int64(values[k])
            low[value & mask] += 1
            middle[(value >> width) & mask] += 1
            high[value >> (2 * width)] += 1
        return counts
    for digit in range(digits):
        here = counts[digit]
        for k in range(len(values)):
            here[(np.int64(values[k]) >> (digit * width)) & mask] += 1
    return counts


@njit(cache=True, nogil=True)
def drop_repeats(offsets, values):  # type: ignore[no-untyped-def]
    """Take what repeats out of ascending lists, in place; how many values are left."""
    kept, begin = 0, offsets[0]
    for i in range(len(offsets) - 1):
        end = offsets[i + 1]
        before = np.int64(-1)
        for k in range(begin, end):
            value = np.int64(values[k])
            kept += value != before
            values[kept - 1] = value
            before = value
        begin = end
        offsets[i + 1] = kept
    return kept
