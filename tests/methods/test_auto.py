from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import hushgraph
from charges import charged_stages
from hushgraph import registry
from hushgraph.errors import BudgetError, InputError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.certificate import Charge
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import check_history, spent
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.methods import auto as rule
from hushgraph.methods.auto import COUNT, COUNT_CAP, COUNT_SHARE, PAIR_SHARE, PAIRS, Answers, Auto, needed_degree
from hushgraph.methods.base import Method, Output
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.chorus_codes import ChorusCodes
from hushgraph.methods.mlp import MLP
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.privacy.plan import Plan, Stage
from small_graphs import random_graph

BUDGET = Budget(4.0, 1e-3)
NODE = units.Node(max_degree=5)
NODE_UNITS = [units.Node(max_degree=5), units.NodeReplace(max_degree=5), units.BoundedDegreeNode(max_degree=60)]


@pytest.fixture
def a_degree_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are below every threshold: let the average degree 6 decide whatever sizes and labels."""
    monkeypatch.setattr(rule, "needed_degree", lambda *_: 6.0)
    monkeypatch.setattr(rule, "NEEDED_EXCESS", -2.0)


def test_the_choice_at_node_level_follows_sizes_and_degree() -> None:
    rare, common = Metadata(10_000, 400), Metadata(10_000, 7_500)
    small = Metadata(4_000, 2_000)
    node, promised = units.Node(), units.BoundedDegreeNode()
    for unit, sizes, degree, epsilon, expected in (
        (node, rare, 90.0, 8.0, "dp-mlp"),
        (node, common, 0.0, 8.0, "chorus-codes"),
        (node, common, 4.9, 2.0, "dp-mlp"),
        (node, common, 5.1, 2.0, "chorus-codes"),
        (node, common, 0.0, 3.0, "chorus-codes"),
        (node, common, 39.0, 1.0, "dp-mlp"),
        (node, small, 4.9, 8.0, "dp-mlp"),
        (node, small, 5.1, 8.0, "chorus-codes"),
        (promised, common, 6.0, 8.0, "chorus"),
        (promised, common, 12.0, 4.0, "dp-mlp"),
        (promised, common, 22.0, 4.0, "chorus"),
        (promised, common, 22.0, 3.9, "dp-mlp"),
        (promised, small, 15.0, 8.0, "dp-mlp"),
        (promised, small, 40.0, 8.0, "chorus"),
    ):
        for answers in (Answers(degree), Answers(degree, "counted with noise", 0.5)):
            method, reason = rule.decide(sizes, unit, Budget(epsilon), answers)
            assert method.name == expected == reason.values["method"]
            assert reason.values["train"] == sizes.num_train


@pytest.mark.parametrize(
    ("train", "val", "expected"),
    [(7_500, 0, "chorus-codes"), (500, 0, "chorus-codes"), (499, 49, "chorus"), (10, 50, "chorus-codes")],
)
def test_codes_need_labels_at_edge_level(train: int, val: int, expected: str) -> None:
    method, reason = rule.decide(Metadata(10_000, train, val), units.UndirectedEdge(), Budget(1.0), Answers())
    assert method.name == expected == reason.values["method"]


def test_many_training_nodes_are_enough_and_nothing_is_asked() -> None:
    sizes = Metadata(20_000, 15_000, num_classes=6)
    for epsilon in (3.0, 8.0):
        method, reason = rule.decide(sizes, units.Node(), Budget(epsilon), Answers())
        assert (method.name, reason.code) == ("chorus-codes", Code.CHOSE_MANY_TRAIN)
        plan = Auto().plan(sizes, units.Node(), Budget(epsilon))
        assert COUNT not in plan
        assert not plan.branches


@pytest.mark.parametrize(
    ("num_train", "num_classes", "expected"),
    [(174, 6, "chorus"), (256, 3, "chorus"), (257, 3, "dp-mlp"), (174, 15, "dp-mlp"), (174, None, "dp-mlp")],
)
def test_train_nodes_of_one_batch_and_few_classes_go_to_the_linear_model(
    num_train: int, num_classes: int | None, expected: str
) -> None:
    sizes = Metadata(17_000, num_train, num_classes=num_classes)
    for epsilon in (1.0, 8.0):
        method, reason = rule.decide(sizes, units.Node(), Budget(epsilon), Answers())
        assert method.name == expected
        assert reason.code is (Code.CHOSE_ONE_BATCH if expected == "chorus" else Code.CHOSE_FEW_TRAIN)
        assert not Auto().plan(sizes, units.Node(), Budget(epsilon)).branches  # no degree decides, none is counted


@pytest.mark.parametrize("train", [50, 174, 400, 7_500])
@pytest.mark.parametrize("epsilon", [1.0, 8.0, math.inf])
def test_a_table_of_records_of_any_size_goes_to_the_model_of_features(train: int, epsilon: float) -> None:
    sizes = Metadata(10_000, train, 100, 100, 16, 4)
    plan = Auto(average_degree=50.0).plan(sizes, units.Record(), Budget(epsilon, 1e-6))
    assert [stage.name for stage in plan] == ["classifier"]
    assert not plan.branches


def test_a_table_of_records_is_trained_on_and_the_reason_is_said() -> None:
    table = random_graph(0)
    table.edge_index = None
    model = Auto().fit(table, units.Record(), BUDGET, ledger=Ledger.in_memory(warn=False))
    assert (model.method.name, model.reason and model.reason.code) == ("dp-mlp", Code.CHOSE_RECORDS)


def test_the_number_of_edges_is_never_asked_at_node_level() -> None:
    """It may be declared: the choice does not depend on it all the same."""
    plans = [Auto().plan(Metadata(10_000, 4_000, num_edges=n), units.Node(), Budget(8.0)) for n in (None, 900_000)]
    assert [list(plan) for plan in plans] == [list(plans[0].stages)] * 2
    assert plans[0].branches[0].stages == plans[1].branches[0].stages


def test_what_is_asked_depends_on_what_decides() -> None:
    common, rare = Metadata(9_000, 4_500), Metadata(10_000, 400)
    assert needed_degree(rare, units.Node(), Budget(8.0)) == math.inf
    both, pairs = [COUNT, PAIRS], [PAIRS]
    for sizes, unit, budget, auto, asked in (
        (common, units.Node(), Budget(8.0), Auto(), both),
        (common, units.NodeReplace(), Budget(8.0), Auto(), both),
        (common, units.BoundedDegreeNode(max_degree=60), Budget(8.0), Auto(), both[:1]),
        (Metadata(10_000, 7_500), units.Node(), Budget(8.0), Auto(), []),
        (common, units.Node(), Budget(8.0), Auto(average_degree=9.0), pairs),
        (common, units.Node(), Budget(8.0), Auto(average_degree=2.0), []),
        (rare, units.Node(), Budget(8.0), Auto(), []),
        (common, units.Node(), Budget(2.0), Auto(), both[:1]),  # so few pairs answer that the question is too dear
        (Metadata(11_000, 8_500), units.Node(), Budget(2.0), Auto(), both[:1]),  # sums that say nothing do no harm
        (Metadata(9_000, 6_900), units.Node(), Budget(4.0), Auto(), both),
        (common, units.UndirectedEdge(), Budget(1.0), Auto(), []),
    ):
        plan = auto.plan(sizes, unit, budget)
        assert [name for name in both if name in plan] == asked
        assert bool(plan.branches) == bool(asked)


@pytest.mark.parametrize("unit", NODE_UNITS)
@pytest.mark.parametrize("nodes", [9_000, 10_000, 200_000])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 16.0])
def test_the_count_takes_a_small_part_and_the_whole_meets_the_budget(
    unit: units.Unit, nodes: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "needed_degree", lambda *_: 10.0)
    budget = Budget(epsilon, 1e-7)
    count, *pairs = Auto()._questions(Metadata(nodes, nodes // 2), unit, budget)
    assert count.mechanism == EdgeCount(COUNT_CAP)
    assert all(price(stage, unit) <= PAIR_SHARE * epsilon for stage in pairs)
    share = price(count, unit) / epsilon
    assert share <= COUNT_SHARE
    # Never more noise (deviation: the root of 2 times the scale) than the choice can bear, unless the most that may be
    # spent does not buy less.
    noise = math.sqrt(2.0) * float(count.scale or math.nan)
    assert noise / nodes <= 1.02 * rule.COUNT_ERROR * 10.0 or share == pytest.approx(COUNT_SHARE, rel=0.01)


def price(stage: Stage, unit: units.Unit) -> float:
    """The pure epsilon of a noisy count."""
    return PrivacyLoss(stage.event(unit), unit.relation).epsilon(1e-12)


def test_a_plan_with_a_count_adds_up_for_either_branch() -> None:
    sizes, unit, budget = Metadata(10_000, 4_000, num_features=5, num_classes=3), units.Node(), Budget(8.0)
    plan = Auto().plan(sizes, unit, budget)
    assert [branch.method for branch in plan.branches] == ["chorus-codes", "dp-mlp"]
    assert [stage.name for stage in plan] == [COUNT, PAIRS]
    costs = [sum(price(stage, unit) for stage in plan) + branch.epsilon for branch in plan.branches]
    assert plan.epsilon == pytest.approx(max(costs))
    assert 0.99 * 8.0 < min(costs) <= max(costs) <= 8.0
    read = Plan.from_dict(json.loads(json.dumps(plan.as_dict())))
    assert (read, read.epsilon) == (plan, plan.epsilon)


@pytest.mark.parametrize("unit", [units.UndirectedEdge(), units.Node(max_degree=5)])
def test_fit_says_why_in_model_and_certificate_and_saves_the_chosen_method(unit: units.Unit, tmp_path: Path) -> None:
    graph = random_graph(2)
    model = hushgraph.fit(graph, unit, BUDGET, seed=0)
    assert model.certificate.epsilon <= 4.0
    assert model.method.name in ("chorus-codes", "chorus", "mlp", "dp-mlp")
    assert model.reason is not None
    assert model.reason.values["method"] == model.method.name
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.reason == model.reason
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)


@pytest.mark.usefixtures("a_degree_decides")
@pytest.mark.parametrize("unit", NODE_UNITS)
@pytest.mark.parametrize(("num_edges", "expected"), [(20, "dp-mlp"), (7_000, "chorus")])
def test_fit_counts_chooses_and_certifies_both(unit: units.Unit, num_edges: int, expected: str, tmp_path: Path) -> None:
    """Far from the threshold of 2,400 entries: noise of scale 300 at most would change the choice once in 2,000."""
    graph = random_graph(1, num_nodes=400, num_edges=num_edges)
    ledger = Ledger(tmp_path / "ledger")
    budget = Budget(20.0, 1e-4)
    model = Auto().fit(graph, unit, budget, ledger=ledger, seed=0)
    certificate = model.certificate
    assert model.method.name == expected == certificate.chosen
    assert model.reason is not None
    assert model.reason.values["source"] == "counted with noise"
    assert certificate.reason == model.reason
    check_history(ledger.history())
    asked = Auto()._questions(check_graph(graph).metadata, unit, budget)
    assert charged_stages(ledger)[: len(asked)] == [stage.name for stage in asked]
    count = asked[0]
    assert certificate.charges[0] == Charge(
        COUNT, "edge-count", "discrete-laplace", None, 1, float(count.scale or 0), count.sensitivity(unit)
    )
    assert certificate.epsilon <= budget.epsilon
    assert certificate.epsilon > budget.epsilon * 0.99
    assert not certificate.total.private  # seeded
    assert spent(ledger.history()).epsilon(certificate.delta) == pytest.approx(certificate.epsilon)
    assert model.plan.budget.epsilon + sum(price(stage, unit) for stage in asked) == pytest.approx(budget.epsilon)
    assert model.get_epsilon(1e-4) == pytest.approx(certificate.epsilon)
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.certificate == certificate


@pytest.mark.parametrize(("together", "expected"), [(True, "chorus"), (False, "dp-mlp")])
def test_neighbors_with_nothing_in_common_leave_the_features(
    together: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same sizes, same degrees, same labels; only who is whose neighbor differs."""
    monkeypatch.setattr(rule, "needed_degree", lambda *_: 6.0)
    graph = random_graph(1, num_nodes=400, num_edges=0)
    order = (
        torch.argsort(graph.y, stable=True)
        if together
        else torch.randperm(400, generator=torch.Generator().manual_seed(0))
    )
    steps = torch.arange(1, 9)
    ends = (torch.arange(400).unsqueeze(1) + steps) % 400
    one = torch.stack([order.repeat_interleave(len(steps)), order[ends.flatten()]])
    graph.edge_index = torch.cat([one, one.flip(0)], 1)
    model = Auto().fit(graph, NODE, Budget(120.0, 1e-4), seed=0)
    assert model.method.name == expected
    assert model.reason is not None
    assert model.reason.code is Code.CHOSE_AGREEMENT
    assert (model.reason.values["points"] >= model.reason.values["needed_points"]) == together
    assert (PAIRS, "pair-count", 1) in [(c.stage, c.mechanism, c.count) for c in model.certificate.charges]
    assert model.certificate.epsilon <= 120.0


