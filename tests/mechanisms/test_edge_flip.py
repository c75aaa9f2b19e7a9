from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_edges, pair_numbers
from hushgraph.mechanisms import EdgeFlip
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import count_pairs
from matrix_graphs import view_of
from mechanisms.graph_laws import Bits, all_bits, counted, neighbors
from small_graphs import random_graph


def law(graph: Bits, present: float, absent: float) -> dict[Bits, float]:
    """The law of the released graph, pair by pair."""
    chance = np.where(graph, present, absent)
    return {out: float(np.where(out, chance, 1.0 - chance).prod()) for out in all_bits(4, undirected=True)}


# The promise


@given(st.floats(0.01, 60.0), st.floats(0.0, 1.0))
def test_both_ratios_are_within_epsilon_in_sixty_digits(epsilon: float, keep: float) -> None:
    scale = 1.0 / epsilon
    present, absent = EdgeFlip().rates(scale, keep)
    assert 0.0 <= absent <= present < 1.0
    if absent == 0.0:
        assert present == 0.0
        return
    with mpmath.workdps(60):
        claimed = mpmath.exp(mpmath.mpf(1.0 / scale))
        one, other = mpmath.mpf(present) / absent, (1 - mpmath.mpf(absent)) / (1 - mpmath.mpf(present))
        assert one <= claimed
        assert other <= claimed
        assert max(one, other) > claimed * (1 - mpmath.mpf(1e-9))  # and hardly any epsilon is given away


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("keep", [1.0, 0.3, 0.01])
def test_all_graphs_of_four_nodes_stay_within_the_claim(epsilon: float, keep: float) -> None:
    mechanism, unit = EdgeFlip(), units.UndirectedEdge()
    rates = mechanism.rates(1.0 / epsilon, keep)
    laws = {graph: law(graph, *rates) for graph in all_bits(4, undirected=True)}
    claimed = PrivacyLoss(mechanism.event(unit, 1.0 / epsilon), unit.relation).epsilon(1e-9)
    ratios = [
        math.log(laws[one][out] / laws[other][out])
        for one, other in neighbors(list(laws))
        for out in laws
        if laws[one][out] > 0.0
    ]
    assert max(ratios) == pytest.approx(epsilon, rel=1e-9)
    assert claimed == epsilon
    realized = mechanism.realized(unit, 1.0 / epsilon)
    assert realized is not None
    assert epsilon * (1.0 - 1e-9) < realized <= claimed


def test_units_without_a_bound_are_refused_and_both_orders_cost_twice() -> None:
    assert EdgeFlip().sensitivity(units.UndirectedEdge()) == 1.0
    assert EdgeFlip(undirected=False).sensitivity(units.UndirectedEdge()) == 2.0
    assert EdgeFlip(undirected=False).sensitivity(units.DirectedEdge()) == 1.0
    assert EdgeFlip().sensitivity(units.BoundedDegreeNode(max_degree=3)) == 6.0
    for unit in (units.Node(), units.NodeReplace(), units.Record()):
        with pytest.raises(UnprovenError, match="a graph"):
            EdgeFlip().event(unit, 1.0)
        assert EdgeFlip().realized(unit, 1.0) is None


def test_what_no_coin_can_do_is_refused() -> None:
    with pytest.raises(InputError, match="at most 60"):
        EdgeFlip().rates(0.01)
    with pytest.raises(InputError, match="keep"):
        EdgeFlip().check(1.5)
    assert EdgeFlip().rates(1 / 50.0, 1e-10) == (0.0, 0.0)


# The law of the sampler


def chi_square(found: dict[Bits, int], expected: dict[Bits, float]) -> float:
    draws = sum(found.values())
    return float(stats.chisquare([found[out] for out in found], [draws * expected[out] for out in found]).pvalue)


