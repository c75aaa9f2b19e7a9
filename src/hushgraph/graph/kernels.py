"""Compiled loops over edges: exact sums of 16-bit rows, and the order of edges by target.

They need numba (the extra `fast`) and are imported only where a graph is large enough to be worth it
(`hushgraph.graph.sums.kernels_for`). All of them compute whole numbers, so that what they return is the same, bit for
bit, as without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from hushgraph.graph.row_loop import LINE, add_rows, fetch_ahead, store_line

ROW_LOOP = "1e7d4b4a38bf"
"""How the SHA-256 of `row_loop.py` begins: what is compiled from it is kept until the file here changes."""
FLUSH = (1 << 16) - 1
"""Rows that are added in 32 bits: 2^16 - 1 entries of at most 2^15 stay below 2^31, whatever the bound on rows is."""

_WIDTHS = (1, 2, 4, 8, 16, 32, 48, 64)
AHEAD = 128
"""Edges before its turn at which what a node sends is fetched."""
CACHED_CODES = 1 << 22
"""Codes of nodes that take so many bytes or fewer come from the processor's caches: fetching ahead only costs there."""
_CACHED_ROWS = 1 << 24  # the same of rows, each of which is a line or half of one
_LINE = 16  # sources that come with one fetch
_LEAST_IN_LINES = 1 << 25  # edges from which dealing them out in whole lines of memory takes less time
_LEAST_LONG = 1 << 32  # edges whose positions need more than 32 bits
_ONE = np.uint64(1)
_DIGIT = 11  # bits of a node number sorted at a time: so many counters stay in the nearest cache
_HIGH, _LOW, _FACTOR = np.uint64(30), np.uint64(27), np.uint64(0xBF58476D1CE4E5B9)  # of `disk.hashes`
_HALF = np.uint64(32)
_MOST_RANGE_BITS, _IN_RANGE_BITS = 11, 15  # ranges of about 2^15 edges: in the cache, and many beside the counters


# Sums of rows


def tables(values: np.ndarray) -> list[np.ndarray]:
    """The columns of int16 rows in parts that a loop exists for, each part padded with zeros: for `row_sums`."""
    parts = []
    for first in range(0, values.shape[1], _WIDTHS[-1]):
        part = values[:, first : first + _WIDTHS[-1]]
        missing = min(width for width in _WIDTHS if width >= part.shape[1]) - part.shape[1]
        parts.append(np.ascontiguousarray(np.pad(part, ((0, 0), (0, missing))) if missing else part))
    return parts


