"""Compiled loops over edges: sums of labels. As `hushgraph.graph.kernels`, of which they are a part.

Where classes are few, the rows that labels stand for are as few, stay near, and are added as they are. Otherwise
classes are counted, or entries added by class: one step per edge, however many classes there are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hushgraph.graph.kernels import AHEAD, CACHED_CODES, coded_row_sums
from hushgraph.graph.row_loop import fetch, fetch_ahead

ROW_LOOP = "1e7d4b4a38bf"
"""How the SHA-256 of `row_loop.py` begins: what is compiled from it is kept until the file here changes."""
_WIDTHS = (16, 32)  # columns of rows: with more classes, counting takes less time
_MOST_ROWS = 1 << 14  # half a megabyte, or one
_BYTES_FULL = np.uint64(4 * 252)  # a byte counts these, and three more where a list ends
_AT_ONCE = np.uint64(1 << 12)  # entries whose messages are fetched before they are added: they stay near
_LINE = 8  # sources read after one fetch
_ONE, _TWO, _THREE, _FOUR = (np.uint64(number) for number in (1, 2, 3, 4))


class EqualLabels:
    """Sums of labels of one `hot` and one `cold` entry, for classes from 0 on; senders of class `columns` send nothing.

    Many classes are counted, by four counters in turn, so that an edge need not wait for the one before it.
    """

    def __init__(self, classes: np.ndarray, columns: int, hot: int, cold: int) -> None:
        self.codes = classes.astype(np.uint8 if columns < 1 << 8 else np.uint16)
        self.rows = _rows(columns, np.array([hot]), np.array([cold])) if columns <= _WIDTHS[-1] else None
        self.entries = (hot, cold)

    def sums(self, sources: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Write to `out[i, j]` the sum of `hot` from each sender of i with class j and `cold` from each with another.

        Offsets as for `row_sums`.
        """
        if self.rows is not None:
            coded_row_sums(self.rows, self.codes, sources, offsets, out)
        else:
            _sums_in_bytes(self.codes, *self.entries, sources, offsets, out)


def _rows(columns: int, hot: np.ndarray, cold: np.ndarray) -> np.ndarray:
    """The rows of every class, first for the first `hot` and `cold`, then for the next; the last row is of zeros."""
    width = min(width for width in _WIDTHS if width >= columns)
    rows = np.zeros((len(hot) * columns + 1, width), dtype=np.int16)
    blocks = rows[:-1].reshape(len(hot), columns, width)
    blocks[:, :, :columns] = cold[:, None, None]
    blocks[:, np.arange(columns), np.arange(columns)] = hot[:, None]
    return rows


@njit(cache=True, nogil=True)
def _sums_in_bytes(classes, hot, cold, sources, offsets, out):  # type: ignore[no-untyped-def]
    columns, size = out.shape[1], np.uint64(len(sources))
    counts, bytes_ = np.zeros(columns + 1, dtype=np.int64), np.zeros((4, columns + 1), dtype=np.uint8)
    a, b, c, d = bytes_[0], bytes_[1], bytes_[2], bytes_[3]
    near, first, until = np.empty(_AT_ONCE, dtype=classes.dtype), np.uint64(0), np.uint64(0)
    one, start = np.uint8(1), np.uint64(offsets[0])
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]) - start, np.uint64(offsets[i + 1]) - start
        counts[:] = 0
        while k < end:
            if k >= until:
                first, until = k, min(k + _AT_ONCE, size)
                _fetch(classes, sources[first:], near[: until - first])
            x, stop = k - first, min(min(end, until), k + _BYTES_FULL) - first  # before a byte can run over
            k = stop + first
            while x + _FOUR <= stop:
                a[near[x]] += one
                b[near[x + _ONE]] += one
                c[near[x + _TWO]] += one
                d[near[x + _THREE]] += one
                x += _FOUR
            while x < stop:
                a[near[x]] += one
                x += _ONE
            for j in range(columns + 1):
                counts[j] += np.int64(a[j]) + np.int64(b[j]) + np.int64(c[j]) + np.int64(d[j])
            bytes_[:] = 0
        base = (np.int64(offsets[i + 1]) - np.int64(offsets[i]) - counts[columns]) * cold
        for j in range(columns):
            out[i, j] = counts[j] * (hot - cold) + base


