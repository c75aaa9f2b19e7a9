from __future__ import annotations

import itertools
import math
from functools import cache
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.graph.pairs import pair_edges, pair_numbers
from hushgraph.mechanisms import NoisyEdges
from hushgraph.mechanisms.noisy_edges import largest
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.metadata import count_pairs
from mechanisms.graph_laws import Bits, all_bits, counted, neighbors


@cache
def pair_law(mechanism: NoisyEdges, scale: float, count: int, linked: bool, pairs: int) -> dict[int, float]:
    """The sums of one pair as they are drawn, 0 for those below the threshold; a tail of 1e-12 left out."""
    p, (least, rate) = mechanism.step(scale), mechanism.tail(scale, pairs, count)
    top = math.ceil(-28.0 / math.log1p(-p)) + mechanism.grain + least
    if not linked:
        law = {s: rate * p * (1.0 - p) ** (s - least) for s in range(least, top)}
        return {0: 1.0 - rate, **law}
    above = {s: p / (2.0 - p) * (1.0 - p) ** abs(s - mechanism.grain) for s in range(least, top)}
    return {0: 1.0 - math.fsum(above.values()), **above}


def graph_law(mechanism: NoisyEdges, graph: Bits, scale: float, count: int) -> dict[Bits, float]:
    """The exact law of the released graph: sums of all pairs, the largest above the threshold, ties by lot."""
    laws = [pair_law(mechanism, scale, count, bool(bit), len(graph)) for bit in graph]
    law = dict.fromkeys(itertools.product((0, 1), repeat=len(graph)), 0.0)
    for sums in itertools.product(*laws):
        chance = math.prod(one[s] for one, s in zip(laws, sums, strict=True))
        for out, share in _outcomes(sums, count):
            law[out] += chance * share
    return law


@cache
def _outcomes(sums: tuple[int, ...], count: int) -> list[tuple[Bits, float]]:
    reached = [place for place, s in enumerate(sums) if s > 0]
    if len(reached) <= count:
        return [(tuple(int(s > 0) for s in sums), 1.0)]
    order = sorted(reached, key=lambda place: -sums[place])
    last = sums[order[count - 1]]
    sure = [place for place in reached if sums[place] > last]
    ties = [place for place in reached if sums[place] == last]
    choices = list(itertools.combinations(ties, count - len(sure)))
    return [(tuple(int(k in {*sure, *one}) for k in range(len(sums))), 1.0 / len(choices)) for one in choices]


# The promise


@pytest.mark.parametrize(("epsilon", "grain", "count"), [(1.0, 1, 1), (2.0, 2, 1), (2.0, 2, 2), (0.7, 1, 2)])
def test_all_graphs_of_three_nodes_stay_within_the_claim(epsilon: float, grain: int, count: int) -> None:
    mechanism = NoisyEdges(grain=grain)
    laws = {graph: graph_law(mechanism, graph, 1.0 / epsilon, count) for graph in all_bits(3, undirected=True)}
    assert all(math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9) for law in laws.values())
    ratios = [
        math.log(laws[one][out] / laws[other][out])
        for one, other in neighbors(list(laws))
        for out in laws
        if laws[one][out] > 0.0
    ]
    assert 0.5 * epsilon < max(ratios) <= epsilon * (1.0 + 1e-9)
    twice = [abs(math.log(laws[1, 1, 0][out] / laws[0, 0, 0][out])) for out in laws if laws[0, 0, 0][out] > 0.0]
    assert max(twice) > 1.1 * epsilon  # two edges cost more than one: the comparison sees it


@given(st.floats(0.01, 50.0), st.sampled_from([1, 16, 1024]), st.integers(0, 10**7), st.integers(1, 10**12))
def test_one_pair_is_within_epsilon_in_sixty_digits(epsilon: float, grain: int, count: int, pairs: int) -> None:
    """The ratios of a linked and an unlinked pair at the threshold, at the bit, and below the threshold."""
    mechanism, scale = NoisyEdges(grain=grain), 1.0 / epsilon
    if epsilon / grain > 30.0:
        return
    p, (least, rate) = mechanism.step(scale), mechanism.tail(scale, pairs, count)
    assert least >= 1
    with mpmath.workdps(60):
        claimed, r = mpmath.exp(mpmath.mpf(1.0 / scale)), 1 - mpmath.mpf(p)
        exact = r**least / (1 + r)
        assert exact <= rate <= exact * (1 + mpmath.mpf(2) ** -35)

        def linked(s: int) -> mpmath.mpf:
            return (1 - r) / (1 + r) * r ** abs(s - grain)

        for s in {least, least + 1, max(least, grain), grain + least}:
            one, other = linked(s), mpmath.mpf(rate) * (1 - r) * r ** (s - least)
            assert max(one / other, other / one) <= claimed
        above = r ** (least - grain) / (1 + r) if least >= grain else 1 - r ** (grain - least + 1) / (1 + r)
        below = (1 - above) / (1 - mpmath.mpf(rate))
        assert max(below, 1 / below) <= claimed


