"""Compiled loops over edges: exact sums of 16-bit rows, and the order of edges by target.

They need numba (the extra `fast`) and are imported only where a graph is large enough to be worth it
(`hushgraph.graph.sums.kernels_for`). All of them compute whole numbers, so that what they return is the same, bit for
bit, as without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

FLUSH = (1 << 16) - 1
"""Rows that are added in 32 bits: 2^16 - 1 entries of at most 2^15 stay below 2^31, whatever the bound on rows is."""

_WIDTHS = (1, 2, 4, 8, 16, 32, 48, 64)
_AHEAD = 32  # rows fetched before their turn
_CACHED_BYTES = 1 << 24  # tables up to this size come from the processor's caches: fetching ahead only costs there
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
        run = _row_sums(part.shape[1], _AHEAD if part.nbytes > _CACHED_BYTES else 0, 8 * out.itemsize)
        run(part, sources, offsets, out[:, first : first + _WIDTHS[-1]])


@cache
def _row_sums(width: int, ahead: int, bits: int) -> Callable[..., None]:
    @njit(cache=True, nogil=True)
    def run(table, sources, offsets, out):  # type: ignore[no-untyped-def]
        start, columns = np.intp(offsets[0]), out.shape[1]
        rows, nodes = np.uintp(table.ctypes.data), np.uintp(sources.ctypes.data)
        size, piece = np.intp(len(sources)), np.empty(width, dtype=out.dtype)
        for i in range(len(offsets) - 1):
            begin, end = np.intp(offsets[i]) - start, np.intp(offsets[i + 1]) - start
            if columns == width and end - begin <= FLUSH:
                place = np.uintp(out.ctypes.data + i * out.strides[0])
                _add_rows(width, ahead, bits, rows, nodes, begin, end, size, place)  # type: ignore[call-arg]
                continue
            out[i, :] = 0
            while begin < end:
                stop, place = min(end, begin + FLUSH), np.uintp(piece.ctypes.data)
                _add_rows(width, ahead, bits, rows, nodes, begin, stop, size, place)  # type: ignore[call-arg]
                for j in range(columns):
                    out[i, j] += piece[j]
                begin = stop

    return run


@intrinsic
def _add_rows(typing, width, ahead, bits, table, sources, begin, end, size, place):  # type: ignore[no-untyped-def]
    """Add the int16 rows of `sources[begin:end]` in 32 bits and write the sum to `place`, in so many `bits`.

    Written out because one vector register per 16 columns must hold the partial sum: an array is not kept in registers.
    """
    known = (width, ahead, bits)
    if not all(isinstance(one, types.IntegerLiteral) for one in known):
        return None
    pointer, number = types.uintp, types.intp
    signature = types.void(*known, pointer, pointer, number, number, number, pointer)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _emit_row_loop(builder, *(one.literal_value for one in known), *values[3:])
        return context.get_dummy_value()

    return signature, code


def _emit_row_loop(b: Any, width: int, ahead: int, bits: int, table: Any, sources: Any, *bounds: Any) -> None:
    begin, end, size, place = bounds
    i16, i32, i64 = (ir.IntType(bits) for bits in (16, 32, 64))
    short, middle, wide = (ir.VectorType(kind, width) for kind in (i16, i32, i64))
    before, loop, done = b.block, b.append_basic_block("rows"), b.append_basic_block("summed")
    nodes, none = b.inttoptr(sources, i32.as_pointer()), ir.Constant(middle, [0] * width)

    def row_of(position: Any) -> Any:
        node = b.zext(b.load(b.gep(nodes, [position])), i64)
        return b.add(table, b.mul(node, ir.Constant(i64, 2 * width)))

    b.cbranch(b.icmp_signed("<", begin, end), loop, done)
    b.position_at_end(loop)
    position, partial = b.phi(i64), b.phi(middle)
    if ahead:
        later = b.add(position, ir.Constant(i64, ahead))
        later = b.select(b.icmp_signed("<", later, size), later, position)
        _emit_prefetch(b, row_of(later), 2 * width)
    row = b.load(b.inttoptr(row_of(position), short.as_pointer()), align=2)
    added, following = b.add(partial, b.sext(row, middle)), b.add(position, ir.Constant(i64, 1))
    for phi, first, later in ((position, begin, following), (partial, none, added)):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    b.cbranch(b.icmp_signed("<", following, end), loop, done)
    b.position_at_end(done)
    result = b.phi(middle)
    result.add_incoming(none, before)
    result.add_incoming(added, loop)
    result = b.sext(result, wide) if bits == 64 else result
    b.store(result, b.inttoptr(place, result.type.as_pointer()), align=bits // 8)


def _emit_prefetch(b: Any, address: Any, num_bytes: int) -> None:
    """Ask for the cache lines of a row: to read (0), to be kept near (3), data and not code (1)."""
    i8, i32, i64 = (ir.IntType(bits) for bits in (8, 32, 64))
    kind = ir.FunctionType(ir.VoidType(), [i8.as_pointer(), i32, i32, i32])
    prefetch = b.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
    for line in range(0, num_bytes, 64):
        place = b.inttoptr(b.add(address, ir.Constant(i64, line)), i8.as_pointer())
        b.call(prefetch, [place, *(ir.Constant(i32, value) for value in (0, 3, 1))])


# Lists by sender


@njit(cache=True, nogil=True)
def count(sources, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[v]` how often v is among the sources."""
    for k in range(len(sources)):
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
    pairs = np.empty(len(target), dtype=np.uint32 if short else np.int64)
    _by_target(source, target, pairs, target_bits, source_bits, range_bits, offsets, sources)


