from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms import EdgeCount
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.loss import PrivacyLoss

NODES, CAP = 12, 4
Edges = set[tuple[int, int]]

pairs = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda pair: pair[0] != pair[1])
directed = st.sets(pairs, max_size=40)
symmetric = directed.map(lambda edges: edges | {(b, a) for a, b in edges})
people = st.integers(0, NODES - 1)


def lists(edges: Edges) -> SimpleNamespace:
    """As much of a view as the mechanism reads."""
    index = torch.tensor(sorted(edges), dtype=torch.int64).reshape(-1, 2).t()
    return SimpleNamespace(whole_lists=MemoryEdges.from_edge_index(index, NODES))


def entries(edges: Edges, cap: int = CAP) -> int:
    """What the mechanism counts, through the graph it is given."""
    return EdgeCount(cap).query(lists(edges))


def with_hub(edges: Edges, hub: int) -> Edges:
    """One node names everybody and is named by everybody; the last node stays as it is."""
    others = [node for node in range(NODES - 1) if node != hub]
    return edges | {(hub, other) for other in others} | {(other, hub) for other in others}


# Property: no neighbor moves the count by more than the declared sensitivity


@given(directed, people, st.booleans())
def test_a_record_that_becomes_null_moves_the_count_by_at_most_the_cap(edges: Edges, gone: int, hub: bool) -> None:
    edges = with_hub(edges, gone) if hub else edges
    fewer = {(a, b) for a, b in edges if a != gone}
    assert abs(entries(edges) - entries(fewer)) <= EdgeCount(CAP).sensitivity(units.Node())


@given(directed, people, st.sets(people, max_size=NODES), st.booleans())
def test_a_replaced_record_moves_the_count_by_at_most_the_cap(
    edges: Edges, owner: int, fresh: set[int], hub: bool
) -> None:
    edges = with_hub(edges, owner) if hub else edges
    other = {(a, b) for a, b in edges if a != owner} | {(owner, b) for b in fresh if b != owner}
    assert abs(entries(edges) - entries(other)) <= EdgeCount(CAP).sensitivity(units.NodeReplace())


@given(symmetric, people, st.integers(1, 20))
def test_a_node_removed_whole_moves_the_count_by_at_most_twice_the_promise(edges: Edges, gone: int, cap: int) -> None:
    degree = max([1, *Counter(a for a, _ in edges).values()])
    fewer = {(a, b) for a, b in edges if gone not in (a, b)}
    bound = EdgeCount(cap).sensitivity(units.BoundedDegreeNode(max_degree=degree))
    assert bound <= 2 * degree
    assert abs(entries(edges, cap) - entries(fewer, cap)) <= bound


@given(directed.filter(bool), st.data())
def test_one_edge_moves_the_count_by_one_and_a_friendship_by_two(edges: Edges, data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(sorted(edges)))
    assert abs(entries(edges) - entries(edges - {(a, b)})) <= EdgeCount(CAP).sensitivity(units.DirectedEdge())
    both = edges | {(y, x) for x, y in edges}
    change = abs(entries(both) - entries(both - {(a, b), (b, a)}))
    assert change <= EdgeCount(CAP).sensitivity(units.UndirectedEdge())


def test_the_bounds_are_reached() -> None:
    """A bound that no neighbor reaches would cost accuracy for nothing."""
    hub = with_hub(set(), 0)
    assert entries(hub) - entries({(a, b) for a, b in hub if a != 0}) == CAP
    whole = entries(hub, 100) - entries({(a, b) for a, b in hub if 0 not in (a, b)}, 100)
    assert whole == EdgeCount(100).sensitivity(units.BoundedDegreeNode(max_degree=NODES - 2))


# Reference


@given(directed, st.integers(1, 12))
def test_the_count_equals_a_naive_one(edges: Edges, cap: int) -> None:
    naive = sum(min(cap, sum(1 for a, _ in edges if a == owner)) for owner in range(NODES))
    assert entries(edges, cap) == naive


@given(st.floats(1e-4, 50.0), st.integers(1, 500))
def test_the_least_whole_scale_meets_epsilon_and_a_smaller_one_would_not(epsilon: float, cap: int) -> None:
    count, unit = EdgeCount(cap), units.Node()
    scale = count.whole_scale_within(epsilon, unit)
    loss = PrivacyLoss(count.event(unit, scale), unit.relation)
    assert loss.epsilon(1e-9) == pytest.approx(cap / scale)
    assert cap / scale <= epsilon
    assert scale == 1 or cap / (scale - 1) > epsilon
    assert loss.accountant == "sum of pure epsilons"


