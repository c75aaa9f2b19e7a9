from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from charges import charged_stages
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.chorus import SUMS, Chorus
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from small_graphs import hub_graph, random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
SIZES = Metadata.from_sizes(26_406, 2_117_924)
QUICK = Chorus(hidden_channels=4, epochs=2, ensemble_size=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def test_edge_level_plans_the_sums_alone_and_friendships_cost_little_more_than_one_direction() -> None:
    both = Chorus().plan(SIZES, EDGE, Budget(1.0, 1e-7))
    assert [stage.name for stage in both if not stage.is_free(EDGE)] == [SUMS]
    assert both[SUMS].count == 3
    assert 0.999 < both.epsilon <= 1.0
    one = Chorus().plan(SIZES, units.DirectedEdge(), Budget(1.0, 1e-7))
    assert both[SUMS].scale / one[SUMS].scale == pytest.approx(math.sqrt(8 / 7), rel=1e-3)


def test_node_level_noise_does_not_depend_on_the_cap() -> None:
    small, large = (
        Chorus().plan(SIZES, units.Node(max_degree=cap), Budget(8.0, 1e-5))[SUMS].scale for cap in (10, 400)
    )
    assert small == large
    plan = Chorus().plan(SIZES, units.Node(), Budget(8.0, 1e-5))
    assert plan[SUMS].scale == pytest.approx(0.4 * plan["stage_1"].scale)
    assert Code.NO_CAP in {note.code for note in plan.public}
    assert Code.DEGREE_CAP not in {note.code for note in plan.public}


@pytest.mark.parametrize(
    ("method", "nodes", "readers", "batch"),
    [
        (Chorus(), 20_000, 3_750, 256),
        (Chorus(), 400, 300, 512),
        (Chorus(train_fraction=0.5), 20_000, 7_500, 256),
        (Chorus(), 53_333, 10_000, 400),
        (Chorus(), 2_000_000, 375_000, 2449),
        (Chorus(batch_size=300), 2_000_000, 375_000, 300),
    ],
)
def test_readers_and_batches_follow_public_sizes(method: Chorus, nodes: int, readers: int, batch: int) -> None:
    sizes, budget = Metadata.from_sizes(nodes), Budget(8.0)
    plan = method.plan(sizes, NODE, budget)
    assert plan["stage_1"].mechanism == Gradient.of(readers, batch, 10, 1.0)
    assert plan["stage_1"].parallel == (1 if readers == sizes.num_train else 2)
    assert method.plan(sizes, EDGE, budget)["stage_1"].parallel == 1


def test_units_without_proof_are_refused() -> None:
    with pytest.raises(UnprovenError, match="record"):
        QUICK.plan(SIZES, units.Record(), Budget(4.0, 1e-6))


@pytest.mark.parametrize("bad", [{"hops": 0}, {"train_fraction": 0.0}, {"lr": 0.0}, {"aggregation_noise": 0.0}])
def test_bad_parameters_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Chorus(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("unit", [EDGE, NODE, units.NodeReplace(max_degree=5), units.BoundedDegreeNode(max_degree=60)])
def test_every_unit_trains_and_certifies(hops: int, unit: units.Unit) -> None:
    model = Chorus(hops=hops, hidden_channels=4, epochs=2, batch_size=8).fit(random_graph(2), unit, BUDGET, seed=0)
    assert torch.allclose(model.predict_proba().sum(1), torch.ones(40), atol=1e-5)
    assert 0 < model.certificate.epsilon <= 4.0


def test_each_sum_is_charged_once_and_a_limit_refuses_more() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(2), EDGE, BUDGET, ledger=ledger)
    assert charged_stages(ledger) == [SUMS] * 3
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
    method = Chorus(hops=1, hidden_channels=4, epochs=1)
    first, second = (method.fit(data, EDGE, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.released[SUMS][0], second.released[SUMS][0])
    other.y = (other.y + 1) % 3  # the labels of training nodes are
    assert not torch.equal(method.fit(other, EDGE, BUDGET, seed=1).released[SUMS][0], first.released[SUMS][0])


def test_only_readers_and_unlabeled_nodes_receive() -> None:
    graph = random_graph(2)
    model = Chorus(train_fraction=0.5, epochs=1, batch_size=8).fit(graph, NODE, BUDGET, seed=1)
    silent = (model.released[SUMS][0] == 0).all(dim=1)
    assert int(silent.sum()) == 10
    assert model.network.feature_model is not None  # which the others train
    assert bool(graph.train_mask[silent].all())


def test_two_models_on_disjoint_nodes_are_charged_once() -> None:
    ledger = Ledger()
    Chorus(train_fraction=0.5, epochs=1, batch_size=8).fit(random_graph(2), NODE, BUDGET, ledger=ledger)
    assert sorted(charged_stages(ledger)) == [SUMS, "stage_1"]


def test_inductive_inference_is_charged_to_its_own_ledger() -> None:
    for unit in (EDGE, NODE):
        model = Chorus(hops=2, hidden_channels=4, epochs=2, batch_size=8).fit(random_graph(2), unit, BUDGET, seed=1)
        ledger = Ledger()
        fresh = model.predict_on(random_graph(3, num_nodes=50), Budget(2.0, 1e-3), ledger=ledger)
        assert fresh.predict().shape == (50,)
        assert fresh.certificate.epsilon <= 2.0
        assert charged_stages(ledger) == [SUMS] * 2


def test_without_protection_the_certificate_says_so() -> None:
    for unit in (EDGE, NODE):
        model = QUICK.fit(random_graph(2), unit, Budget(math.inf, 1e-3), seed=0)
        assert not model.certificate.is_private


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_a_saved_model_predicts_the_same(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    graph.x = (graph.x > 0.5).float().to_sparse_csr()
    model = Chorus(hidden_channels=4, epochs=2, ensemble_size=2, batch_size=8, train_fraction=0.5).fit(
        graph, unit, BUDGET, seed=1
    )
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.certificate == model.certificate
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)
    if unit is EDGE:
        assert torch.equal(loaded.predict_proba(), model.predict_proba())
    else:  # a node's own features are part of its record: they are not stored, and not replaced by zeros
        with pytest.raises(InputError, match=r"reads the nodes' own features; pass the graph .* \(--data\)"):
            loaded.predict_proba()


def test_under_a_promise_nothing_about_single_nodes_is_stored() -> None:
    assert QUICK.fit(hub_graph(60), units.BoundedDegreeNode(max_degree=60), BUDGET, seed=1).released == {}