@njit(cache=True, nogil=True)
def _by_target(source, target, pairs, target_bits, node_bits, range_bits, offsets, sources):  # type: ignore[no-untyped-def]
    shift, num_ranges = target_bits - range_bits, 1 << range_bits
    starts = np.zeros(num_ranges + 1, dtype=np.int64)
    for k in range(len(target)):
        starts[(target[k] >> shift) + 1] += 1
    largest = starts.max()
    for i in range(num_ranges):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    within = (np.int64(1) << shift) - 1
    for k in range(len(target)):
        number = target[k] >> shift
        pairs[place[number]] = ((np.int64(target[k]) & within) << node_bits) | np.int64(source[k])
        place[number] += 1
    spare = np.empty(largest, dtype=pairs.dtype)
    for i in range(num_ranges):
        begin, end = starts[i], starts[i + 1]
        part = _by_low_bits(pairs[begin:end], spare[: end - begin], node_bits)
        first = i << shift
        _write_lists(part, node_bits, begin, offsets[first : first + within + 1], sources[begin:end])
    offsets[len(offsets) - 1] = len(target)


@njit(cache=True, nogil=True)
def _by_low_bits(values, spare, bits):  # type: ignore[no-untyped-def]
    """The values sorted by their lowest bits, a digit at a time, in one of the two arrays."""
    digits = (bits + _DIGIT - 1) // _DIGIT
    width = (bits + digits - 1) // digits
    counts = _digit_counts(values, bits, digits, width)
    for digit in range(digits):
        low = digit * width
        place, mask = counts[digit], (np.int64(1) << min(width, bits - low)) - 1
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
def _digit_counts(values, bits, digits, width):  # type: ignore[no-untyped-def]
    """How often each value of each digit occurs: all digits of a value while it is at hand, two of them at a time."""
    counts = np.zeros((digits, 1 << width), dtype=np.int64)
    for first in range(0, digits, 2):
        low, high = first * width, min((first + 1) * width, bits)
        here, mask = counts[first], (np.int64(1) << (high - low)) - 1
        there, rest = counts[min(first + 1, digits - 1)], (np.int64(1) << min(width, max(bits - high, 0))) - 1
        if first + 1 == digits:
            for k in range(len(values)):
                here[(np.int64(values[k]) >> low) & mask] += 1
        else:
            for k in range(len(values)):
                value = np.int64(values[k])
                here[(value >> low) & mask] += 1
                there[(value >> high) & rest] += 1
    return counts


@njit(cache=True, nogil=True)
def _write_lists(pairs, node_bits, begin, offsets, sources):  # type: ignore[no-untyped-def]
    """Deal pairs that are sorted by source out to their targets, and say where each target's list begins."""
    place = np.zeros(len(offsets) + 1, dtype=np.int64)
    for k in range(len(pairs)):
        place[(np.int64(pairs[k]) >> node_bits) + 1] += 1
    for i in range(len(offsets)):
        offsets[i] = begin + place[i]
        place[i + 1] += place[i]
    mask = (np.int64(1) << node_bits) - 1
    for k in range(len(pairs)):
        pair = np.int64(pairs[k])
        number = pair >> node_bits
        sources[place[number]] = pair & mask
        place[number] += 1


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