class OwnLabels:
    """Sums of labels where every sender has its own `hot` and `cold` entry: hot >= 0 >= cold, below 2^15.

    Senders of class `columns` send nothing. Entries that depend on the length of a list are few, and so are the rows.
    """

    def __init__(self, classes: np.ndarray, columns: int, hot: np.ndarray, cold: np.ndarray) -> None:
        self.rows: np.ndarray | None = None
        if columns <= _WIDTHS[-1]:
            self.codes, kinds = np.empty(len(classes), dtype=np.uint16), np.empty((2, _MOST_ROWS), dtype=np.int64)
            count = _code(classes, columns, hot, cold, self.codes, kinds[:, : (_MOST_ROWS - 1) // columns])
            self.rows = _rows(columns, *kinds[:, :count]) if count >= 0 else None
        if self.rows is None:
            self._pack(classes, columns, *(np.where(classes < columns, part, 0) for part in (hot, cold)))

    def _pack(self, classes: np.ndarray, columns: int, hot: np.ndarray, cold: np.ndarray) -> None:
        """Class, -cold and hot - cold of a sender as one number, of 32 bits where they fit."""
        more, less = (hot - cold).astype(np.uint64), (-cold).astype(np.uint64)
        self.less_at = int(columns).bit_length()
        self.more_at = self.less_at + int(less.max(initial=0)).bit_length()
        packed = classes.astype(np.uint64) | less << np.uint64(self.less_at) | more << np.uint64(self.more_at)
        is_short = self.more_at + int(more.max(initial=0)).bit_length() <= 32
        self.table = packed.astype(np.uint32) if is_short else packed

    def sums(self, sources: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Write to `out[i, j]` the sum of the `hot` of the senders of i with class j and the `cold` of the others."""
        if self.rows is not None:
            coded_row_sums(self.rows, self.codes, sources, offsets, out)
        else:
            _own_label_sums(self.table, np.uint64(self.less_at), np.uint64(self.more_at), sources, offsets, out)


@njit(cache=True, nogil=True)
def _code(classes, columns, hot, cold, codes, kinds):  # type: ignore[no-untyped-def]
    """Number the rows of `_rows` that nodes send, and write the distinct entries; how many there are.

    -1 where they are too many, or one `hot` has several `cold`.
    """
    number_of, count = np.full(1 << 15, -1, dtype=np.int32), 0
    for v in range(len(classes)):
        if classes[v] == columns:
            continue
        number = number_of[hot[v]]
        if number < 0:
            if count == kinds.shape[1]:
                return -1
            number = number_of[hot[v]] = count
            kinds[0, number], kinds[1, number] = hot[v], cold[v]
            count += 1
        elif kinds[1, number] != cold[v]:
            return -1
        codes[v] = number * columns + classes[v]
    for v in range(len(classes)):
        if classes[v] == columns:
            codes[v] = count * columns
    return count


@njit(cache=True, nogil=True)
def _fetch(sent, sources, near):  # type: ignore[no-untyped-def]
    """Write what the first sources send to `near`: loads that wait for no counter, and so not for each other."""
    size, last, is_far = len(near), len(sources) - 1, sent.nbytes > CACHED_CODES
    whole = size // _LINE * _LINE
    for first in range(0, whole, _LINE):
        fetch_ahead(sources, np.uintp(first))  # type: ignore[call-arg]
        if is_far:
            for later in range(first + AHEAD, first + AHEAD + _LINE):
                fetch(sent, np.uintp(sources[min(later, last)]))
        for j in range(_LINE):
            near[first + j] = sent[sources[first + j]]
    for j in range(whole, size):
        near[j] = sent[sources[j]]


@njit(cache=True, nogil=True)
def _own_label_sums(packed, less_at, more_at, sources, offsets, out):  # type: ignore[no-untyped-def]
    columns, size = out.shape[1], np.uint64(len(sources))
    totals = np.zeros((2, columns + 1), dtype=np.uint64)
    a, b = totals[0], totals[1]
    low, middle = (_ONE << less_at) - _ONE, (_ONE << (more_at - less_at)) - _ONE
    near, first, until = np.empty(_AT_ONCE, dtype=packed.dtype), np.uint64(0), np.uint64(0)
    start = np.uint64(offsets[0])
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]) - start, np.uint64(offsets[i + 1]) - start
        less = np.uint64(0)
        while k < end:
            if k >= until:
                first, until = k, min(k + _AT_ONCE, size)
                _fetch(packed, sources[first:], near[: until - first])
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
