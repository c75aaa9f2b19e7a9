"""PageRank rows, choices and values: bounds that are reached, exact laws, and what a pick costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy import special, stats

from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_laplace import PageRankLaplace
from hushgraph.mechanisms.pagerank_rows import PageRankRows
from hushgraph.mechanisms.pagerank_top import LEVELS, PageRankTop, successive_draws
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.testing import Variations
from matrix_graphs import _graph, _hub, view_of

UNIT = units.NodeWithEdges()


def star(nodes: int):
    return _graph("star", _hub(nodes), nodes, symmetric=True, seed=0)


def test_a_hub_that_goes_moves_all_rows_almost_as_far_as_the_bound_says() -> None:
    graph = star(60)
    mechanism, sources = PageRankRows(50, 2, 0.3, 0.002, 1e-6), torch.arange(1, 51)
    without = Variations(graph).without_node(0)
    rows = [
        mechanism.before_noise(view_of(one, mechanism, UNIT), NoiseSource.seeded(0), sources)
        for one in (graph, without)
    ]
    assert 0.9 < np.linalg.norm(rows[0] - rows[1]) / mechanism.sensitivity(UNIT) <= 1.0


def test_a_hub_that_goes_moves_every_value_by_its_whole_range() -> None:
    graph, mechanism = star(20), PageRankValues(10, 1, 0.01, 0.05)
    sources = torch.arange(1, 11)
    rows = PageRankRows.query(PageRankRows(10, 1), view_of(graph, mechanism, UNIT), sources)
    chosen = type(rows)(sources, torch.zeros(10, 1, dtype=torch.int64), torch.ones(10, 1))
    values = [
        mechanism.before_noise(view_of(one, mechanism, UNIT), NoiseSource.seeded(0), chosen)
        for one in (graph, Variations(graph).without_node(0))
    ]
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(mechanism.sensitivity(UNIT))


def test_weights_keep_to_the_ratio_that_is_charged() -> None:
    for scale in (0.05, 0.3, 2.0, 100.0, 1e5):
        weights = PageRankTop(3, 2).weights(scale)
        assert len(weights) == LEVELS + 1
        assert (np.diff(weights) >= 0).all()
        assert weights[0] >= 1
        assert math.log(int(weights[-1])) - math.log(int(weights[0])) <= (1.0 / scale) * (1 + 1e-12)


def order_law(weights: np.ndarray, count: int) -> dict[tuple[int, ...], float]:
    law = {}
    for order in itertools.permutations(range(len(weights)), count):
        left, probability = weights.sum(), 1.0
        for node in order:
            probability, left = probability * weights[node] / left, left - weights[node]
        law[order] = probability
    return law


def test_draws_have_the_law_of_the_exponential_mechanism() -> None:
    """Chi-square over all ordered pairs, from a fixed seed; with others one in a million fails."""
    more = np.array([5, 0, 0, 20, 3])
    rows = scipy.sparse.csr_array(np.tile(more, (20_000, 1)))
    drawn = successive_draws(rows, 4, 2, NoiseSource.seeded(1))
    law = order_law(more + 4.0, 2)
    counts = [int((drawn == order).all(axis=1).sum()) for order in law]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts, 20_000 * np.array(list(law.values()))).pvalue > 1e-6
    wrong = order_law(more * 1.5 + 4.0, 2)
    assert stats.chisquare(counts, 20_000 * np.array(list(wrong.values()))).pvalue < 1e-12


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_enumerated_choices_stay_below_what_is_charged(epsilon: float) -> None:
    """All pairs of extreme scores of four nodes, two picks: delta at every epsilon is at most that of the Gaussian."""
    event = events.bounded_range(2.0 * epsilon, 2)
    mu = 1.0 / event.noise_multiplier
    scores = [np.array(one, dtype=float) for one in itertools.product([0, 1], repeat=4)]
    for a, b in itertools.product(scores, scores):
        p, q = (np.array(list(order_law(np.exp(epsilon * one), 2).values())) for one in (a, b))
        assert np.abs(np.log(p / q)).max() <= 4.0 * epsilon + 1e-9
        for at in (0.0, 0.5 * epsilon, epsilon, 2.0 * epsilon):
            charged = special.ndtr(mu / 2 - at / mu) - math.exp(at) * special.ndtr(-mu / 2 - at / mu)
            assert np.maximum(p - math.exp(at) * q, 0.0).sum() <= charged + 1e-12


def test_half_of_the_charge_would_be_contradicted() -> None:
    epsilon = 1.0
    mu = 0.5 / events.bounded_range(2.0 * epsilon, 2).noise_multiplier
    p, q = (
        np.array(list(order_law(np.exp(epsilon * np.array(one)), 2).values())) for one in ([1, 1, 0, 0], [0, 0, 1, 1])
    )
    charged = special.ndtr(mu / 2) - special.ndtr(-mu / 2)
    assert np.maximum(p - q, 0.0).sum() > charged


def test_the_symmetric_pair_is_the_worst_of_its_range() -> None:
    for eta in (0.01, 0.5, 2.0, 6.0):
        middle = np.linspace(-8, 8, 2001)
        found = special.ndtri(special.expit(middle + eta / 2)) - special.ndtri(special.expit(middle - eta / 2))
        assert found.max() <= 1.0 / events.bounded_range(eta).noise_multiplier
        assert found.max() >= 0.999999 / events.bounded_range(eta).noise_multiplier


# Every graph of four nodes


def all_graphs(nodes: int):
    """Every undirected graph, as a set of pairs."""
    pairs = list(itertools.combinations(range(nodes), 2))
    for bits in itertools.product((False, True), repeat=len(pairs)):
        yield frozenset(pair for pair, there in zip(pairs, bits, strict=True) if there)


def without(graph: frozenset, node: int) -> frozenset:
    return frozenset(pair for pair in graph if node not in pair)


def answers(mechanism, nodes: int, *inputs) -> dict[frozenset, np.ndarray]:
    found = {}
    for pairs in all_graphs(nodes):
        one_way = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2).t()
        graph = _graph("one of all", torch.cat([one_way, one_way.flip(0)], dim=1), nodes, symmetric=True, seed=0)
        found[pairs] = mechanism.before_noise(view_of(graph, mechanism, UNIT), NoiseSource.seeded(0), *inputs)
    return found


def changes(found: dict[frozenset, np.ndarray], nodes: int):
    for graph, rows in found.items():
        for node in range(nodes):
            yield rows, found[without(graph, node)]


CHOSEN = TopRows(torch.arange(4), torch.tensor([[1, 2], [2, 3], [3, 0], [0, 1]]), torch.full((4, 2), 0.5))


@pytest.mark.parametrize(
    ("mechanism", "given", "norm"),
    [
        (PageRankRows(4, 2, 0.2, 0.05), torch.arange(4), 2),
        (PageRankValues(4, 2, 0.05, 0.05), CHOSEN, 2),
        (PageRankLaplace(4, 2, 0.05, 0.05), CHOSEN, 1),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_no_node_of_any_graph_of_four_moves_the_numbers_beyond_the_bound(mechanism, given, norm: int) -> None:
    """What is released is post-processing of these numbers with noise, whose law is that of the bound."""
    far = [np.linalg.norm((a - b).ravel(), norm) for a, b in changes(answers(mechanism, 4, given), 4)]
    assert 0.3 * mechanism.sensitivity(UNIT) < max(far) <= mechanism.sensitivity(UNIT) * (1 + 1e-12)


def pick_law(mechanism: PageRankTop, scores: np.ndarray, scale: float) -> np.ndarray:
    """The probability of every outcome of all rows: products of those of each row."""
    weights = mechanism.weights(scale)[np.rint(scores * LEVELS).astype(int)].astype(float)
    law = np.ones(1)
    for row in weights:
        law = np.outer(law, list(order_law(row, mechanism.top).values())).ravel()
    return law


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_law_of_picks_keeps_to_the_charge_on_every_graph_of_four(scale: float) -> None:
    mechanism, worst = PageRankTop(2, 2, 0.2, 0.05), 0.0
    mu = 1.0 / mechanism.event(UNIT, scale).noise_multiplier
    at = np.array([0.0, 0.3, 1.0, 2.0]) / scale
    charged = special.ndtr(mu / 2 - at / mu) - np.exp(at) * special.ndtr(-mu / 2 - at / mu)
    scores = answers(mechanism, 4, torch.arange(2))
    laws = {graph: pick_law(mechanism, one, scale) for graph, one in scores.items()}
    for p, q in changes(laws, 4):
        for one, other in ((p, q), (q, p)):
            found = np.array([np.maximum(one - math.exp(e) * other, 0.0).sum() for e in at])
            assert (found <= charged + 1e-12).all()
            worst = max(worst, float(found[0] / charged[0]))
    assert worst > 0.3


def test_amplification_by_eps_times_q_is_contradicted() -> None:
    """A node is in a secret sample with probability q: one pick then realizes more than q epsilon, for all of q."""
    mechanism, nodes, scale = PageRankTop(1, 1, 0.2, 0.05), 4, 0.4
    scores = answers(mechanism, nodes, torch.arange(1))
    laws = {graph: pick_law(mechanism, one, scale) for graph, one in scores.items()}
    for rate in (0.09, 0.3):
        whole, sampled = 0.0, 0.0
        for node in range(1, nodes):
            for graph, p in laws.items():
                absent = laws[without(graph, node)]
                mixed = rate * p + (1.0 - rate) * absent
                whole = max(whole, float(np.abs(np.log(p / absent)).max()))
                sampled = max(sampled, float(np.abs(np.log(mixed / absent)).max()))
        assert sampled > 1.2 * rate * whole
        assert sampled <= math.log1p(rate * math.expm1(whole)) * (1 + 1e-12)


def cut_to(graph: frozenset, sample: frozenset) -> frozenset:
    """What is left where nodes outside of the sample are empty."""
    return frozenset(pair for pair in graph if sample >= set(pair))


def test_a_secret_sample_amplifies_and_one_that_is_named_does_not() -> None:
    """All graphs of four nodes, all samples: with the sample named, one pick realizes all of its epsilon."""
    mechanism, nodes, scale, rate = PageRankTop(1, 1, 0.2, 0.05), 4, 0.4, 0.3
    scores = answers(mechanism, nodes, torch.arange(1))
    laws = {graph: pick_law(mechanism, one, scale) for graph, one in scores.items()}
    samples = [frozenset(s) for size in range(nodes + 1) for s in itertools.combinations(range(nodes), size)]
    chance = {s: rate ** len(s) * (1.0 - rate) ** (nodes - len(s)) for s in samples}

    def by_sample(graph: frozenset) -> np.ndarray:
        return np.stack([chance[s] * laws[cut_to(graph, s)] for s in samples])

    whole, secret, named = 0.0, 0.0, 0.0
    for graph, node in itertools.product(laws, range(nodes)):
        less = without(graph, node)
        p, q = by_sample(graph), by_sample(less)
        whole = max(whole, float(np.abs(np.log(laws[graph] / laws[less])).max()))
        named = max(named, float(np.abs(np.log(p / q)).max()))
        secret = max(secret, float(np.abs(np.log(p.sum(axis=0) / q.sum(axis=0))).max()))
    amplified = math.log1p(rate * math.expm1(whole))
    assert secret <= amplified * (1 + 1e-12)
    assert named == pytest.approx(whole)
    assert named > 1.2 * amplified
