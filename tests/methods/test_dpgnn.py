from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from charges import charged_stages
from hushgraph import registry
from hushgraph.datasets import disjoint_graphs
from hushgraph.errors import BudgetError, InputError, PrivateAccessError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.rooted_gradient import RootedGradient
from hushgraph.methods.dpgnn import DPGNN
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.model import load
from hushgraph.methods.plain_gnn import GAT, GIN
from hushgraph.methods.running import open_vault
from hushgraph.nn.rooted import CONVOLUTIONS
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.privacy.plan import Plan
from small_graphs import hub_graph, random_graph

SIZES = Metadata.from_sizes(20_000, 200_000)
NODE, REPLACE = units.Node(max_degree=5), units.NodeReplace(max_degree=5)
BUDGET = Budget(2.0, 1e-3)
QUICK = DPGNN(hidden_channels=4, epochs=2, batch_size=8, max_degree=2)


def test_the_plan_meets_the_budget_and_replacing_needs_more_noise() -> None:
    null = DPGNN().plan(SIZES, units.Node(), Budget(8.0, 1e-5))
    replaced = DPGNN().plan(SIZES, units.NodeReplace(), Budget(8.0, 1e-5))
    for plan in (null, replaced):
        assert 7.9 < plan.epsilon <= 8.0
        (stage,) = plan.stages
        assert stage.mechanism == RootedGradient(1.0, 2048 / 15_000, 150, max_degree=2, num_layers=1)
    assert null["network"].scale < 0.6 * replaced["network"].scale
    assert leaves_predictions_raw(null)
    assert null["network"].mechanism.touched(null.unit) == (3, 2)


def leaves_predictions_raw(plan: Plan) -> bool:
    return Code.RAW_PREDICTIONS in {note.code for note in plan.unprotected}


def test_settings_follow_public_sizes_unless_given() -> None:
    def caps(train: int) -> list[int]:
        sizes = replace(SIZES, num_nodes=train, num_train=train, num_val=0, num_test=0)
        return [DPGNN(num_layers=layers).cap(sizes) for layers in (1, 2, 3)]

    assert caps(1_000) == [2, 2, 2]
    assert caps(35_000) == [5, 3, 2]
    assert caps(1_000_000) == [7, 3, 2]
    assert DPGNN(max_degree=9).cap(SIZES) == 9
    (stage,) = DPGNN(epochs=3).stages(SIZES, NODE, BUDGET)
    assert stage.mechanism == RootedGradient(1.0, 2048 / 15_000, 3 * math.ceil(15_000 / 2048), 2, 1)


def test_a_cap_of_the_unit_below_the_methods_cap_counts() -> None:
    (stage,) = DPGNN(max_degree=7).plan(SIZES, units.Node(max_degree=2), Budget(8.0, 1e-5)).stages
    assert isinstance(stage.mechanism, RootedGradient)
    assert stage.mechanism.touched(units.Node(max_degree=2)) == (3, 2)


@pytest.mark.parametrize("unit", [units.BoundedDegreeNode(max_degree=5), units.UndirectedEdge(), units.Record()])
def test_units_without_proof_are_refused(unit: units.Unit) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        DPGNN().plan(SIZES, unit, Budget(2.0, 1e-7))


@pytest.mark.parametrize(
    ("convolution", "layers", "unit"),
    [*[(convolution, 1, NODE) for convolution in CONVOLUTIONS], ("gcn", 2, REPLACE), ("attention", 2, NODE)],
)
def test_it_fits_predicts_and_certifies(convolution: str, layers: int, unit: units.Unit) -> None:
    graph = hub_graph()
    method = DPGNN(
        convolution=convolution,
        num_layers=layers,
        hidden_channels=4,
        heads=2,
        epochs=1,
        batch_size=8,
        max_degree=2,
        optimizer="sgd",
    )
    model = method.fit(graph, unit, BUDGET, seed=0)
    assert model.certificate.epsilon <= 2.0
    assert leaves_predictions_raw(model.plan)
    assert not model.released
    assert model.predict_proba().shape == (61, 3)
    assert model.scores_are_private
    torch.testing.assert_close(model.predict_proba(graph), model.predict_proba())
    rows = model.metrics["test_by_class"]
    assert sum(row["tested"] for row in rows) == check_graph(graph).test.numel()


