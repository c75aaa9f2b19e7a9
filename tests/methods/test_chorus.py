from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.chorus import Chorus, ChorusModel
from hushgraph.methods.saving import load_model, save_model
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from small_graphs import hub_graph, random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
FACTS = PublicFacts.from_sizes(26_406, 2_117_924)
QUICK = Chorus(hidden=4, epochs=2, members=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def test_edge_level_plans_the_sums_alone_and_friendships_cost_little_more_than_one_direction() -> None:
    both = Chorus().plan(FACTS, EDGE, Budget(1.0, 1e-7))
    (sums,) = both.stages
    assert sums.count == 3
    assert 0.999 < both.epsilon <= 1.0
    (one,) = Chorus().plan(FACTS, units.DirectedEdge(), Budget(1.0, 1e-7)).stages
    assert sums.std / one.std == pytest.approx(math.sqrt(8 / 7), rel=1e-3)


def test_node_level_noise_does_not_depend_on_the_cap() -> None:
    small, large = (
        Chorus().plan(FACTS, units.Node(max_degree=cap), Budget(8.0, 1e-5)).stages[0].std for cap in (10, 400)
    )
    assert small == large
    plan = Chorus().plan(FACTS, units.Node(), Budget(8.0, 1e-5))
    assert plan.stages[0].std == pytest.approx(0.4 * plan.stages[1].std)
    assert not any("the cap" in line for line in plan.assumptions)


def test_the_number_of_learners_follows_public_sizes() -> None:
    large, small = PublicFacts.from_sizes(20_000, 10**6), PublicFacts.from_sizes(400, 10**4)
    assert Chorus().num_learners(large, NODE) == round(0.25 * 15_000)
    assert Chorus().num_learners(small, NODE) == small.num_train
    assert Chorus().num_learners(large, EDGE) == large.num_train
    assert Chorus(learners=0.5).num_learners(large, NODE) == 7_500


def test_units_without_proof_are_refused() -> None:
    with pytest.raises(UnprovenError, match="record"):
        QUICK.plan(FACTS, units.Record(), BUDGET)


@pytest.mark.parametrize("bad", [{"num_stages": 0}, {"learners": 0.0}, {"lr": 0.0}, {"aggregation_noise": 0.0}])
def test_bad_parameters_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Chorus(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("unit", [EDGE, NODE, units.NodeReplace(max_degree=5), units.NodePromise(max_degree=60)])
def test_every_unit_trains_and_certifies(stages: int, unit: units.Unit) -> None:
    model = Chorus(num_stages=stages, hidden=4, epochs=2, batch_size=8).fit(random_graph(2), unit, BUDGET, seed=0)
    assert torch.allclose(model.predict_proba().sum(1), torch.ones(40), atol=1e-5)
    assert 0 < model.certificate.epsilon <= 4.0


def test_each_sum_is_charged_once_and_a_limit_refuses_more() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(2), EDGE, BUDGET, ledger=ledger)
    assert [e.values["mechanism"] for e in ledger.history().entries if e.kind == "charge"] == ["label sum"] * 3
    ledger.set_limit(4.5, 1e-3)
    entries = len(ledger.history().entries)
    with pytest.raises(BudgetError):
        QUICK.fit(random_graph(2), EDGE, BUDGET, ledger=ledger)
    assert [entry.kind for entry in ledger.history().entries[entries:]] == ["refused"]


@pytest.mark.parametrize(("unit", "hidden"), [(EDGE, ("test",)), (NODE, ("val", "test"))])
def test_hidden_labels_have_no_influence(unit: units.Unit, hidden: tuple[str, ...]) -> None:
    """Validation labels are public at edge level, where they choose the best epoch; they are never sent."""
    graph, other = random_graph(2), random_graph(2)
    for split in hidden:
        other.y = torch.where(getattr(other, f"{split}_mask"), (other.y + 1) % 3, other.y)
    first, second = (QUICK.fit(data, unit, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_validation_labels_are_never_sent() -> None:
    graph, other = random_graph(2), random_graph(2)
    other.y = torch.where(other.val_mask, (other.y + 1) % 3, other.y)
    method = Chorus(num_stages=1, hidden=4, epochs=1)
    first, second = (method.fit(data, EDGE, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.released["sum_1"], second.released["sum_1"])


def test_only_learners_and_unlabeled_nodes_receive() -> None:
    graph = random_graph(2)
    model = Chorus(learners=0.5, epochs=1, batch_size=8).fit(graph, NODE, BUDGET, seed=1)
    silent = (model.released["sum_1"] == 0).all(dim=1)
    assert int(silent.sum()) == 10
    assert model.settings["opinion"]
    assert bool(graph.train_mask[silent].all())


def test_two_models_on_disjoint_nodes_are_charged_once() -> None:
    ledger = Ledger()
    Chorus(learners=0.5, epochs=1, batch_size=8).fit(random_graph(2), NODE, BUDGET, ledger=ledger)
    charges = [(e.values["stage"], e.values["mechanism"]) for e in ledger.history().entries if e.kind == "charge"]
    assert sorted(charges) == [("label sums", "label sum"), ("stage_1", "gradient")]


def test_inductive_inference_is_charged_to_its_own_ledger() -> None:
    for unit in (EDGE, NODE):
        model = Chorus(num_stages=2, hidden=4, epochs=2, batch_size=8).fit(random_graph(2), unit, BUDGET, seed=1)
        assert isinstance(model, ChorusModel)
        ledger = Ledger()
        fresh = model.predict_on(random_graph(3, num_nodes=50), Budget(2.0, 1e-3), ledger=ledger)
        assert fresh.predict().shape == (50,)
        assert fresh.certificate.epsilon <= 2.0
        assert len([e for e in ledger.history().entries if e.kind == "charge"]) == 2


def test_without_protection_the_certificate_says_so() -> None:
    for unit in (EDGE, NODE):
        model = QUICK.fit(random_graph(2), unit, Budget(math.inf, 1e-3), seed=0)
        assert "NO differential privacy" in model.certificate.sentence


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_a_saved_model_predicts_the_same(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    graph.x = (graph.x > 0.5).float().to_sparse_csr()
    model = Chorus(hidden=4, epochs=2, members=2, batch_size=8, learners=0.5).fit(graph, unit, BUDGET, seed=1)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.certificate == model.certificate
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)
    alone = loaded.predict_proba()  # at node level a node's own features are its own record: left out
    assert alone.shape == (40, 3)
    assert torch.equal(alone, model.predict_proba()) == (unit is EDGE)


def test_under_a_promise_nothing_about_single_nodes_is_stored() -> None:
    assert QUICK.fit(hub_graph(60), units.NodePromise(max_degree=60), BUDGET, seed=1).released == {}
