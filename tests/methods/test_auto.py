from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hushgraph
from hushgraph import units
from hushgraph.budget import Budget
from hushgraph.errors import InputError
from hushgraph.facts import PublicFacts
from hushgraph.methods.auto import Auto
from hushgraph.methods.registry import method_class
from hushgraph.methods.saving import load_model, save_model
from small_graphs import random_graph

BUDGET = Budget(4.0, 1e-3)


def test_the_choice_at_node_level_follows_public_sizes() -> None:
    rare, common = PublicFacts(10_000, 60_000, 400), PublicFacts(10_000, 60_000, 7_500)
    small, dense = PublicFacts(4_000, 60_000, 2_000), PublicFacts(4_000, 160_000, 2_000)
    for facts, epsilon, expected in (
        (rare, 8.0, "dp-mlp"),
        (common, 8.0, "chorus"),
        (common, 2.0, "dp-mlp"),
        (small, 8.0, "dp-mlp"),
        (dense, 8.0, "chorus"),
    ):
        method, reason = Auto().choose(facts, units.Node(), Budget(epsilon))
        assert method.name == expected
        assert reason.startswith(f"{expected}: {facts.num_train} train nodes")
    assert Auto(average_degree=60.0).choose(common, units.Node(), Budget(2.0))[0].name == "chorus"


@pytest.mark.parametrize("unit", [units.UndirectedEdge(), units.Node(max_degree=5)])
def test_fit_says_why_in_model_and_certificate_and_saves_the_chosen_method(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    model = hushgraph.fit(graph, unit, BUDGET, seed=0)
    assert model.certificate.epsilon <= 4.0
    assert model.method.name in ("chorus", "mlp", "dp-mlp")
    assert model.reason
    assert any("choice of the method" in line for line in model.certificate.public)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.reason == model.reason
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)


def test_at_edge_level_a_model_of_features_wins_where_edges_say_nothing() -> None:
    """Labels are a function of one feature, edges are random: sums of labels can only distract."""
    graph = random_graph(4, num_nodes=400, num_edges=400)
    graph.x[:, 0] = graph.y.float() * 3
    model = hushgraph.fit(graph, units.UndirectedEdge(), Budget(0.5, 1e-4), seed=1)
    assert model.metrics["accuracy"]["val"] > 95.0
    assert "validation labels (public)" in model.reason


def test_the_release_is_charged_whichever_model_is_kept() -> None:
    plan = Auto().plan(PublicFacts.from_sizes(1000, 8000), units.UndirectedEdge(), Budget(1.0, 1e-6))
    assert 0.99 < plan.epsilon <= 1.0


def test_the_registry_knows_auto_and_it_rebuilds_nothing() -> None:
    assert method_class("auto") is Auto
    with pytest.raises(InputError):
        Auto().rebuild(PublicFacts.from_sizes(10, 10), {})


def test_the_certificate_says_where_the_average_degree_comes_from() -> None:
    facts = PublicFacts.from_sizes(20_000, 800_000, 15_000)
    counted = Auto().plan(facts, units.Node(), Budget(8.0, 1e-5)).assumptions[-1]
    declared = Auto(average_degree=40.0).plan(facts, units.Node(), Budget(8.0, 1e-5)).assumptions[-1]
    assert counted.startswith("the average degree, counted in the data")
    assert declared.startswith("the average degree, as declared")
    at_edge_level = Auto().plan(facts, units.UndirectedEdge(), Budget(1.0, 1e-7)).assumptions
    assert not any("average degree" in line for line in at_edge_level)
