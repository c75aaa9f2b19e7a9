from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import hushgraph as hg
from charges import charged_stages
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms import EdgeCount, EdgeFlip, NoisyEdges
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from small_graphs import random_graph

EDGE, BUDGET, SMALL = hg.units.UndirectedEdge(), hg.Budget(4.0, 1e-3), hg.Budget(4.0, 1e-7)
SIZES = Metadata.from_sizes(20_000, None, None, 50, 5)
METHODS: list[Any] = [hg.EdgeRand, hg.LapGraph, hg.ARR, hg.SageEDP]


def quiet() -> Ledger:
    return Ledger.in_memory(warn=False)


# Plans


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("method", [hg.LapGraph(), hg.ARR(), hg.EdgeRand(density="kept")])
def test_one_percent_is_for_the_count_and_the_rest_for_the_graph(method: Any, epsilon: float) -> None:
    plan = method.plan(SIZES, EDGE, hg.Budget(epsilon, 1e-7))
    count, graph = plan["count"], plan["graph"]
    assert isinstance(count.mechanism, EdgeCount)
    assert count.mechanism.sensitivity(EDGE) / count.scale == pytest.approx(0.01 * epsilon, rel=0.05)
    assert 0.98 * epsilon < 1.0 / graph.scale < 0.991 * epsilon
    assert 0.999 * epsilon < plan.epsilon <= epsilon
    assert plan.loss.accountant == "sum of pure epsilons"


def test_edge_rand_as_published_and_declared_numbers_ask_for_no_count() -> None:
    assert [stage.name for stage in hg.EdgeRand().plan(SIZES, EDGE, SMALL)] == ["graph", "features", "labels"]
    known = Metadata.from_sizes(20_000, 600_000, None, 50, 5)
    assert "count" not in hg.ARR().plan(known, EDGE, hg.Budget(4.0))
    assert hg.ARR().plan(known, EDGE, hg.Budget(4.0))["graph"].scale == pytest.approx(0.25)


def test_directed_graphs_have_ordered_pairs() -> None:
    for unit, undirected in ((EDGE, True), (hg.units.DirectedEdge(), False)):
        flip, pairs = (one.plan(SIZES, unit, SMALL)["graph"].mechanism for one in (hg.ARR(), hg.LapGraph()))
        assert isinstance(flip, EdgeFlip)
        assert isinstance(pairs, NoisyEdges)
        assert flip.undirected == pairs.undirected == undirected


def test_a_graph_that_would_be_too_dense_is_refused_with_an_estimate() -> None:
    with pytest.raises(
        InputError, match=r"at most 3e\+07 pairs.*epsilon 1 on 100000 nodes.*about 1.3e\+09.*density=kept"
    ):
        hg.EdgeRand().plan(Metadata.from_sizes(100_000, None, None, 5, 2), EDGE, hg.Budget(1.0, 1e-7))
    assert hg.EdgeRand().plan(Metadata.from_sizes(100_000, None, None, 5, 2), EDGE, hg.Budget(8.0, 1e-7))
    assert hg.EdgeRand(density="kept").plan(Metadata.from_sizes(100_000, None, None, 5, 2), EDGE, hg.Budget(1.0, 1e-7))


@pytest.mark.parametrize("unit", [hg.units.Node(), hg.units.BoundedDegreeNode(), hg.units.Record(), hg.units.Local()])
@pytest.mark.parametrize("method", METHODS)
def test_units_that_are_no_edges_are_refused(method: Any, unit: Any) -> None:
    with pytest.raises(UnprovenError):
        method().plan(SIZES, unit, hg.Budget(4.0, 1e-6))


def test_paper_mode_shows_that_both_orders_cost_twice() -> None:
    plan = hg.ARR().plan(SIZES, hg.units.DirectedEdge(), SMALL, paper_mode=True)
    assert plan.paper is not None
    assert plan.paper.epsilon <= 4.0
    assert plan.epsilon == pytest.approx(8.0, rel=1e-3)


# Runs