def test_every_unit_has_its_own_bound_and_others_are_refused() -> None:
    expected = {
        units.DirectedEdge(): 1,
        units.UndirectedEdge(): 2,
        units.Node(max_degree=3): 10,
        units.NodeReplace(max_degree=3): 10,
        units.BoundedDegreeNode(max_degree=3): 6,
        units.BoundedDegreeNode(max_degree=30): 40,
    }
    assert {unit: EdgeCount(10).sensitivity(unit) for unit in expected} == expected
    for unit in (units.Record(), units.Local()):
        with pytest.raises(UnprovenError, match="count of edges"):
            EdgeCount(10).event(unit, 5.0)


def test_no_noise_and_a_false_scale_are_refused() -> None:
    for cap in (0, 2.5, True):
        with pytest.raises(InputError, match="cap"):
            EdgeCount(cap)  # type: ignore[arg-type]
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            EdgeCount(10).whole_scale_within(epsilon, units.Node())
    for scale in (0.5, 2.5, -3.0, math.nan):
        with pytest.raises(InputError, match="whole scale"):
            EdgeCount(10).event(units.Node(), scale)
    assert not PrivacyLoss(EdgeCount(10).event(units.Node(), 0.0), units.Node.relation).is_private


def test_a_count_is_kept_as_a_whole_number() -> None:
    assert EdgeCount(3).from_tensors(EdgeCount(3).to_tensors(-17)) == -17


def probability_of(k: int, scale: int) -> float:
    return math.tanh(0.5 / scale) * math.exp(-abs(k) / scale)


# Audit: the loss that the law realizes, and a lower bound from draws


def realized(counts: tuple[int, int], scale: int) -> float:
    """The largest log ratio of the two laws over all whole numbers that matter."""
    points = range(min(counts) - 5 * scale, max(counts) + 5 * scale)
    laws = [[probability_of(point - count, scale) for point in points] for count in counts]
    return max(abs(math.log(a / b)) for a, b in zip(*laws, strict=True))


def test_the_realized_epsilon_is_the_claimed_one_and_broken_variants_are_caught() -> None:
    hub = with_hub(set(), 0)
    gone = {(a, b) for a, b in hub if a != 0}
    scale = EdgeCount(CAP).whole_scale_within(0.5, units.Node())
    found = realized((entries(hub), entries(gone)), scale)
    assert found == pytest.approx(CAP / scale, rel=1e-9)
    # lists that are not cut, and half the noise
    assert realized((entries(hub, 100), entries(gone, 100)), scale) > 2 * found
    assert realized((entries(hub), entries(gone)), scale // 2) == pytest.approx(2 * found)
    # a friendship counted as one entry
    friends = {(0, 1), (1, 0)}
    one_way = EdgeCount(CAP).whole_scale_within(0.5, units.DirectedEdge())
    assert realized((entries(friends), entries(set())), one_way) == pytest.approx(1.0)


def audited_epsilon(scale: int, cap: int, draws: int = 1_000) -> float:
    """A lower bound at 99.9% each side, from draws on a graph with a hub and on the one without its list."""
    hub = with_hub(set(), 0)
    released = []
    for number, edges in enumerate((hub, {(a, b) for a, b in hub if a != 0})):
        noise = NoiseSource.seeded(17 + number)
        released.append(np.array([EdgeCount(cap).release(lists(edges), scale, noise) for _ in range(draws)]))
    middle = np.median(np.concatenate(released))
    low = stats.binomtest(int((released[0] > middle).sum()), draws).proportion_ci(0.998).low
    high = stats.binomtest(int((released[1] > middle).sum()), draws).proportion_ci(0.998).high
    return math.log(low / high)


def test_draws_bound_epsilon_from_below_and_catch_broken_variants() -> None:
    """With other seeds each assertion fails at most twice in a thousand."""
    scale = EdgeCount(CAP).whole_scale_within(1.0, units.Node())
    assert audited_epsilon(scale, CAP) <= 1.0
    assert audited_epsilon(max(1, scale // 2), CAP) > 1.0
    assert audited_epsilon(scale, 100) > 1.0