@pytest.mark.usefixtures("a_degree_decides")
def test_the_method_gets_exactly_what_the_count_leaves() -> None:
    graph = random_graph(1, num_nodes=400, num_edges=7_000)
    model = Auto().fit(graph, NODE, Budget(20.0, 1e-4), seed=3)
    rest = Budget(model.plan.budget.epsilon, 1e-4)
    alone = Chorus().fit(graph, NODE, rest, seed=3)
    assert torch.equal(model.predict_proba(), alone.predict_proba())
    assert alone.certificate.epsilon < model.certificate.epsilon


@pytest.mark.usefixtures("a_degree_decides")
def test_a_refusal_costs_nothing(tmp_path: Path) -> None:
    graph = random_graph(1)
    ledger = Ledger(tmp_path)
    ledger.create("random-1", NODE.as_dict())
    ledger.set_limit(3.0, 1e-3)
    with pytest.raises(BudgetError, match="Nothing was read"):
        Auto().fit(graph, NODE, BUDGET, ledger=ledger)
    assert ledger.history().runs() == []
    Auto().fit(graph, NODE, Budget(3.0, 1e-3), ledger=ledger)
    with pytest.raises(BudgetError, match="Nothing was read"):
        Auto().fit(graph, NODE, Budget(1.0, 1e-3), ledger=ledger)  # a filter leaves room for a smaller one


