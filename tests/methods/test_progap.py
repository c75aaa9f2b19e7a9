from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from charges import charged_stages
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.model import load
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from small_graphs import random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
SIZES = Metadata.from_sizes(26_406, 2_117_924)
QUICK = ProGAP(hidden_channels=4, epochs=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def test_paper_mode_reproduces_the_published_scales() -> None:
    for hops, scale in ((1, 4.9768), (2, 7.0382), (5, 11.1283)):
        plan = ProGAP(hops=hops).plan(SIZES, units.DirectedEdge(), Budget(1.0, 1e-7), paper_mode=True)
        assert plan["aggregation"].scale == pytest.approx(scale, rel=1e-3)  # one directed edge moves it by 1
        assert plan.paper is not None
        assert plan.paper.epsilon <= 1.0 < plan.epsilon
    node = ProGAP(hops=4, base_layers=2).plan(SIZES, units.Node(), Budget(8.0, 1e-5), paper_mode=True)
    assert node["aggregation"].scale == pytest.approx(1.3443 * math.sqrt(100), rel=3e-3)


def test_our_accounting_needs_less_noise_than_the_paper_s() -> None:
    arguments = (SIZES, units.DirectedEdge(), Budget(1.0, 1e-7))
    ours, paper = ProGAP(hops=5).plan(*arguments), ProGAP(hops=5).plan(*arguments, paper_mode=True)
    assert 0.92 < ours["aggregation"].scale / paper["aggregation"].scale < 0.96


def test_every_stage_is_planned() -> None:
    plan = ProGAP(hops=3).plan(SIZES, units.Node(), Budget(8.0, 1e-5))
    assert [s.name for s in plan.stages] == ["aggregation", "stage_0", "stage_1", "stage_2", "stage_3"]
    assert plan.stages[0].count == 3


def test_deep_networks_train_longer_where_epochs_are_free() -> None:
    seen: dict[int, int] = {}
    for hops, epochs in ((2, None), (5, None), (6, 7)):
        method = ProGAP(hops=hops, hidden_channels=2, epochs=epochs)
        method.fit(random_graph(2), EDGE, BUDGET, progress=lambda stage, _, total: seen.update({hops: total}))  # noqa: B023
    assert seen == {2: 100, 5: 200, 6: 7}
    plan = ProGAP(hops=5).plan(SIZES, units.Node(), Budget(8.0, 1e-5))
    assert plan["stage_0"].mechanism == Gradient.of(SIZES.num_train, 256, 5, 1.0)


def test_units_without_proof_are_refused() -> None:
    with pytest.raises(UnprovenError, match="record"):
        QUICK.plan(SIZES, units.Record(), Budget(4.0, 1e-6))


@pytest.mark.parametrize(
    "bad", [{"hops": 0}, {"combine": "mean"}, {"epochs": 0}, {"best_by": "luck"}, {"aggregation_noise": 0.0}]
)
def test_bad_parameters_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        ProGAP(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("combine", ["cat", "sum", "max", "attention"])
@pytest.mark.parametrize("unit", [EDGE, NODE, units.NodeReplace(max_degree=5), units.BoundedDegreeNode(max_degree=60)])
def test_every_unit_and_combination_trains_and_certifies(combine: str, unit: units.Unit) -> None:
    model = ProGAP(hidden_channels=4, epochs=2, batch_size=8, combine=combine).fit(
        random_graph(2), unit, BUDGET, seed=0
    )
    assert torch.allclose(model.predict_proba().sum(1), torch.ones(40), atol=1e-5)
    assert 0 < model.certificate.epsilon <= 4.0


def test_layerwise_training_keeps_what_earlier_stages_learned() -> None:
    for layerwise in (True, False):
        method = ProGAP(hidden_channels=4, epochs=3, layerwise=layerwise)
        network = method.fit(random_graph(2), EDGE, BUDGET, seed=0).network
        kept = torch.equal(network.senders[0].layers[0].weight, network.submodel(2).bases[0].layers[0].weight)
        assert kept is layerwise


def test_each_sum_is_released_and_charged_once() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(2), EDGE, BUDGET, ledger=ledger)
    assert charged_stages(ledger) == ["aggregation"] * QUICK.hops
    ledger.set_limit(4.5, 1e-3)
    with pytest.raises(BudgetError):
        QUICK.fit(random_graph(2), EDGE, BUDGET, ledger=ledger)


def test_hidden_labels_have_no_influence() -> None:
    graph, other = random_graph(2), random_graph(2)
    other.y = torch.where(other.train_mask, other.y, (other.y + 1) % 3)
    first, second = (QUICK.fit(data, NODE, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_inductive_inference_is_charged_to_its_own_ledger() -> None:
    for unit in (EDGE, NODE):
        model = QUICK.fit(random_graph(2), unit, BUDGET, seed=1)
        fresh = model.predict_on(random_graph(3, num_nodes=50), Budget(2.0, 1e-3), ledger=Ledger())
        assert fresh.predict().shape == (50,)
        assert fresh.certificate.epsilon <= 2.0


def test_without_protection_the_certificate_says_so() -> None:
    model = QUICK.fit(random_graph(2), EDGE, Budget(math.inf, 1e-3), seed=0)
    assert not model.certificate.is_private


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_a_saved_model_predicts_the_same(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    model = QUICK.fit(graph, unit, BUDGET, seed=1)
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.certificate == model.certificate
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)
    if unit == EDGE:
        assert loaded.predict_proba().shape == (40, 3)
    else:
        with pytest.raises(InputError, match="pass the graph it was trained on"):
            loaded.predict_proba()