def row_sums(parts: list[np.ndarray], sources: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Write the sum of the rows `sources[offsets[i] - offsets[0] : offsets[i + 1] - offsets[0]]` to `out[i]`.

    The result has 64 bits, or 32 where sums fit.
    """
    for number, part in enumerate(parts):
        first = number * _WIDTHS[-1]
        run = _row_sums(part.shape[1], AHEAD if part.nbytes > _CACHED_ROWS else 0, 8 * out.itemsize)
        run(part, sources, sources, offsets, out[:, first : first + _WIDTHS[-1]])


def coded_row_sums(
    table: np.ndarray, codes: np.ndarray, sources: np.ndarray, offsets: np.ndarray, out: np.ndarray
) -> None:
    """The same, where node v has the row `codes[v]` of a table (as wide as `tables` makes them)."""
    ahead = AHEAD if codes.nbytes > CACHED_CODES else 0
    _row_sums(table.shape[1], ahead, 8 * out.itemsize, 8 * codes.itemsize)(table, codes, sources, offsets, out)


@cache
def _row_sums(width: int, ahead: int, bits: int, code_bits: int = 0) -> Callable[..., None]:
    @njit(cache=True, nogil=True)
    def run(table, codes, sources, offsets, out):  # type: ignore[no-untyped-def]
        start, columns, targets = np.intp(offsets[0]), out.shape[1], len(offsets) - 1
        rows, of = np.uintp(table.ctypes.data), np.uintp(codes.ctypes.data)
        nodes, size, piece = np.uintp(sources.ctypes.data), np.intp(len(sources)), np.empty(width, dtype=out.dtype)
        is_whole = out.strides[0] == columns * out.itemsize
        for i in range(targets):
            begin, end = np.intp(offsets[i]) - start, np.intp(offsets[i + 1]) - start
            # What is written behind the last column is where later rows are still to be written.
            has_room = columns == width or (is_whole and (targets - i) * columns >= width)
            if has_room and end - begin <= FLUSH:
                place = np.uintp(out.ctypes.data + i * out.strides[0])
                add_rows(width, ahead, bits, code_bits, rows, of, nodes, begin, end, size, place)  # type: ignore[call-arg]
                continue
            out[i, :] = 0
            while begin < end:
                stop, place = min(end, begin + FLUSH), np.uintp(piece.ctypes.data)
                add_rows(width, ahead, bits, code_bits, rows, of, nodes, begin, stop, size, place)  # type: ignore[call-arg]
                for j in range(columns):
                    out[i, j] += piece[j]
                begin = stop

    return run


# Lists by sender


@njit(cache=True, nogil=True)
def count(sources, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[v]` how often v is among the sources."""
    whole = len(sources) // _LINE * _LINE
    for first in range(0, whole, _LINE):
        fetch_ahead(sources, np.uintp(first))  # type: ignore[call-arg]
        for k in range(_LINE):
            counts[sources[first + k]] += 1
    for k in range(whole, len(sources)):
        counts[sources[k]] += 1


# Edges by target: ranges of targets first, then, within the cache, by source and by target


def by_target(
    source: np.ndarray, target: np.ndarray, offsets: np.ndarray, sources: np.ndarray, num_sources: int
) -> None:
    """Write the sources of every target, in increasing order, to `sources`, and where each list begins to `offsets`."""
    target_bits, source_bits = (max((count - 1).bit_length(), 1) for count in (len(offsets) - 1, num_sources))
    most = min(target_bits, _MOST_RANGE_BITS)
    short = target_bits + source_bits - most <= 32  # so many bits tell two edges of a range apart
    range_bits = min(most, (len(target) >> _IN_RANGE_BITS).bit_length())
    range_bits = max(range_bits, target_bits + source_bits - 32) if short else range_bits
    # Short pairs take the place of the lists that they become.
    pairs = sources.view(np.uint32) if short else np.empty(len(target), dtype=np.uint64)
    digits = (source_bits + _DIGIT - 1) // _DIGIT
    width = (source_bits + digits - 1) // digits
    counts = np.empty((digits, 1 << width), dtype=np.uint32 if len(target) < _LEAST_LONG else np.uint64)
    bits = (np.uint64(number) for number in (target_bits - range_bits, source_bits, width))
    # Of a number without a sign nobody asks whether it counts from the end.
    ends = (one.view(f"u{one.itemsize}") for one in (source, target))
    starts, in_lines = np.zeros((1 << range_bits) + 1, dtype=counts.dtype), len(target) >= _LEAST_IN_LINES
    _by_target(*ends, pairs, in_lines, starts, *bits, counts, offsets, sources)  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def _by_target(source, target, pairs, in_lines, starts, shift, node_bits, width, counts, offsets, sources):  # type: ignore[no-untyped-def]
    for k in range(len(target)):
        fetch_ahead(target, np.uintp(k))  # type: ignore[call-arg]
        starts[(np.uint64(target[k]) >> shift) + _ONE] += _ONE
    largest = starts.max()
    for i in range(len(starts) - 1):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    if in_lines:
        _deal_out_in_lines(source, target, pairs, shift, node_bits, place)
    else:
        _deal_out(source, target, pairs, shift, node_bits, place)
    one, other = np.empty(largest, dtype=pairs.dtype), np.empty(largest, dtype=pairs.dtype)
    for i in range(len(place)):
        begin, end = starts[i], starts[i + 1]
        part = _by_low_bits(pairs[begin:end], one[: end - begin], other[: end - begin], node_bits, width, counts)
        first = np.uint64(i) << shift
        _write_lists(part, node_bits, begin, counts.dtype, offsets[first : first + (_ONE << shift)], sources[begin:end])
    offsets[len(offsets) - 1] = len(target)


@njit(cache=True, nogil=True)
def _deal_out(source, target, pairs, shift, node_bits, place):  # type: ignore[no-untyped-def]
    """Write `(target - first of its range) << node_bits | source` of every edge to `place` of its range."""
    within = (_ONE << shift) - _ONE
    for k in range(len(target)):
        fetch_ahead(target, np.uintp(k))  # type: ignore[call-arg]
        fetch_ahead(source, np.uintp(k))
        node = np.uint64(target[k])
        number = node >> shift
        pairs[place[number]] = ((node & within) << node_bits) | np.uint64(source[k])
        place[number] += _ONE


@njit(cache=True, nogil=True)
def _deal_out_in_lines(source, target, pairs, shift, node_bits, place):  # type: ignore[no-untyped-def]
    """The same, by way of a line for each range, which is written when it is full: memory is not read for it first."""
    each, begin = np.uint64(LINE // pairs.itemsize), np.uint64(pairs.ctypes.data)
    within, last = (_ONE << shift) - _ONE, each - _ONE
    skew = begin // np.uint64(pairs.itemsize) & last  # a pair's place in its line, less its place in the array
    lines = np.empty((len(place) + 1) * each, dtype=pairs.dtype)
    lines = lines[(each - (np.uint64(lines.ctypes.data) // np.uint64(pairs.itemsize) & last)) & last :]
    kept, first = np.uint64(lines.ctypes.data), place.copy()
    for k in range(len(target)):
        fetch_ahead(target, np.uintp(k))  # type: ignore[call-arg]
        fetch_ahead(source, np.uintp(k))
        node = np.uint64(target[k])
        number = node >> shift
        at, line = np.uint64(place[number]), number * each
        of = (at + skew) & last
        lines[line + of] = ((node & within) << node_bits) | np.uint64(source[k])
        place[number] += _ONE
        if of == last:
            if at >= first[number] + last:
                to = begin + (at - last) * np.uint64(pairs.itemsize)
                store_line(to, kept + line * np.uint64(pairs.itemsize))
            else:  # an array or a range begins within this line
                for other in range(np.uint64(first[number]), at + _ONE):
                    pairs[other] = lines[line + ((other + skew) & last)]
    for number in range(len(place)):
        end, line = np.uint64(place[number]), np.uint64(number) * each
        left = min((end + skew) & last, end - np.uint64(first[number]))
        for other in range(end - left, end):
            pairs[other] = lines[line + ((other + skew) & last)]


@njit(cache=True, nogil=True)
def _by_low_bits(values, spare, next_spare, bits, width, counts):  # type: ignore[no-untyped-def]
    """The values sorted by their lowest bits, a digit of so many at a time, in one of the two spare arrays."""
    _count_digits(values, bits, width, counts)
    for digit in range(len(counts)):
        low = np.uint64(digit) * width
        place, mask = counts[digit], (_ONE << min(width, bits - low)) - _ONE
        begin = np.uint64(0)
        for number in range(mask + _ONE):
            count = place[number]
            place[number] = begin
            begin += count
        for k in range(len(values)):
            value = np.uint64(values[k])
            number = (value >> low) & mask
            spare[place[number]] = value
            place[number] += _ONE
        values, spare, next_spare = spare, next_spare, spare
    return values


@njit(cache=True, nogil=True)
def _count_digits(values, bits, width, counts):  # type: ignore[no-untyped-def]
    """How often each value of each digit occurs: all digits of a value while it is at hand, two of them at a time."""
    digits, nothing = len(counts), np.uint64(0)
    counts[:] = 0
    for first in range(0, digits, 2):
        low = np.uint64(first) * width
        high = min(low + width, bits)
        here, mask = counts[first], (_ONE << (high - low)) - _ONE
        left = min(width, bits - high) if bits > high else nothing
        there, rest = counts[min(first + 1, digits - 1)], (_ONE << left) - _ONE
        if first + 1 == digits:
            for k in range(len(values)):
                fetch_ahead(values, np.uintp(k))  # type: ignore[call-arg]
                here[(np.uint64(values[k]) >> low) & mask] += _ONE
        else:
            for k in range(len(values)):
                fetch_ahead(values, np.uintp(k))  # type: ignore[call-arg]
                value = np.uint64(values[k])
                here[(value >> low) & mask] += _ONE
                there[(value >> high) & rest] += _ONE


@njit(cache=True, nogil=True)
def _write_lists(pairs, node_bits, begin, kind, offsets, sources):  # type: ignore[no-untyped-def]
    """Deal pairs that are sorted by source out to their targets, and say where each target's list begins."""
    place = np.zeros(len(offsets) + 1, dtype=kind)
    for k in range(len(pairs)):
        place[(np.uint64(pairs[k]) >> node_bits) + _ONE] += _ONE
    for i in range(len(offsets)):
        offsets[i] = begin + place[i]
        place[i + 1] += place[i]
    mask = (_ONE << node_bits) - _ONE
    for k in range(len(pairs)):
        pair = np.uint64(pairs[k])
        number = pair >> node_bits
        sources[place[number]] = pair & mask
        place[number] += _ONE


# Whole lists


@njit(cache=True, nogil=True)
def lists_of(nodes, offsets, values, out):  # type: ignore[no-untyped-def]
    """Write the lists `values[offsets[i] - offsets[0] : ...]` of the nodes of a boolean mask to `out`, in order."""
    place, start = 0, offsets[0]
    for i in range(len(nodes)):
        if nodes[i]:
            for k in range(offsets[i] - start, offsets[i + 1] - start):
                out[place] = values[k]
                place += 1


@njit(cache=True, nogil=True)
def balance(first, offsets, sources, key):  # type: ignore[no-untyped-def]
    """The keyed hashes of all edges (target, source) less those of (source, target), added up modulo 2^64."""
    total, start = np.uint64(0), offsets[0]
    for i in range(len(offsets) - 1):
        target = np.uint64(first + i)
        for k in range(offsets[i] - start, offsets[i + 1] - start):
            source = np.uint64(sources[k])
            total += _hash(target << _HALF | source, key) - _hash(source << _HALF | target, key)
    return total


@njit(cache=True, nogil=True, inline="always")
def _hash(value, key):  # type: ignore[no-untyped-def]
    """As `disk.hashes`."""
    for _ in range(2):
        value += key
        value ^= value >> _HIGH
        value *= _FACTOR
        value ^= value >> _LOW
    return value