def test_the_graph_is_released_once_and_everything_else_is_post_processing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], EdgeFlip.release
    monkeypatch.setattr(EdgeFlip, "release", lambda self, *rest: calls.append(1) or real(self, *rest))
    ledger, graph = quiet(), random_graph(0)
    model = hg.ARR(num_layers=3, epochs=4).fit(graph, EDGE, BUDGET, ledger=ledger, seed=0)
    model.scores = None
    model.predict(graph)
    assert len(calls) == 1
    assert charged_stages(ledger) == ["count", "graph"]
    again = hg.ARR(epochs=1).fit(graph, EDGE, BUDGET, ledger=ledger)
    assert len(calls) == 2
    assert charged_stages(ledger) == 2 * ["count", "graph"]
    first, second = (one.released["graph"][0].edge_index() for one in (model, again))
    assert first.shape != second.shape or not torch.equal(first, second)


def test_without_protection_the_graph_is_the_graph() -> None:
    graph = random_graph(0)
    for method in METHODS:
        model = method(epochs=1).fit(graph, EDGE, hg.Budget(math.inf, 1e-3), ledger=quiet())
        assert model.settings["released_edges"] == graph.edge_index.shape[1]
        assert model.certificate.epsilon == math.inf


def test_more_epsilon_keeps_more_of_the_edges_and_the_density_stays() -> None:
    graph = check_graph(random_graph(3, num_nodes=200, num_edges=2_000))
    true = set(map(tuple, graph.edges.edge_index().t().tolist()))
    for method in (hg.ARR, hg.LapGraph):
        shares = []
        for epsilon in (1.0, 4.0, 8.0):
            model = method(epochs=1).fit(graph, EDGE, hg.Budget(epsilon, 1e-4), seed=1, ledger=quiet())
            released = set(map(tuple, model.released["graph"][0].edge_index().t().tolist()))
            assert {(b, a) for a, b in released} == released
            assert len(released) == pytest.approx(len(true), rel=0.25)
            shares.append(len(released & true) / len(true))
        assert shares[0] < shares[1] < shares[2]
        assert shares[2] > 0.9


def test_public_edges_stay_and_the_certificate_says_so() -> None:
    graph = random_graph(0)
    graph.public_edge_index = graph.edge_index[:, (graph.edge_index < 10).all(dim=0)]
    public = set(map(tuple, graph.public_edge_index.t().tolist()))
    for method in METHODS:
        model = method(epochs=1).fit(graph, EDGE, BUDGET, seed=0, ledger=quiet())
        assert public <= set(map(tuple, model.released["graph"][0].edge_index().t().tolist()))
        notes = [one for one in model.plan.unprotected if one.code is Code.PUBLIC_EDGES]
        assert [one.values["edges"] for one in notes] == [len(public)]
    assert not hg.GAP().plan(check_graph(graph).metadata, EDGE, BUDGET).unprotected


@pytest.mark.parametrize("convolution", ["sage", "gcn", "gin", "gat", "TAGConv", "TransformerConv"])
def test_any_convolution_learns_from_the_graph(convolution: str, tmp_path: Any) -> None:
    graph = random_graph(0)
    model = hg.ARR(convolution=convolution, epochs=3).fit(graph, EDGE, BUDGET, seed=0)
    model.save(tmp_path / "model")
    again = hg.load(tmp_path / "model")
    again.scores = None
    assert torch.equal(again.predict_proba(graph), model.predict_proba())


def test_the_two_forms_of_sage_edp_have_the_layers_of_their_papers() -> None:
    plan = hg.SageEDP().plan(SIZES, EDGE, SMALL)
    gap, progap = (hg.SageEDP(form=form).network(plan, torch.Generator()) for form in ("gap", "progap"))
    assert [sum(type(one).__name__ == "Linear" for one in net.pre.layers) for net in (gap, progap)] == [2, 1]
    assert [net.jumping for net in (gap, progap)] == ["none", "cat"]
    assert {net.convolutions[0].aggr for net in (gap, progap)} == {"sum"}
    assert hg.SageEDP(pre_layers=3).network(plan, torch.Generator()).pre.layers[-1] is not None
