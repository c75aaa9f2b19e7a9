"""Loops over a binary tree whose leaves are nodes: the Metropolis chain over trees, and passes over a finished tree.

They are compiled where numba is installed (the extra `fast`) and run as plain Python, slowly, where it is not.

A tree of n leaves has the inner nodes n to 2n - 2. Each edge of the graph carries the inner node where its two ends
part. A proposal takes an inner node r with children a and b and the other child s of its parent p, and puts s in the
place of b (or a). Only r and p change. Edges between a and s are those of a's leaves that part at p; so counting
through the smaller of a and b is enough, and where that is b the two inner nodes change places instead of a's edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit

    COMPILED = True
except ImportError:  # the extra `fast` is not installed
    COMPILED = False

    def njit(**_: Any) -> Callable[[F], F]:  # type: ignore[no-redef]
        """Leave a function as it is."""
        return lambda function: function


GRID = float(1 << 20)
"""Log-likelihoods are whole multiples of 1 / GRID, so that sums and differences of them are exact."""


@njit(cache=True, nogil=True)
def term(pairs, linked):  # type: ignore[no-untyped-def]
    """The largest log-likelihood of `linked` of so many pairs under one probability, in steps of 1 / GRID."""
    if linked <= 0 or linked >= pairs:
        return 0
    share = linked / pairs
    value = linked * math.log(share) + (pairs - linked) * math.log1p(-share)
    return math.floor(value * GRID + 0.5)


@njit(cache=True, nogil=True)
def score(left, right, size, counts):  # type: ignore[no-untyped-def]
    """The log-likelihoods of the public and of the private edges, in steps of 1 / GRID."""
    public, private, n = 0, 0, len(left) + 1
    for i in range(n - 1):
        pairs = size[left[i]] * size[right[i]]
        public += term(pairs, counts[i, 0])
        private += term(pairs - counts[i, 0], counts[i, 1])
    return public, private


@njit(cache=True, nogil=True)
def _parting(top, at, n, left, right, starts, incident, publics, where, stack):  # type: ignore[no-untyped-def]
    """How many public and private edges of the leaves below `top` part at the inner node `where`."""
    public, private, depth = 0, 0, 1
    stack[0] = top
    while depth:
        depth -= 1
        x = stack[depth]
        if x >= n:
            stack[depth], stack[depth + 1] = left[x - n], right[x - n]
            depth += 2
            continue
        for i in range(starts[x], starts[x + 1]):
            e = incident[i]
            if at[e] == where:
                if e < publics:
                    public += 1
                else:
                    private += 1
    return public, private


@njit(cache=True, nogil=True)
def _relabel(top, at, n, left, right, starts, incident, old, new, both, stack):  # type: ignore[no-untyped-def]
    """Move edges of the leaves below `top` from `old` to `new`; with `both`, also those of `new` to `old`."""
    depth = 1
    stack[0] = top
    while depth:
        depth -= 1
        x = stack[depth]
        if x >= n:
            stack[depth], stack[depth + 1] = left[x - n], right[x - n]
            depth += 2
            continue
        for i in range(starts[x], starts[x + 1]):
            e = incident[i]
            if at[e] == old:
                at[e] = new
            elif both and at[e] == new:
                at[e] = old


@njit(cache=True, nogil=True)
def walk(words, root, left, right, parent, size, counts, at, starts, incident, publics, public_rate, private_rate):  # type: ignore[no-untyped-def]
    """Metropolis steps, one for every two of the 53-bit `words`; returns the root and how many were accepted.

    The target is exp(public_rate * public + private_rate * private) of the two scores.
    """
    n, accepted = len(left) + 1, 0
    stack = np.empty(n + 1, dtype=np.int64)
    for i in range(0, len(words) - 1, 2):
        choice = words[i] % (2 * (n - 1))  # off from even by less than 2^-20
        r = n + choice // 2
        if r == root:
            continue
        p = parent[r]
        s = left[p - n] + right[p - n] - r
        a, b = left[r - n], right[r - n]
        if choice % 2:
            a, b = b, a
        smaller = a if size[a] <= size[b] else b
        public, private = 0, 0
        top, low = counts[p - n], counts[r - n]
        if top[0] + top[1] > 0:
            public, private = _parting(smaller, at, n, left, right, starts, incident, publics, p, stack)
            if smaller == b:
                public, private = top[0] - public, top[1] - private
        outer_public, outer_private = low[0] + top[0] - public, low[1] + top[1] - private
        inner, outer = size[a] * size[s], (size[a] + size[s]) * size[b]
        was_inner, was_outer = size[a] * size[b], (size[a] + size[b]) * size[s]
        gain_public = (
            term(inner, public) + term(outer, outer_public) - term(was_inner, low[0]) - term(was_outer, top[0])
        )
        gain_private = term(inner - public, private) + term(outer - outer_public, outer_private)
        gain_private -= term(was_inner - low[0], low[1]) + term(was_outer - top[0], top[1])
        gain = public_rate * gain_public + private_rate * gain_private
        if gain < 0.0 and (words[i + 1] + 0.5) * 2.0**-53 >= math.exp(gain):
            continue
        accepted += 1
        some = top[0] + top[1] + low[0] + low[1] > 0
        if smaller == a:
            below, above = r, p
            if some:
                _relabel(a, at, n, left, right, starts, incident, p, r, True, stack)
        else:
            below, above = p, r
            if some:
                _relabel(b, at, n, left, right, starts, incident, p, r, False, stack)
            over = parent[p]
            parent[r] = over
            if over < 0:
                root = r
            elif left[over - n] == p:
                left[over - n] = r
            else:
                right[over - n] = r
        left[below - n], right[below - n], left[above - n], right[above - n] = a, s, below, b
        parent[a], parent[s], parent[below], parent[b] = below, below, above, above
        size[below] = size[a] + size[s]
        size[above] = size[below] + size[b]
        counts[below - n, 0], counts[below - n, 1] = public, private
        counts[above - n, 0], counts[above - n, 1] = outer_public, outer_private
    return root, accepted


@njit(cache=True, nogil=True)
def in_order(root, left, right, parent):  # type: ignore[no-untyped-def]
    """The leaves from left to right, the subtree of the smallest leaf first, and the depth of what parts neighbors.

    It follows from the shape of the tree alone: neither numbers of inner nodes nor sides of children show.
    """
    n = len(left) + 1
    least = np.empty(2 * n - 1, dtype=np.int64)
    waiting = np.full(2 * n - 1, 2, dtype=np.int64)
    for leaf in range(n):  # a node is reached from its second child, with both known
        least[leaf] = leaf
        x = parent[leaf]
        while x >= 0:
            waiting[x] -= 1
            if waiting[x] > 0:
                break
            least[x] = min(least[left[x - n]], least[right[x - n]])
            x = parent[x]
    order, depths = np.empty(n, dtype=np.int64), np.empty(max(0, n - 1), dtype=np.int64)
    stack, level = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    x, d, used, place = root, 0, 0, 0
    while True:
        while x >= n:
            stack[used], level[used] = x, d
            used += 1
            one, other = left[x - n], right[x - n]
            x = one if least[one] < least[other] else other
            d += 1
        order[place] = x
        if used == 0:
            break
        used -= 1
        x, d = stack[used], level[used]
        depths[place] = d
        place += 1
        one, other = left[x - n], right[x - n]
        x = other if least[one] < least[other] else one
        d += 1
    return order, depths


@njit(cache=True, nogil=True)
def spans(depths):  # type: ignore[no-untyped-def]
    """For every gap between leaves, the first and the last leaf below its inner node, and the gap of its parent."""
    m = len(depths)
    first, last, above = np.zeros(m, np.int64), np.full(m, m, np.int64), np.full(m, -1, np.int64)
    stack, used = np.empty(m + 1, dtype=np.int64), 0
    for k in range(m):
        while used and depths[stack[used - 1]] > depths[k]:
            used -= 1
            gap = stack[used]
            last[gap] = k
            if above[gap] < 0 or depths[k] > depths[above[gap]]:
                above[gap] = k
        if used:
            first[k], above[k] = stack[used - 1] + 1, stack[used - 1]
        stack[used] = k
        used += 1
    return first, last, above


@njit(cache=True, nogil=True)
def heads(order, above, small):  # type: ignore[no-untyped-def]
    """For every gap, taken from the root down in `order`: the topmost ancestor (or itself) that is small, else -1."""
    head = np.full(len(above), -1, dtype=np.int64)
    for k in order:
        if above[k] >= 0 and head[above[k]] >= 0:
            head[k] = head[above[k]]
        elif small[k]:
            head[k] = k
    return head
