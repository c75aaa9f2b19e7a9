"""Loops of approximate personalized PageRank, one source after the other; compiled where numba is installed.

The walk is lazy: W = (I + A D^-1) / 2. Both ways keep an estimate p and the residual
r = s - (I - (1 - alpha) W) p / alpha, whose largest r / d decides when to stop. Only nodes that the source reaches are
touched, so the work does not depend on the size of the graph. The same code runs without numba, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:  # pragma: no cover - the extra `fast` is not installed

    def njit(**options: Any) -> Callable[[Any], Any]:  # type: ignore[no-redef]
        """No compiler: the function as it is."""
        return lambda function: function


@njit(cache=True, nogil=True)
def grown(values, size):  # type: ignore[no-untyped-def]
    """The array with at least `size` places."""
    if size <= len(values):
        return values
    larger = np.empty(max(size, 2 * len(values)), dtype=values.dtype)
    larger[: len(values)] = values
    return larger


@njit(cache=True, nogil=True)
def _row_taken(p, rest, seen, touched, columns, values, filled):  # type: ignore[no-untyped-def]
    """Put what is above zero in `p` behind the rows so far and clear what was touched; the arrays and their new end."""
    columns, values = grown(columns, filled + len(touched)), grown(values, filled + len(touched))
    for i in touched:
        if p[i] > 0.0:
            columns[filled], values[filled] = i, p[i]
            filled += 1
        p[i], rest[i], seen[i] = 0.0, 0.0, False
    return columns, values, filled


@njit(cache=True, nogil=True)
def ista_rows(offsets, neighbors, sources, alpha, rho, gamma, by_degree):  # type: ignore[no-untyped-def]
    """Rows of all sources by ISTA: (ends, columns, values). `by_degree`: a node's step is its degree, not 1.

    `g` is the gradient times the degree, so that a node passes the same number on to all its neighbors.
    """
    nodes = len(offsets) - 1
    p, g, delta = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    seen, touched, active = np.zeros(nodes, dtype=np.bool_), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    ends, columns, values = np.zeros(len(sources) + 1, np.int64), np.empty(1024, np.int64), np.empty(1024)
    degrees = (offsets[1:] - offsets[:-1]).astype(np.float64)
    limit, shrink, spread = (1.0 + gamma) * rho * alpha, rho * alpha, 0.5 * (1.0 - alpha)
    for number in range(len(sources)):
        source = sources[number]
        touched[0], seen[source], reached = source, True, 1
        if degrees[source] == 0.0:
            p[source] = max(0.0, 1.0 - rho)  # a walk that cannot leave
        else:
            g[source] = -alpha
        while True:
            goes_on, moved = False, 0
            for k in range(reached):
                i = touched[k]
                least = degrees[i] * shrink
                goes_on = goes_on or abs(g[i]) > degrees[i] * limit
                if by_degree:
                    if p[i] - g[i] >= least:
                        delta[i] = -(g[i] + least)
                        active[moved] = i
                        moved += 1
                elif degrees[i] > 0.0 and degrees[i] * p[i] - g[i] >= least:
                    delta[i] = -(g[i] + least) / degrees[i]
                    active[moved] = i
                    moved += 1
            if not goes_on or moved == 0:
                break
            for k in range(moved):
                i = active[k]
                passed = spread * delta[i] / degrees[i]
                p[i] += delta[i]
                g[i] += delta[i] - spread * delta[i]
                for e in range(offsets[i], offsets[i + 1]):
                    j = neighbors[e]
                    if not seen[j]:
                        seen[j], touched[reached] = True, j
                        reached += 1
                    g[j] -= passed
        columns, values, ends[number + 1] = _row_taken(p, g, seen, touched[:reached], columns, values, ends[number])
    return ends, columns[: ends[-1]], values[: ends[-1]]


@njit(cache=True, nogil=True)
def push_rows(offsets, neighbors, sources, alpha, rho):  # type: ignore[no-untyped-def]
    """Rows of all sources by pushing residuals of at least rho times the degree along, first come first served."""
    nodes = len(offsets) - 1
    p, r = np.zeros(nodes), np.zeros(nodes)
    seen, waits = np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_)
    touched, queue = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    ends, columns, values = np.zeros(len(sources) + 1, np.int64), np.empty(1024, np.int64), np.empty(1024)
    for number in range(len(sources)):
        source = sources[number]
        touched[0], seen[source], reached = source, True, 1
        head, waiting = 0, 0
        if offsets[source + 1] == offsets[source]:
            p[source] = 1.0
        else:
            r[source], queue[0], waits[source], waiting = 1.0, source, True, 1
        while waiting:
            i = queue[head]
            head, waiting, waits[i] = (head + 1) % nodes, waiting - 1, False
            degree = offsets[i + 1] - offsets[i]
            if r[i] < rho * degree:
                continue
            # a lazy walk comes back: pushing until the residual is small again, in one go
            times = int(np.ceil(np.log(rho * degree / r[i]) / np.log(0.5 * (1.0 - alpha))))
            left = r[i] * (0.5 * (1.0 - alpha)) ** max(times, 1)
            gone = (r[i] - left) / (0.5 * (1.0 + alpha))
            p[i] += alpha * gone
            r[i] = left
            share = 0.5 * (1.0 - alpha) * gone / degree
            for e in range(offsets[i], offsets[i + 1]):
                j = neighbors[e]
                if not seen[j]:
                    seen[j], touched[reached] = True, j
                    reached += 1
                r[j] += share
                if not waits[j] and r[j] >= rho * (offsets[j + 1] - offsets[j]):
                    queue[(head + waiting) % nodes], waits[j] = j, True
                    waiting += 1
        columns, values, ends[number + 1] = _row_taken(p, r, seen, touched[:reached], columns, values, ends[number])
    return ends, columns[: ends[-1]], values[: ends[-1]]