def test_the_realized_epsilon_is_just_within_the_claim() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        realized = NoisyEdges().realized(units.UndirectedEdge(), 1.0 / epsilon)
        assert realized is not None
        assert epsilon * (1.0 - 1e-9) < realized <= epsilon
    assert NoisyEdges().realized(units.Node(), 1.0) is None


def test_false_parameters_are_refused() -> None:
    for grain in (0, 2.5, True, 1 << 21):
        with pytest.raises(InputError, match="grain"):
            NoisyEdges(grain=grain)  # type: ignore[arg-type]
    for count in (-1, 2.5):
        with pytest.raises(InputError, match="count"):
            NoisyEdges().check(count)
    with pytest.raises(InputError, match="loss per step"):
        NoisyEdges().step(1e6)


# The law of the sampler


@pytest.mark.parametrize("graph", [(1, 0, 0), (1, 0, 1)])
def test_released_graphs_have_the_enumerated_law_and_not_another(graph: Bits) -> None:
    """Seeded; with other seeds a right sampler fails once in a million."""
    mechanism = NoisyEdges(grain=2)
    found = counted(mechanism, graph, 3, 0.5, 3_000, 1)

    def p_value(scale: float) -> float:
        expected = graph_law(mechanism, graph, scale, 1)
        kept = [out for out in found if expected[out] > 0.0]
        assert all(found[out] == 0 for out in found if out not in kept)
        total = math.fsum(expected[out] for out in kept)
        return float(stats.chisquare([found[o] for o in kept], [3_000 * expected[o] / total for o in kept]).pvalue)

    assert p_value(0.5) > 1e-6
    for wrong in (1 / 3, 3 / 4):
        assert p_value(wrong) < 1e-6


def test_a_large_release_agrees_with_a_naive_one_that_draws_every_pair() -> None:
    """How many of the links are kept: 20 releases of each kind, their means within 6 standard errors."""
    nodes, epsilon, links = 300, 3.0, 2_000
    total = count_pairs(nodes, undirected=True)
    rng = np.random.default_rng(0)
    linked = np.sort(rng.choice(total, links, replace=False))
    data = SimpleNamespace(whole_lists=pair_edges(linked, nodes, undirected=True), public_edges=None)
    ours, naive = [], []
    for seed in range(20):
        out = NoisyEdges().release(data, 1.0 / epsilon, NoiseSource.seeded(seed), links)
        numbers = pair_numbers(out, undirected=True)
        assert len(numbers) == links
        ours.append(np.isin(numbers, linked).sum())
        sums = rng.laplace(0.0, 1.0 / epsilon, total)
        sums[linked] += 1.0
        naive.append(np.isin(np.argsort(-sums)[:links], linked).sum())
    spread = math.sqrt((np.var(ours) + np.var(naive)) / 20)
    assert abs(np.mean(ours) - np.mean(naive)) < 6.0 * spread
    assert np.mean(ours) > 3.0 * links * links / total


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 35))
def test_the_largest_are_chosen(values: list[int], count: int) -> None:
    chosen = largest(np.array(values, dtype=np.int64), count, NoiseSource.seeded(0))
    kept = sorted((value for value, taken in zip(values, chosen, strict=True) if taken), reverse=True)
    assert kept == sorted(values, reverse=True)[:count]


def test_ties_are_settled_by_lot() -> None:
    """Each of four equal sums is chosen in half of 2,000 draws: 6 standard deviations are 134."""
    noise = NoiseSource.seeded(0)
    found = sum(largest(np.array([3, 3, 9, 3, 3]), 3, noise).astype(int) for _ in range(2_000))
    assert found[2] == 2_000
    assert np.abs(found[[0, 1, 3, 4]] - 1_000).max() < 134