@pytest.mark.parametrize("keep", [1.0, 0.5])
@pytest.mark.parametrize("graph", [(1, 0, 0), (1, 0, 1)])
def test_released_graphs_have_the_stated_law_and_not_another(graph: Bits, keep: float) -> None:
    """Seeded; with other seeds a right sampler fails once in a million."""
    mechanism = EdgeFlip()

    def expected(scale: float) -> dict[Bits, float]:
        chance = np.where(graph, *mechanism.rates(scale, keep))
        return {out: float(np.where(out, chance, 1.0 - chance).prod()) for out in all_bits(3, undirected=True)}

    found = counted(mechanism, graph, 3, 1.0, 3_000, keep)
    assert chi_square(found, expected(1.0)) > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert chi_square(found, expected(wrong)) < 1e-6


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("keep", [1.0, 0.1])
def test_linked_and_unlinked_pairs_come_out_at_their_rates(undirected: bool, keep: float) -> None:
    """Binomial tests, seeded; with other seeds each fails once in a million."""
    mechanism, nodes = EdgeFlip(undirected), 900
    total = count_pairs(nodes, undirected=undirected)
    linked = np.sort(np.random.default_rng(0).choice(total, 40_000, replace=False))
    data = SimpleNamespace(whole_lists=pair_edges(linked, nodes, undirected=undirected), public_edges=None)
    out = pair_numbers(mechanism.release(data, 0.5, NoiseSource.seeded(1), keep), undirected=undirected)
    stays, becomes = np.isin(out, linked).sum(), (~np.isin(out, linked)).sum()
    present, absent = mechanism.rates(0.5, keep)
    assert stats.binomtest(int(stays), len(linked), present).pvalue > 1e-6
    assert stats.binomtest(int(becomes), total - len(linked), absent).pvalue > 1e-6
    assert stats.binomtest(int(becomes), total - len(linked), 1.2 * absent).pvalue < 1e-12
    where = out[~np.isin(out, linked)] // (total // 10)
    assert stats.chisquare(np.bincount(where, minlength=10)[:10]).pvalue > 1e-6  # spread evenly over all pairs


def test_the_density_is_kept_on_average() -> None:
    nodes, mechanism = 2_000, EdgeFlip()
    total = count_pairs(nodes, undirected=True)
    linked = np.sort(np.random.default_rng(0).choice(total, 20_000, replace=False))
    data = SimpleNamespace(whole_lists=pair_edges(linked, nodes, undirected=True), public_edges=None)
    for scale in (1.0, 0.25):
        keep = mechanism.keep_rate(scale, len(linked) / total)
        out = mechanism.release(data, scale, NoiseSource.seeded(2), keep).num_edges // 2
        assert out == pytest.approx(20_000, abs=6 * math.sqrt(20_000))


def test_memory_follows_the_links_and_not_the_pairs() -> None:
    """Four trillion pairs of three million nodes, hardly any of which come out."""
    nodes = 3_000_000
    edges = MemoryEdges.from_edge_index(torch.tensor([[0, 5], [1, nodes - 1]]), nodes)
    tracemalloc.start()
    found = EdgeFlip().release(SimpleNamespace(whole_lists=edges, public_edges=None), 1 / 20.0, NoiseSource.seeded(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 3_000 < found.num_edges < 50_000
    assert peak < 64 * nodes  # a few numbers a node, none a pair


# Public edges


def test_public_edges_come_out_and_nothing_about_them_is_read() -> None:
    data = random_graph(0)
    public = data.edge_index[:, (data.edge_index < 8).all(dim=0)]
    data.public_edge_index = public
    graph = check_graph(data)
    assert graph.metadata.num_public_edges == public.shape[1] > 0
    mechanism, found = EdgeFlip(), []
    without = replace(
        graph, edges=MemoryEdges.from_edge_index(data.edge_index[:, ~(data.edge_index < 8).all(dim=0)], 40)
    )
    for one in (graph, without):
        found.append(mechanism.release(view_of(one, mechanism, None), 1.0, NoiseSource.seeded(3), 0.2))
    assert torch.equal(found[0].edge_index(), found[1].edge_index())
    released = set(map(tuple, found[0].edge_index().t().tolist()))
    assert set(map(tuple, public.t().tolist())) <= released
    bits = mechanism.before_noise(view_of(graph, mechanism, None), None)
    assert bits[pair_numbers(graph.public_edges, undirected=True)].sum() == 0.0


def test_public_pairs_come_out_once_however_many_others_do() -> None:
    """At an epsilon of 0.1 nearly half of all pairs come out; public ones have no coin and no second entry."""
    data = random_graph(0)
    data.public_edge_index = data.edge_index[:, (data.edge_index < 8).all(dim=0)]
    graph, mechanism = check_graph(data), EdgeFlip()
    pairs = mechanism.pairs(view_of(graph, mechanism, None))
    apart = pairs.private_apart(np.arange(pairs.total))
    assert len(apart) == pairs.total - len(pairs.linked) - len(pairs.public)
    found = mechanism.release(view_of(graph, mechanism, None), 10.0, NoiseSource.seeded(0)).edge_index()
    assert found.shape[1] == torch.unique(found, dim=1).shape[1] > 600


def test_a_graph_is_kept_as_it_was_released() -> None:
    mechanism, graph = EdgeFlip(), check_graph(random_graph(0))
    found = mechanism.release(view_of(graph, mechanism, None), 1.0, NoiseSource.seeded(0))
    again = mechanism.from_tensors(mechanism.to_tensors(found))
    assert torch.equal(again.edge_index(), found.edge_index())