@pytest.mark.usefixtures("a_degree_decides")
def test_a_run_that_stops_after_the_count_counts_as_its_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()

    def stop(*_: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(rule, "decide", stop)
    with pytest.raises(RuntimeError, match="stopped"):
        Auto().fit(random_graph(1), NODE, BUDGET, ledger=ledger)
    assert 3.9 < spent(ledger.history()).epsilon(1e-3) <= 4.0


@pytest.mark.usefixtures("a_degree_decides")
def test_without_protection_the_degree_is_counted_exactly_and_nothing_is_promised() -> None:
    model = Auto().fit(random_graph(1), NODE, Budget(math.inf, 1e-3), seed=0)
    assert model.certificate.epsilon == math.inf
    assert model.metrics["accuracy"]["test"] is not None


@pytest.mark.parametrize("average_degree", [None, 40.0])
def test_no_number_of_edges_leaves_a_run_at_node_level(
    average_degree: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "needed_degree", lambda *_: 6.0)
    graph = random_graph(5, num_nodes=101, num_edges=3_000)
    exact = check_graph(graph).edges.num_edges
    assert exact > 1_000  # long enough not to occur by chance
    ledger = Ledger(tmp_path / "ledger")
    model = Auto(average_degree=average_degree).fit(graph, NODE, BUDGET, ledger=ledger, seed=0)
    assert model.metadata.num_edges is None
    folder = model.save(tmp_path / "model")
    texts = [(folder / name).read_text() for name in ("config.json", "certificate.json", "metrics.json")]
    texts += [json.dumps(entry.values) for entry in ledger.history().entries]
    assert (COUNT in texts[1]) == (average_degree is None)
    for text in texts:
        for number in (exact, exact // 2):
            assert not re.search(rf"\b({number}|{number:,})\b", text)


def test_at_edge_level_a_model_of_features_wins_where_edges_say_nothing() -> None:
    """Labels are a function of one feature, edges are random: sums of labels can only distract."""
    graph = random_graph(4, num_nodes=400, num_edges=400)
    graph.x[:, 0] = graph.y.float() * 3
    model = hushgraph.fit(graph, units.UndirectedEdge(), Budget(0.5, 1e-4), seed=1)
    assert model.metrics["accuracy"]["val"] > 95.0
    assert model.reason is not None
    assert (model.reason.code, model.reason.values["method"]) == (Code.CHOSE_VALIDATION, model.method.name)


@pytest.mark.parametrize(
    ("sums_alone", "features_alone", "expected"),
    [(0, 0, "chorus-codes"), (4, 4, "chorus-codes"), (3, 6, "chorus-codes"), (3, 7, "mlp"), (0, 1, "chorus-codes")],
)
def test_features_alone_must_be_clearly_better(sums_alone: int, features_alone: int, expected: str) -> None:
    """Of the nodes on which the two differ, more must go to features than a fair coin would give."""
    labels = torch.zeros(30, dtype=torch.int64)

    def output(method: Method, wrong: range) -> Output:
        scores = torch.zeros(30, 2).index_fill_(0, torch.tensor([*wrong], dtype=torch.int64), 1.0)
        found = Output(scores=torch.stack([0.5 - scores[:, 0], scores[:, 1]], dim=1))
        found.method = method
        return found

    vault = SimpleNamespace(labels=labels, labeled=lambda _: torch.arange(30))
    ours = output(ChorusCodes(), range(features_alone))
    plain = output(MLP(), range(features_alone, features_alone + sums_alone))
    kept = rule._better(cast(Any, vault), ours, plain)
    assert kept.method is not None
    assert kept.reason is not None
    assert kept.method.name == expected == kept.reason.values["method"]
    assert kept.reason.values["ours"] == f"{1 - (features_alone if kept is ours else sums_alone) / 30:.1%}"


def test_the_release_is_charged_whichever_model_is_kept() -> None:
    plan = Auto().plan(Metadata.from_sizes(1000), units.UndirectedEdge(), Budget(1.0, 1e-6))
    assert 0.99 < plan.epsilon <= 1.0


def test_the_registry_knows_auto_and_a_negative_degree_is_refused() -> None:
    assert registry.load("methods", "auto") is Auto
    with pytest.raises(InputError, match="average_degree"):
        Auto(average_degree=-1.0)


def test_the_certificate_says_where_the_average_degree_comes_from() -> None:
    sizes = Metadata.from_sizes(20_000, num_train=4_000)

    def codes(auto: Auto, unit: units.Unit, budget: Budget) -> set[Code]:
        return {note.code for note in auto.plan(sizes, unit, budget).public}

    node = (units.Node(), Budget(8.0, 1e-5))
    assert Code.RULE in codes(Auto(), *node)
    assert Code.AVERAGE_DEGREE not in codes(Auto(), *node)
    assert Code.AVERAGE_DEGREE in codes(Auto(average_degree=40.0), *node)
    assert Code.AVERAGE_DEGREE not in codes(Auto(), units.UndirectedEdge(), Budget(1.0, 1e-7))
