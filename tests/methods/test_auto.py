from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch

import hushgraph
from hushgraph.data.checks import check_graph
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import check_history, spent
from hushgraph.ledger.transfer import export
from hushgraph.methods import auto as module
from hushgraph.methods import auto_rule as rule
from hushgraph.methods.auto import Auto
from hushgraph.methods.auto_rule import COUNT_CAP, COUNT_SHARE, PAIR_SHARE, Answers, needed_degree
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.saving import load_model, save_model
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.whole_numbers import WholeNumberStage
from hushgraph.registry import method_class
from hushgraph.report import write_report
from small_graphs import random_graph

BUDGET = Budget(4.0, 1e-3)
NODE = units.Node(max_degree=5)
NODE_UNITS = [units.Node(max_degree=5), units.NodeReplace(max_degree=5), units.NodePromise(max_degree=60)]


@pytest.fixture
def a_degree_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are below every threshold: let the average degree 6 decide whatever sizes and labels."""
    monkeypatch.setattr(rule, "needed_degree", lambda facts, budget: 6.0)
    monkeypatch.setattr(rule, "NEEDED_EXCESS", -2.0)


def test_the_choice_at_node_level_follows_sizes_and_degree() -> None:
    rare, common = PublicFacts(10_000, None, 400), PublicFacts(10_000, None, 7_500)
    small = PublicFacts(4_000, None, 2_000)
    for facts, degree, epsilon, expected in (
        (rare, 90.0, 8.0, "dp-mlp"),
        (common, 6.0, 8.0, "chorus"),
        (common, 6.0, 2.0, "dp-mlp"),
        (common, 60.0, 2.0, "chorus"),
        (common, 12.0, 4.0, "dp-mlp"),
        (common, 22.0, 4.0, "chorus"),
        (common, 22.0, 3.9, "dp-mlp"),
        (small, 15.0, 8.0, "dp-mlp"),
        (small, 40.0, 8.0, "chorus"),
    ):
        for method, reason in (
            Auto(average_degree=degree).choose(facts, units.Node(), Budget(epsilon)),
            Auto().choose(facts, units.Node(), Budget(epsilon), Answers(degree, "as counted", 0.5)),
        ):
            assert method.name == expected
            assert reason.startswith(f"{expected}: {facts.num_train} train nodes")


@pytest.mark.parametrize(
    ("num_train", "num_classes", "expected"),
    [(174, 6, "chorus"), (256, 3, "chorus"), (257, 3, "dp-mlp"), (174, 15, "dp-mlp"), (174, None, "dp-mlp")],
)
def test_train_nodes_of_one_batch_and_few_classes_go_to_the_linear_model(
    num_train: int, num_classes: int | None, expected: str
) -> None:
    facts = PublicFacts(17_000, None, num_train, num_classes=num_classes)
    for epsilon in (1.0, 8.0):
        method, reason = Auto().choose(facts, units.Node(), Budget(epsilon))
        assert method.name == expected
        assert reason.startswith(f"{expected}: {num_train} train nodes")
        assert not Auto().plan(facts, units.Node(), Budget(epsilon)).options  # no degree decides, none is counted


def test_the_number_of_edges_is_never_asked_at_node_level() -> None:
    """Facts may hold it (the data's holder knows it): the choice must not depend on it."""
    facts = PublicFacts(10_000, 900_000, 7_500)
    with pytest.raises(InputError, match="declared or counted"):
        Auto().choose(facts, units.Node(), Budget(8.0))
    plans = [Auto().plan(PublicFacts(10_000, edges, 7_500), units.Node(), Budget(8.0)) for edges in (0, 900_000)]
    assert plans[0].as_dict() == plans[1].as_dict()


def test_what_is_asked_depends_on_what_decides() -> None:
    common, rare = PublicFacts(10_000, None, 7_500), PublicFacts(10_000, None, 400)
    assert needed_degree(rare, Budget(8.0)) == math.inf
    both, pairs = ["count of edges", "pairs of neighbors"], ["pairs of neighbors"]
    for facts, unit, budget, auto, asked in (
        (common, units.Node(), Budget(8.0), Auto(), both),
        (common, units.NodeReplace(), Budget(8.0), Auto(), both),
        (common, units.NodePromise(max_degree=60), Budget(8.0), Auto(), both[:1]),
        (common, units.Node(), Budget(8.0), Auto(average_degree=9.0), pairs),
        (common, units.Node(), Budget(8.0), Auto(average_degree=2.0), []),
        (common, units.Node(), Budget(math.inf), Auto(), []),
        (rare, units.Node(), Budget(8.0), Auto(), []),
        (PublicFacts(10_000, 90_000, 7_500), units.UndirectedEdge(), Budget(1.0), Auto(), []),
    ):
        plan = auto.plan(facts, unit, budget)
        assert [stage.name for stage in plan.stages if isinstance(stage, WholeNumberStage)] == asked
        assert bool(plan.options) == bool(asked)


@pytest.mark.parametrize("unit", NODE_UNITS)
@pytest.mark.parametrize("nodes", [9_000, 10_000, 200_000])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 16.0])
def test_the_count_takes_a_small_part_and_the_whole_meets_the_budget(
    unit: units.Unit, nodes: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "needed_degree", lambda facts, budget: 10.0)
    budget = Budget(epsilon, 1e-7)
    count, *pairs = Auto().questions(PublicFacts(nodes, None, nodes // 2), unit, budget)
    assert isinstance(count, CountStage)
    assert count.cap == COUNT_CAP
    assert all(stage.epsilon(unit) <= PAIR_SHARE * epsilon for stage in pairs)
    share = count.epsilon(unit) / epsilon
    assert share <= COUNT_SHARE
    # Never more noise than the choice can bear, unless the most that may be spent does not buy less.
    assert count.std / nodes <= 0.051 * 10.0 or share == pytest.approx(COUNT_SHARE, rel=0.01)


def test_a_plan_with_a_count_adds_up_for_either_option() -> None:
    facts, unit, budget = PublicFacts(10_000, None, 7_500, num_features=5, num_classes=3), units.Node(), Budget(8.0)
    plan = Auto().plan(facts, unit, budget)
    assert [option.method for option in plan.options] == ["chorus", "dp-mlp"]
    asked = [stage for stage in plan.stages if isinstance(stage, WholeNumberStage)]
    assert len(asked) == len(plan.stages) == 2
    costs = [sum(stage.epsilon(unit) for stage in asked) + option.epsilon for option in plan.options]
    assert plan.epsilon == pytest.approx(max(costs))
    assert 0.99 * 8.0 < min(costs) <= max(costs) <= 8.0
    shown = json.loads(json.dumps(plan.as_dict()))
    assert [stage["epsilon"] for stage in shown["stages"]] == [stage.epsilon(unit) for stage in asked]
    assert [option["method"] for option in shown["then_one_of"]] == ["chorus", "dp-mlp"]


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


@pytest.mark.usefixtures("a_degree_decides")
@pytest.mark.parametrize("unit", NODE_UNITS)
@pytest.mark.parametrize(("num_edges", "expected"), [(20, "dp-mlp"), (7_000, "chorus")])
def test_fit_counts_chooses_and_certifies_both(unit: units.Unit, num_edges: int, expected: str, tmp_path: Path) -> None:
    """Far from the threshold of 2,400 entries: noise of scale 300 at most would change the choice once in 2,000."""
    graph = random_graph(1, num_nodes=400, num_edges=num_edges)
    ledger = Ledger(tmp_path / "ledger")
    budget = Budget(20.0, 1e-4)
    model = Auto().fit(graph, unit, budget, ledger=ledger, seed=0)
    certificate, history = model.certificate, ledger.history()
    assert model.method.name == expected
    assert "(as counted)" in model.reason
    check_history(history)
    assert next(e.values["mechanism"] for e in history.entries if e.kind == "charge") == "noisy count"
    assert certificate.released[0].startswith("count of edges: 1 x noisy count, whole-number noise of std")
    assert certificate.released[-1].endswith(model.reason)
    asked = Auto().questions(PublicFacts(400, None, len(check_graph(graph).train)), unit, budget)
    assert certificate.epsilon <= budget.epsilon
    assert certificate.epsilon > budget.epsilon * 0.99
    assert not certificate.dataset_private  # seeded, for this test
    rest = model.settings["planned_within"]
    assert rest + sum(stage.epsilon(unit) for stage in asked) == pytest.approx(budget.epsilon)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.certificate == certificate


@pytest.mark.parametrize(("together", "expected"), [(True, "chorus"), (False, "dp-mlp")])
def test_neighbors_with_nothing_in_common_leave_the_features(
    together: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same sizes, same degrees, same labels; only who is whose neighbor differs."""
    monkeypatch.setattr(rule, "needed_degree", lambda facts, budget: 6.0)
    graph = random_graph(1, num_nodes=400, num_edges=0)
    order = torch.argsort(graph.y, stable=True) if together else torch.randperm(400)
    steps = torch.arange(1, 9)
    ends = (torch.arange(400).unsqueeze(1) + steps) % 400
    one = torch.stack([order.repeat_interleave(len(steps)), order[ends.flatten()]])
    graph.edge_index = torch.cat([one, one.flip(0)], 1)
    model = Auto().fit(graph, NODE, Budget(60.0, 1e-4), seed=0)
    assert model.method.name == expected
    assert "points (noisy) more often than two nodes at random" in model.reason
    assert ("are worth their noise from 6 on" in model.reason) == together
    assert any(line.startswith("pairs of neighbors: 1 x noisy count of pairs") for line in model.certificate.released)
    assert model.certificate.epsilon <= 60.0


@pytest.mark.usefixtures("a_degree_decides")
def test_the_method_gets_exactly_what_the_count_leaves() -> None:
    graph = random_graph(1, num_nodes=400, num_edges=7_000)
    model = Auto().fit(graph, NODE, Budget(20.0, 1e-4), seed=3)
    rest = Budget(model.settings["planned_within"], 1e-4)
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
        Auto().fit(graph, NODE, Budget(3.0, 1e-3), ledger=ledger)


@pytest.mark.usefixtures("a_degree_decides")
def test_a_run_that_stops_after_the_count_counts_as_its_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()

    def stop(*_: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(module.Auto, "choose", stop)
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
    monkeypatch.setattr(rule, "needed_degree", lambda facts, budget: 6.0)
    graph = random_graph(5, num_nodes=101, num_edges=3_000)
    exact = check_graph(graph).facts.num_edges
    assert exact is not None
    assert exact > 1_000  # long enough not to occur by chance
    ledger = Ledger(tmp_path / "ledger")
    model = Auto(average_degree=average_degree).fit(graph, NODE, BUDGET, ledger=ledger, seed=0)
    assert model.facts.num_edges is None
    save_model(model, tmp_path / "model")
    write_report(tmp_path / "model", ledger=tmp_path / "ledger")
    export(ledger, tmp_path / "ledger.jsonl")
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".json", ".jsonl", ".html")]
    assert len(texts) == 5
    page = (tmp_path / "model" / "report.html").read_text()
    assert "edge entries" not in page
    assert ("count of edges" in page) == (average_degree is None)
    for text in (*texts, str(model.certificate)):
        for number in (exact, exact // 2):
            assert not re.search(rf"\b({number}|{number:,})\b", text)


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
    with pytest.raises(InputError, match="average_degree"):
        Auto(average_degree=-1.0)


def test_the_certificate_says_where_the_average_degree_comes_from() -> None:
    facts = PublicFacts.from_sizes(20_000, 800_000, 15_000)
    counted = Auto().plan(facts, units.Node(), Budget(8.0, 1e-5)).assumptions[-1]
    declared = Auto(average_degree=40.0).plan(facts, units.Node(), Budget(8.0, 1e-5)).assumptions[-1]
    assert "noisy count of edges and the pairs of neighbors" in counted
    assert declared.startswith("the average degree, as declared")
    at_edge_level = Auto().plan(facts, units.UndirectedEdge(), Budget(1.0, 1e-7)).assumptions
    assert not any("average degree" in line for line in at_edge_level)
