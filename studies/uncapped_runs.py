"""What the part "votes" of studies/uncapped.yaml does: noisy sums of neighbors' labels under several bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms import BalancedSum
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.units import NodeWithEdges
from hushgraph.study.lab import Lab

CAPS = tuple(2**k for k in range(1, 11))
TEST_SHARE = 0.1
"""Of epsilon, and of delta, for the test that few nodes lie near a cap."""

Way = tuple[int, np.ndarray, float, Budget]
"""A cap (0: none), the sums, how far one node can move them, and what is left to pay for them."""


def votes(lab: Lab, *, bound: str) -> dict[str, float | None]:
    """Test accuracy of the class with the largest noisy sum, all of the budget spent; the best cap by hindsight."""
    graph = check_graph(lab.data)
    sums_of = _WAYS.get(bound)
    if sums_of is None:
        raise InputError(f"bound: expected one of {', '.join(_WAYS)}; got '{bound}'")
    rng = np.random.default_rng(lab.cell.seed)
    test, labels = graph.test.numpy(), graph.labels[graph.test].numpy()
    best: tuple[float, int] = (-1.0, 0)
    for cap, sums, moved, budget in sums_of(_Votes(graph), lab.budget):
        std = moved * noise_scale(events.gaussian, NodeWithEdges().relation, budget)
        noisy = sums[test] + std * rng.standard_normal((len(test), sums.shape[1]))
        best = max(best, (100.0 * float((noisy.argmax(axis=1) == labels).mean()), cap))
    return {"right": best[0], "cap": float(best[1]) if best[1] else None}


class _Votes:
    """The entries that lead from training nodes to the others, as a matrix, and the labels that are sent."""

    def __init__(self, graph: Any) -> None:
        self.mechanism = BalancedSum()
        trains_on = torch.zeros(graph.metadata.num_nodes, dtype=torch.bool).index_fill_(0, graph.train, True)
        view = SimpleNamespace(
            whole_lists=graph.edges,
            labels=graph.labels,
            metadata=graph.metadata,
            train=graph.train,
            trains_on=trains_on,
        )
        self.balance = self.mechanism.weights(view)
        self.entries, self.rows = self.balance.entries, self.mechanism.rows(view)
        self.degree = graph.edges.out_degree().numpy()
        self.sent = np.asarray(self.entries.sum(axis=0)).ravel()
        self.receivers = int((~trains_on).sum())


def _balanced(votes: _Votes, budget: Budget) -> Iterator[Way]:
    yield 0, votes.balance.sums(votes.rows), votes.mechanism.sensitivity(NodeWithEdges()), budget


def _all_receivers(votes: _Votes, budget: Budget) -> Iterator[Way]:
    yield 0, votes.entries @ votes.rows, math.sqrt(votes.receivers), budget


def _truncated(votes: _Votes, budget: Budget) -> Iterator[Way]:
    """Less than what one node can do to it on this very graph, which is no bound: more than can be reached.

    An empty node that gets an edge to every node of degree exactly D has all of them dropped.
    """
    for cap in CAPS:
        kept, edge = votes.degree <= cap, votes.degree == cap
        sums = kept[:, None] * (votes.entries @ (votes.rows * kept[:, None]))
        dropped = np.linalg.norm(kept[:, None] * (votes.entries @ (votes.rows * edge[:, None])))
        yield cap, sums, max(float(dropped), math.sqrt(votes.sent[kept].max(initial=1.0))), budget


def _tested(votes: _Votes, budget: Budget) -> Iterator[Way]:
    """Senders of more than D neighbors dropped, after a test that no more than C of them lie near D.

    A node that goes changes the degree of each neighbor by one, and each that crosses D moves sums by at most sqrt(D).
    The test asks whether C holds on every graph within `far` nodes of this one; here it always passes: C is counted.
    """
    pays = Budget(TEST_SHARE * budget.epsilon, TEST_SHARE * budget.definite_delta)
    rest = Budget(budget.epsilon - pays.epsilon, budget.definite_delta - pays.definite_delta)
    far = math.ceil(math.log(1.0 / pays.definite_delta) / pays.epsilon)
    for cap in CAPS:
        kept = votes.degree <= cap
        near = int((np.abs(votes.degree - cap) <= far).sum())
        yield cap, votes.entries @ (votes.rows * kept[:, None]), (1.0 + near) * math.sqrt(cap), rest


def _owned(votes: _Votes, budget: Budget) -> Iterator[Way]:
    """Another, weaker unit: messages divided by the root of the sender's list, as Chorus does."""
    yield 0, votes.entries @ (votes.rows / np.sqrt(np.maximum(votes.sent, 1.0))[:, None]), 1.0, budget


_WAYS = {
    "balanced": _balanced,
    "all receivers": _all_receivers,
    "truncated": _truncated,
    "private test": _tested,
    "owned record": _owned,
}
