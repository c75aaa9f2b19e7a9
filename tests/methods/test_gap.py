from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from charges import charged_stages
from hushgraph.datasets import disjoint_graphs
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.ledger.certificate import Randomness
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.gap import GAP
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan
from small_graphs import hub_graph, random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
SIZES = Metadata.from_sizes(26_406, 2_117_924)
QUICK = GAP(hidden_channels=4, epochs=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def multiplier(plan: Plan, name: str) -> float:
    """The noise of a stage over its sensitivity for the unit that the run states."""
    return (plan[name].scale or math.nan) / plan[name].mechanism.reference(plan.stated_unit)


def test_edge_level_charges_only_the_aggregations() -> None:
    plan = GAP(hops=3).plan(SIZES, EDGE, Budget(1.0, 1e-8))
    assert [stage.name for stage in plan if not stage.is_free(EDGE)] == ["aggregation"]
    assert [plan.runs_exactly(name) for name in ("encoder", "aggregation", "classifier")] == [True, False, True]
    assert plan["aggregation"].count == 3
    assert plan["aggregation"].sensitivity(EDGE) == pytest.approx(math.sqrt(2))
    assert 0.999 < plan.epsilon <= 1.0


def test_node_level_plans_gradients_too_and_splits_the_noise_as_asked() -> None:
    plan = GAP(aggregation_noise=0.6).plan(SIZES, units.Node(max_degree=100), Budget(8.0, 1e-5))
    encoder, aggregation, classifier = plan.stages
    assert encoder.mechanism == classifier.mechanism == Gradient(1.0, 256 / 19_804, 10 * math.ceil(19_804 / 256))
    assert multiplier(plan, "aggregation") == pytest.approx(0.6 * multiplier(plan, "encoder"))
    assert aggregation.scale == pytest.approx(10.0 * multiplier(plan, "aggregation"))
    assert 7.95 < plan.epsilon <= 8.0


def test_paper_mode_reproduces_the_published_scales_and_shows_what_they_prove() -> None:
    edge = GAP().plan(SIZES, units.DirectedEdge(), Budget(4.0, 1e-7), paper_mode=True)
    assert multiplier(edge, "aggregation") == pytest.approx(1.8354, abs=5e-4)
    assert edge.paper is not None
    assert edge.paper.epsilon == pytest.approx(4.0, abs=1e-3)
    assert edge.unit == EDGE
    assert edge.epsilon == pytest.approx(5.89, abs=0.01)
    node = GAP().plan(SIZES, units.Node(max_degree=100), Budget(8.0, 1e-5), paper_mode=True)
    assert multiplier(node, "encoder") == pytest.approx(1.0036, rel=3e-3)
    assert node["aggregation"].scale == pytest.approx(10.04, rel=3e-3)
    assert node.paper is not None
    assert node.epsilon < node.paper.epsilon <= 8.0


def test_no_encoder_means_no_encoder_stage() -> None:
    plan = GAP(encoder_layers=0).plan(SIZES, NODE, Budget(8.0, 1e-5))
    assert [stage.name for stage in plan.stages] == ["aggregation", "classifier"]


def test_units_without_proof_are_refused() -> None:
    with pytest.raises(UnprovenError, match="record"):
        GAP().plan(SIZES, units.Record(), Budget(4.0, 1e-6))


@pytest.mark.parametrize("bad", [{"hops": 0}, {"lr": 0.0}, {"combine": "mean"}, {"epochs": 0}, {"max_grad_norm": -1.0}])
def test_bad_parameters_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        GAP(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("combine", ["cat", "sum", "max", "attention"])
@pytest.mark.parametrize("unit", [EDGE, NODE, units.NodeReplace(max_degree=5), units.BoundedDegreeNode(max_degree=60)])
def test_every_unit_and_combination_trains_and_certifies(combine: str, unit: units.Unit) -> None:
    graph = random_graph(2)
    model = GAP(hidden_channels=4, epochs=2, batch_size=8, combine=combine).fit(graph, unit, BUDGET, seed=0)
    assert model.predict_proba().shape == (40, 3)
    assert torch.allclose(model.predict_proba().sum(1), torch.ones(40), atol=1e-5)
    assert 0 < model.certificate.epsilon <= 4.0
    assert set(model.metrics["accuracy"]) == {"train", "val", "test"}
    assert model.metrics["note"] == "not private: evaluation"


def test_a_directed_graph_is_protected_per_directed_edge() -> None:
    model = QUICK.fit(random_graph(2, symmetric=False), None, BUDGET, seed=0)
    assert model.certificate.unit == units.DirectedEdge()


def test_seeded_runs_repeat_and_say_so_and_others_do_not() -> None:
    graph = random_graph(2)
    one, two, other = (QUICK.fit(graph, EDGE, BUDGET, seed=s) for s in (5, 5, 6))
    assert torch.equal(one.predict_proba(), two.predict_proba())
    assert not torch.equal(one.predict_proba(), other.predict_proba())
    assert (one.certificate.randomness, one.certificate.is_private) == (Randomness.SEEDED, False)
    free = QUICK.fit(graph, EDGE, BUDGET)
    assert (free.certificate.randomness, free.certificate.is_private) == (Randomness.SYSTEM, True)
    again = QUICK.fit(graph, EDGE, BUDGET)
    assert not torch.equal(free.released["aggregation"][0], again.released["aggregation"][0])


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_test_labels_and_edges_beyond_the_release_have_no_influence(unit: units.Unit) -> None:
    """Changing every test label changes nothing at all in a seeded run."""
    graph, other = random_graph(2), random_graph(2)
    other.y = torch.where(other.test_mask, (other.y + 1) % 3, other.y)
    first, second = (QUICK.fit(data, unit, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_at_node_level_validation_labels_have_no_influence_either() -> None:
    graph, other = random_graph(2), random_graph(2)
    other.y = torch.where(other.val_mask, (other.y + 1) % 3, other.y)
    first, second = (QUICK.fit(data, NODE, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_predictions_read_no_edges() -> None:
    graph = random_graph(2)
    model = QUICK.fit(graph, EDGE, BUDGET, seed=1)
    before = model.predict_proba(graph)
    graph.edge_index = graph.edge_index[:, :2]
    assert torch.equal(model.predict_proba(graph), before)


def test_another_graph_is_not_silently_predicted() -> None:
    model = QUICK.fit(random_graph(2), EDGE, BUDGET, seed=1)
    with pytest.raises(InputError, match="new release: use predict_on"):
        model.predict(random_graph(2, num_nodes=50))


def test_inductive_inference_is_charged_to_its_own_ledger() -> None:
    model = QUICK.fit(random_graph(2), EDGE, BUDGET, seed=1)
    ledger = Ledger()
    fresh = model.predict_on(random_graph(3, num_nodes=50), Budget(2.0, 1e-3), ledger=ledger)
    assert fresh.predict().shape == (50,)
    assert fresh.certificate.epsilon <= 2.0
    assert fresh.certificate.method == "gap-inference"
    assert charged_stages(ledger) == ["aggregation"] * QUICK.hops


def test_inference_needs_neither_labels_nor_a_split() -> None:
    train_graph, test_graph = disjoint_graphs(random_graph(2, num_nodes=80, num_edges=400))
    model = QUICK.fit(train_graph, EDGE, BUDGET, seed=1)
    fresh = model.predict_on(test_graph, Budget(2.0, 1e-3))
    assert fresh.metrics["accuracy"]["train"] is None
    assert fresh.metrics["accuracy"]["test"] is not None
    bare = Data(x=test_graph.x, edge_index=test_graph.edge_index)
    assert model.predict_on(bare, Budget(2.0, 1e-3)).predict().shape == (test_graph.num_nodes,)
    with pytest.raises(InputError, match="train_mask"):
        QUICK.fit(Data(x=test_graph.x, y=test_graph.y, edge_index=test_graph.edge_index), EDGE, BUDGET)


def test_one_method_object_is_calibrated_anew_for_every_graph() -> None:
    method = GAP(hidden_channels=4, epochs=2, batch_size=8)
    small, large = random_graph(2), random_graph(2, num_nodes=200, num_edges=600)
    first, second, again = (method.fit(graph, NODE, BUDGET) for graph in (small, large, small))
    assert first.plan == again.plan
    assert first.plan["classifier"] != second.plan["classifier"]
    assert all(model.certificate.epsilon <= BUDGET.epsilon for model in (first, second))


def test_two_fits_on_one_ledger_compose_and_a_limit_refuses_the_second() -> None:
    ledger, graph = Ledger(), random_graph(2)
    one = QUICK.fit(graph, EDGE, BUDGET, ledger=ledger)
    two = QUICK.fit(graph, EDGE, BUDGET, ledger=ledger)
    assert one.certificate.total.epsilon == pytest.approx(one.certificate.epsilon)
    assert two.certificate.total.epsilon > 1.3 * two.certificate.epsilon
    ledger.set_limit(6.0, 1e-3)
    entries = len(ledger.history().entries)
    with pytest.raises(BudgetError):
        QUICK.fit(graph, EDGE, BUDGET, ledger=ledger)
    assert [entry.kind for entry in ledger.history().entries[entries:]] == ["refused"]


def test_without_protection_the_certificate_says_so() -> None:
    model = QUICK.fit(random_graph(2), EDGE, Budget(math.inf, 1e-3), seed=0)
    assert math.isinf(model.certificate.epsilon)
    assert (model.certificate.randomness, model.certificate.is_private) == (Randomness.ABSENT, False)


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_a_saved_model_predicts_without_the_graph(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    model = QUICK.fit(graph, unit, BUDGET, seed=1)
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.certificate == model.certificate
    assert loaded.metrics == model.metrics
    assert torch.equal(loaded.predict_proba(graph), model.predict_proba())
    if unit is EDGE:
        assert torch.equal(loaded.predict_proba(), model.predict_proba())
    else:
        with pytest.raises(InputError, match=r"reads the nodes' own features; pass the graph .* \(--data\)"):
            loaded.predict_proba()
    assert [tuple(rows.shape) for rows in loaded.released["aggregation"]] == [(40, 4)] * QUICK.hops


def test_under_a_promise_nothing_about_single_nodes_is_stored(tmp_path: Path) -> None:
    model = QUICK.fit(hub_graph(60), units.BoundedDegreeNode(max_degree=60), BUDGET, seed=1)
    assert model.released == {}
    loaded = load(model.save(tmp_path / "model"))
    with pytest.raises(InputError, match="predict_on"):
        loaded.predict()


def test_sparse_features_train_like_dense_ones() -> None:
    dense, sparse = random_graph(2), random_graph(2)
    dense.x = (dense.x > 0.5).float()
    sparse.x = dense.x.to_sparse_csr()
    for unit in (EDGE, NODE):
        one, two = (QUICK.fit(graph, unit, BUDGET, seed=3) for graph in (dense, sparse))
        # The order of additions differs, and Adam's first steps turn the last bit of a tiny gradient into a step.
        assert float((one.predict_proba() - two.predict_proba()).abs().max()) < 0.02


def test_the_graph_helps_on_a_graph_made_of_friends(planted: Data) -> None:
    strong = GAP(hops=1, epochs=60).fit(planted, EDGE, Budget(8.0, 1e-5), seed=0)
    weak = GAP(hops=1, epochs=60).fit(planted, EDGE, Budget(0.01, 1e-5), seed=0)
    assert strong.metrics["accuracy"]["test"] > 85.0
    assert weak.metrics["accuracy"]["test"] < 75.0


@pytest.fixture(scope="module")
def planted() -> Data:
    """600 nodes whose friends share their class; features say a little."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    pairs = torch.randint(0, 600, (2, 60_000), generator=generator)
    pairs = pairs[:, (y[pairs[0]] == y[pairs[1]]) & (pairs[0] < pairs[1])]
    graph = random_graph(0, num_nodes=600)
    graph.y = y
    graph.x = torch.randn(600, 3, generator=generator) + torch.eye(3)[y]
    graph.edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
    return graph