@pytest.mark.parametrize("convolution", ["gcn", "sage", "gin"])
def test_noisy_inference_is_charged_cached_and_says_nothing_of_raw_predictions(
    convolution: str, tmp_path: Path
) -> None:
    graph = random_graph(1)
    method = DPGNN(
        convolution=convolution,
        hidden_channels=4,
        epochs=1,
        batch_size=8,
        num_layers=2,
        max_degree=2,
        inference="noisy",
    )
    model = method.fit(graph, NODE, BUDGET, seed=0)
    assert model.certificate.epsilon <= 2.0
    assert not leaves_predictions_raw(model.plan)
    assert model.plan["inference"].count == 2
    assert [tuple(rows.shape) for rows in model.released["inference"]] == [(40, 5)] * 2
    loaded = load(model.save(tmp_path / "model"))
    torch.testing.assert_close(loaded.predict_proba(graph), model.predict_proba())
    with pytest.raises(InputError, match="training graph"):
        loaded.predict_proba(random_graph(2, num_nodes=44))


@pytest.mark.parametrize(("convolution", "layers"), [("gcn", 1), ("sage", 1), ("gin", 1), ("gin", 2)])
def test_noisy_inference_without_noise_would_be_close_to_the_raw_one(convolution: str, layers: int) -> None:
    graph = random_graph(4, num_nodes=60, num_edges=300)
    method = DPGNN(convolution=convolution, num_layers=layers, hidden_channels=8, epochs=5, batch_size=30, max_degree=3)
    model = method.fit(graph, units.Node(), Budget(20.0, 1e-3), seed=0)
    noisy = model.predict_on(graph, Budget(1e7, 1e-3), seed=0)
    assert noisy.certificate.method == "dp-gnn-inference"
    agree = (noisy.predict() == model.predict()).float().mean()
    assert float(agree) > 0.9
    if convolution == "gin":  # sums are exact, means are weighted by the rows' lengths
        assert noisy.scores is not None
        assert model.scores is not None
        torch.testing.assert_close(noisy.scores, model.scores, rtol=0.02, atol=0.02)


def test_save_and_load(tmp_path: Path) -> None:
    graph = random_graph(1)
    model = QUICK.fit(graph, NODE, BUDGET, seed=0)
    folder = model.save(tmp_path / "model")
    loaded = load(folder)
    torch.testing.assert_close(loaded.predict_proba(graph), model.predict_proba())
    assert loaded.certificate == model.certificate
    assert "test_by_class" in json.loads((folder / "metrics.json").read_text())
    with pytest.raises(InputError, match="pass the graph"):
        loaded.predict()


def test_inductive_use_trains_on_one_graph_and_predicts_another() -> None:
    train, test = disjoint_graphs(random_graph(3, num_nodes=80, num_edges=300))
    model = QUICK.fit(train, NODE, BUDGET, seed=0)
    with pytest.raises(InputError, match="new release: use predict_on"):
        model.predict(test)
    unprotected = model.predict_on(test, Budget(math.inf, 1e-3))
    assert unprotected.predict().shape == (test.num_nodes,)
    assert math.isinf(unprotected.certificate.epsilon)
    with pytest.raises(InputError, match="features"):
        model.predict(random_graph(0, num_features=9))


def test_without_protection_the_network_learns_and_says_so() -> None:
    graph = random_graph(2, num_nodes=80, num_edges=20)
    graph.y = (graph.x[:, 0] > 0).long()
    model = DPGNN(hidden_channels=8).fit(graph, NODE, Budget(math.inf, 1e-3), seed=0)
    assert model.certificate.epsilon == math.inf
    assert model.metrics["accuracy"]["train"] > 80


