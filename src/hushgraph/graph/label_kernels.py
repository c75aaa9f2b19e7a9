"""Compiled loops over edges: sums of labels, by counting. As `hushgraph.graph.kernels`, of which they are a part.

There are four counters per class, in turn, so that an edge need not wait for the one before it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_LEAST_LANE = 4  # bits of a counter that shares a register: in fewer, lists are cut too often
_BYTES_FULL = np.uint64(4 * 252)  # a byte counts these, and three more where a list ends
_AT_ONCE = np.uint64(1 << 12)  # entries whose messages are fetched before they are added: they stay near
_ONE, _TWO, _THREE, _FOUR = (np.uint64(number) for number in (1, 2, 3, 4))


class EqualLabels:
    """Sums of labels of one `hot` and one `cold` entry, for classes from 0 on; senders of class `columns` send nothing.

    Where classes are few, all counters of a kind share one register, a lane each; otherwise a counter is a byte.
    """

    def __init__(self, classes: np.ndarray, columns: int, hot: int, cold: int) -> None:
        self.lane = 64 // (columns + 1)
        self.is_few = self.lane >= _LEAST_LANE
        places = classes * self.lane if self.is_few else classes
        self.table = places.astype(np.uint8 if columns < 1 << 8 else np.uint16)
        self.entries = (hot, cold)

    def sums(self, sources: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Write to `out[i, j]` the sum of `hot` from each sender of i with class j and `cold` from each with another.

        Offsets as for `row_sums`.
        """
        if self.is_few:
            _sums_in_lanes(self.table, np.uint64(self.lane), *self.entries, sources, offsets, out)
        else:
            _sums_in_bytes(self.table, *self.entries, sources, offsets, out)


@njit(cache=True, nogil=True)
def _sums_in_lanes(shifts, lane, hot, cold, sources, offsets, out):  # type: ignore[no-untyped-def]
    columns, most = out.shape[1], (_ONE << lane) - _ONE
    counts, start = np.zeros(columns, dtype=np.int64), np.uint64(offsets[0])
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]) - start, np.uint64(offsets[i + 1]) - start
        counts[:] = 0
        while k < end:
            stop = min(end, k + _FOUR * most)  # before a lane can run over
            a = b = c = d = np.uint64(0)
            while k + _FOUR <= stop:
                a += _ONE << np.uint64(shifts[sources[k]])
                b += _ONE << np.uint64(shifts[sources[k + _ONE]])
                c += _ONE << np.uint64(shifts[sources[k + _TWO]])
                d += _ONE << np.uint64(shifts[sources[k + _THREE]])
                k += _FOUR
            if k < stop:  # up to three more: a fixed number of steps, some of which add nothing, beats guessing
                last = stop - _ONE
                a += _ONE << np.uint64(shifts[sources[k]])
                b += np.uint64(k + _ONE < stop) << np.uint64(shifts[sources[min(k + _ONE, last)]])
                c += np.uint64(k + _TWO < stop) << np.uint64(shifts[sources[min(k + _TWO, last)]])
                k = stop
            for j in range(columns):
                low = np.uint64(j) * lane
                counts[j] += np.int64((a >> low & most) + (b >> low & most) + (c >> low & most) + (d >> low & most))
        senders = np.int64(0)
        for j in range(columns):
            senders += counts[j]
        for j in range(columns):
            out[i, j] = counts[j] * (hot - cold) + senders * cold


@njit(cache=True, nogil=True)
def _sums_in_bytes(classes, hot, cold, sources, offsets, out):  # type: ignore[no-untyped-def]
    columns = out.shape[1]
    counts, bytes_ = np.zeros(columns + 1, dtype=np.int64), np.zeros((4, columns + 1), dtype=np.uint8)
    a, b, c, d = bytes_[0], bytes_[1], bytes_[2], bytes_[3]
    one, start = np.uint8(1), np.uint64(offsets[0])
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]) - start, np.uint64(offsets[i + 1]) - start
        counts[:] = 0
        while k < end:
            stop = min(end, k + _BYTES_FULL)  # before a byte can run over
            while k + _FOUR <= stop:
                a[classes[sources[k]]] += one
                b[classes[sources[k + _ONE]]] += one
                c[classes[sources[k + _TWO]]] += one
                d[classes[sources[k + _THREE]]] += one
                k += _FOUR
            while k < stop:
                a[classes[sources[k]]] += one
                k += _ONE
            for j in range(columns + 1):
                counts[j] += np.int64(a[j]) + np.int64(b[j]) + np.int64(c[j]) + np.int64(d[j])
            bytes_[:] = 0
        base = (np.int64(offsets[i + 1]) - np.int64(offsets[i]) - counts[columns]) * cold
        for j in range(columns):
            out[i, j] = counts[j] * (hot - cold) + base


class OwnLabels:
    """Sums of labels where every sender has its own `hot` and `cold` entry: hot >= 0 >= cold, below 2^15.

    Class, -cold and hot - cold of a sender are one number, of 32 bits where they fit.
    """

    def __init__(self, classes: np.ndarray, columns: int, hot: np.ndarray, cold: np.ndarray) -> None:
        more, less = (hot - cold).astype(np.uint64), (-cold).astype(np.uint64)
        self.less_at = int(columns).bit_length()
        self.more_at = self.less_at + int(less.max(initial=0)).bit_length()
        packed = classes.astype(np.uint64) | less << np.uint64(self.less_at) | more << np.uint64(self.more_at)
        is_short = self.more_at + int(more.max(initial=0)).bit_length() <= 32
        self.table = packed.astype(np.uint32) if is_short else packed

    def sums(self, sources: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Write to `out[i, j]` the sum of the `hot` of the senders of i with class j and the `cold` of the others."""
        _own_label_sums(self.table, np.uint64(self.less_at), np.uint64(self.more_at), sources, offsets, out)


@njit(cache=True, nogil=True)
def _own_label_sums(packed, less_at, more_at, sources, offsets, out):  # type: ignore[no-untyped-def]
    columns, size = out.shape[1], np.uint64(len(sources))
    totals = np.zeros((2, columns + 1), dtype=np.uint64)
    a, b = totals[0], totals[1]
    low, middle = (_ONE << less_at) - _ONE, (_ONE << (more_at - less_at)) - _ONE
    # What senders send is fetched for some entries at once: their loads wait for no counter, and so not for each other.
    near, first, until = np.empty(_AT_ONCE, dtype=packed.dtype), np.uint64(0), np.uint64(0)
    start = np.uint64(offsets[0])
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]) - start, np.uint64(offsets[i + 1]) - start
        less = np.uint64(0)
        while k < end:
            if k >= until:
                first, until = k, min(k + _AT_ONCE, size)
                for j in range(until - first):
                    near[j] = packed[sources[first + np.uint64(j)]]
            x, stop = k - first, min(end, until) - first
            k = stop + first
            for j in range(x, stop):
                less += np.uint64(near[j]) >> less_at & middle
            while x + _TWO <= stop:
                p, q = np.uint64(near[x]), np.uint64(near[x + _ONE])
                a[p & low] += p >> more_at
                b[q & low] += q >> more_at
                x += _TWO
            if x < stop:
                p = np.uint64(near[x])
                a[p & low] += p >> more_at
        for j in range(columns):
            out[i, j] = np.int64(a[j] + b[j]) - np.int64(less)
        totals[:] = 0
