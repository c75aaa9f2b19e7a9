"""Exact checks where the whole law can be written down: local mechanisms, and sums on tiny graphs.

`hushgraph.local.check.realized_epsilon` enumerates a local mechanism's law; `audit_local` compares it with the claim.
`largest_sum_change` goes through every graph on a handful of nodes and every neighbor of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from hushgraph.audit.result import Finding
from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.local.check import realized_epsilon
from hushgraph.privacy.units import DirectedEdge, Node, UndirectedEdge, Unit

_LARGEST_TINY = 5
_ROUNDING = 1e-9


def audit_local(mechanism: Any, inputs: Iterable[Any] | None = None) -> Finding:
    """The epsilon that a local mechanism's own law realizes, against the one it claims. No confidence is needed."""
    realized = realized_epsilon(mechanism, inputs)
    name = f"law of {type(mechanism).__name__}"
    return Finding(
        name, "exact enumeration", 0, mechanism.epsilon, realized, within_rounding(realized, mechanism.epsilon)
    )


def within_rounding(realized: float, claimed: float) -> float:
    """`realized`, or the claim where it is above it by rounding alone: sums of many probabilities round."""
    return realized if realized > claimed * (1.0 + _ROUNDING) else min(realized, claimed)


def largest_sum_change(unit: Unit, num_nodes: int, cap: Callable[[Tensor], Tensor] | None = None) -> float:
    """The largest L2 change of a sum of unit rows over all graphs of `num_nodes` nodes and all their neighbors.

    Rows are all equal, which is the worst case for removals. At node level a neighbor loses one node's own list and
    `cap` is applied to both graphs.
    """
    if not 2 <= num_nodes <= _LARGEST_TINY:
        raise InputError(f"enumeration: expected 2 to {_LARGEST_TINY} nodes; got {num_nodes}; graphs grow as 2^(n^2)")
    rows = torch.ones(num_nodes, 1, dtype=torch.float64)
    worst = 0.0
    for edges, fewer in _neighboring_graphs(unit, num_nodes):
        pair = [cap(one) if cap is not None else one for one in (edges, fewer)]
        one, other = (sum_in_neighbors(InNeighbors.from_edge_index(e, num_nodes), rows) for e in pair)
        worst = max(worst, float((one - other).norm()))
    return worst


def _neighboring_graphs(unit: Unit, num_nodes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Every graph with every graph that has one unit less."""
    if isinstance(unit, UndirectedEdge):
        slots = [[(a, b), (b, a)] for a, b in itertools.combinations(range(num_nodes), 2)]
    elif isinstance(unit, DirectedEdge | Node):
        slots = [[(a, b)] for a, b in itertools.permutations(range(num_nodes), 2)]
    else:
        raise InputError(f"enumeration: no neighboring graphs are known for the unit '{unit}'")
    for kept in itertools.product((False, True), repeat=len(slots)):
        present = [slot for slot, here in zip(slots, kept, strict=True) if here]
        for fewer in _one_less(unit, present, num_nodes):
            yield _edge_index(present), _edge_index(fewer)


def _one_less(unit: Unit, present: list[Any], num_nodes: int) -> Iterator[list[Any]]:
    if isinstance(unit, Node):
        for owner in range(num_nodes):
            yield [slot for slot in present if slot[0][0] != owner]
    else:
        for gone in range(len(present)):
            yield present[:gone] + present[gone + 1 :]


def _edge_index(slots: list[Any]) -> Tensor:
    pairs = [pair for slot in slots for pair in slot]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()


def deletion_change(release: Callable[[Tensor], Tensor], present: Tensor, absent: Tensor) -> float:
    """How far the noise-free `release` moves between two neighboring inputs (L2): must not exceed its bound."""
    change = float((release(present).to(torch.float64) - release(absent).to(torch.float64)).norm())
    if math.isnan(change):
        raise InputError("deletion test: expected finite releases; got NaN")
    return change