def test_sparse_features_give_the_same_model_as_dense_ones() -> None:
    graph = random_graph(5)
    graph.x = (graph.x > 0.5).float()
    dense = QUICK.fit(graph, NODE, BUDGET, seed=0)
    graph.x = graph.x.to_sparse_csr()
    sparse = QUICK.fit(graph, NODE, BUDGET, seed=0)
    torch.testing.assert_close(sparse.predict_proba(), dense.predict_proba(), rtol=1e-3, atol=1e-4)


def test_the_charge_is_in_the_ledger_and_over_budget_is_refused_before_training(tmp_path: Path) -> None:
    graph, ledger = random_graph(1), Ledger(tmp_path / "ledger.jsonl")
    QUICK.fit(graph, NODE, BUDGET, ledger=ledger, seed=0)
    assert charged_stages(ledger) == ["network"]
    ledger.set_limit(2.5, 1e-3)
    with pytest.raises(BudgetError):
        QUICK.fit(graph, NODE, BUDGET, ledger=ledger, seed=1)


def test_the_vault_lets_no_raw_prediction_out_unless_the_plan_said_so() -> None:
    graph = check_graph(random_graph(1))
    plan = DPMLP(epochs=1, batch_size=8).plan(graph.metadata, NODE, BUDGET)
    vault, _ = open_vault(graph, plan, None, 0, None)
    with pytest.raises(UnprovenError, match="declares"):
        vault.raw_scores(lambda features, edges: torch.zeros(40, 3))
    with pytest.raises(PrivateAccessError, match="edges are private"):
        vault.edges  # noqa: B018
    with pytest.raises(InputError, match="no stage 'network'"):
        vault.release("network", None, None)


@pytest.mark.parametrize(
    "bad",
    [
        {"num_layers": 0},
        {"num_layers": 4},
        {"convolution": "chebyshev"},
        {"optimizer": "rmsprop"},
        {"inference": "raw"},
        {"max_grad_norm": 0.0},
        {"max_degree": 0},
    ],
)
def test_impossible_choices_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        DPGNN(**bad)  # type: ignore[arg-type]


def test_noisy_inference_with_attention_is_refused_with_the_reason() -> None:
    with pytest.raises(UnprovenError, match="attention, whose weights depend"):
        DPGNN(convolution="attention", inference="noisy")
    graph = random_graph(1)
    model = DPGNN(convolution="attention", hidden_channels=4, epochs=1, batch_size=8).fit(graph, NODE, BUDGET, seed=0)
    with pytest.raises(UnprovenError, match="gcn, sage or gin"):
        model.predict_on(graph, BUDGET)


def test_noisy_inference_on_another_graph_is_charged_to_that_graph() -> None:
    train, test = disjoint_graphs(random_graph(3, num_nodes=80, num_edges=300))
    method = DPGNN(convolution="gin", hidden_channels=4, epochs=1, batch_size=8, inference="noisy")
    model, ledger = method.fit(train, NODE, BUDGET, seed=0), Ledger()
    other = model.predict_on(test, BUDGET, ledger=ledger, seed=0)
    assert other.predict().shape == (test.num_nodes,)
    assert charged_stages(ledger) == ["inference"]


@pytest.mark.parametrize("baseline", [GIN, GAT])
def test_the_new_baselines_run_without_privacy_only(baseline: type[GIN] | type[GAT]) -> None:
    assert registry.load("methods", baseline.name) is baseline
    assert (
        baseline(epochs=2, hidden_channels=4).fit(random_graph(0), NODE, Budget(math.inf, 1e-3), seed=0).scores
        is not None
    )
    with pytest.raises(UnprovenError):
        baseline().fit(random_graph(0), NODE, BUDGET)


def test_the_registry_knows_it() -> None:
    assert registry.load("methods", "dp-gnn") is DPGNN
    assert DPGNN.units() == ["node", "node-replace"]
