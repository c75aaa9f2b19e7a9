"""Numbers within a declared range, as parts of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hushgraph as hg
from commands import run, run_json
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.targets import NumberRange
from hushgraph.ledger.ledger import Ledger
from small_graphs import random_graph

BUDGET = (8.0, 1e-3)


@pytest.fixture
def graph() -> Any:
    data = random_graph(3, 80)
    del data.class_names
    data.y = 10.0 + 20.0 * torch.sigmoid(2.0 * data.x[:, 0])
    data.target_range = (10.0, 30.0)
    return data


def test_parts_have_names_middles_and_ends():
    found = NumberRange(0, 10, 4)
    assert found.names == ["0 to 2.5", "2.5 to 5", "5 to 7.5", "7.5 to 10"]
    assert list(found) == found.names
    assert found.middles.tolist() == [1.25, 3.75, 6.25, 8.75]
    values = torch.tensor([0.0, 2.4, 2.5, 9.9, 10.0, -7.0, 99.0, float("nan"), float("inf")])
    assert found.classes_of(values).tolist() == [0, 0, 1, 3, 3, 0, 3, -1, 3]
    assert float(found.expected(torch.tensor([[0.5, 0.5, 0.0, 0.0]]))) == 2.5


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.integers(2, 50))
def test_a_part_follows_from_ones_own_number_alone(values, parts):
    numbers = NumberRange(-1.0, 2.0, parts)
    together = numbers.classes_of(torch.tensor(values))
    alone = torch.cat([numbers.classes_of(torch.tensor([value])) for value in values])
    assert torch.equal(together, alone)
    assert int(together.min()) >= -1
    assert int(together.max()) < parts


@pytest.mark.parametrize("wrong", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (0, 1, 1), (0, 1, 1.5), (0, 1, True)])
def test_a_range_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="range: expected"):
        NumberRange(*wrong)


def test_numbers_without_a_range_are_refused_with_what_to_write(graph):
    del graph.target_range
    with pytest.raises(InputError, match=r"data.target_range = \(low, high\)"):
        check_graph(graph)
    graph.target_range = 5
    with pytest.raises(InputError, match="expected \\(low, high\\)"):
        check_graph(graph)


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        (hg.GAP(), hg.units.UndirectedEdge()),
        (hg.MLP(), hg.units.UndirectedEdge()),
        (hg.Chorus(), hg.units.UndirectedEdge()),
        (hg.Chorus(), hg.units.Node(max_degree=5)),
        (hg.DPMLP(epochs=2), hg.units.Node(max_degree=5)),
        (hg.ProGAP(epochs=2), hg.units.NodeReplace(max_degree=5)),
        (hg.DPGNN(epochs=2), hg.units.Node(max_degree=5)),
        (hg.NoisyMoments(), hg.units.Record()),
    ],
)
def test_every_method_takes_them_at_the_price_of_classes(graph, method, unit, tmp_path):
    model = method.fit(graph, unit, BUDGET, ledger=Ledger(tmp_path / "ledger"))
    plain = random_graph(3, 80)
    plain.class_names = [str(number) for number in range(10)]
    assert model.plan.epsilon == method.plan(check_graph(plain).metadata, unit, hg.Budget(*BUDGET)).epsilon
    values = model.predict_values(graph)
    assert float(values.min()) >= 10.0
    assert float(values.max()) <= 30.0
    assert set(model.metrics["mean_absolute_error"]) == {"train", "val", "test"}
    again = hg.load(model.save(tmp_path / "model"))
    assert torch.equal(again.predict_values(graph), values)


def test_a_model_learns_and_is_scored_by_r_squared(graph):
    model = hg.MLP(epochs=200).fit(graph, hg.units.UndirectedEdge(), BUDGET, ledger=Ledger.in_memory(), seed=0)
    assert model.score(graph, "train") > 0.8
    mean = float((graph.y - graph.y[graph.train_mask].mean()).abs().mean())
    assert model.metrics["mean_absolute_error"]["train"] < mean / 2


def test_a_model_of_classes_has_no_numbers():
    model = hg.MLP(epochs=1).fit(random_graph(1), hg.units.UndirectedEdge(), BUDGET, ledger=Ledger.in_memory())
    with pytest.raises(InputError, match="expected a model of numbers"):
        model.predict_values(random_graph(1))


@pytest.mark.parametrize("ages", [[20, 31, 44, 58, None, 70], [20.5, 31.0, 44.0, 58.0, float("nan"), 200.0]])
def test_from_tables(ages):
    pandas = pytest.importorskip("pandas")
    people = pandas.DataFrame({"id": list("abcdef"), "size": [1, 2, 3, 4, 5, 6], "age": ages})
    knows = pandas.DataFrame({"a": list("abcde"), "b": list("bcdef")})
    made = hg.Graph.from_pandas(
        people, knows, label="age", classes=hg.NumberRange(0, 100, 5), features={"size": (0, 10)}, directed=False
    )
    checked = check_graph(made)
    assert checked.labels.tolist() == [1, 1, 2, 2, -1, 3 if ages[-1] == 70 else 4]
    assert checked.class_names[0] == "0 to 20"
    pairs = hg.Graph.from_edges([[0, 1]], num_nodes=2, y=[0.5, 9.0], classes=hg.NumberRange(0, 10), directed=False)
    assert check_graph(pairs).labels.tolist() == [0, 9]


def test_from_a_table_to_a_file_of_numbers(tmp_path: Path):
    nodes = [[f"p{i}", i % 7, 18 + i % 60, ("train", "val", "test")[i % 3]] for i in range(60)]
    (tmp_path / "nodes.csv").write_text("person,size,age,part\n" + "\n".join(",".join(map(str, row)) for row in nodes))
    (tmp_path / "edges.csv").write_text("a,b\n" + "\n".join(f"p{i},p{(i * 7 + 1) % 60}" for i in range(60)))
    words = ["--edges", tmp_path / "edges.csv", "--nodes", tmp_path / "nodes.csv", "--id", "person", "--label", "age"]
    words += ["--split", "part", "--numeric", "size=0:10", "--undirected"]
    wrong = run("import", *words, "--range", "18:eighty", "--out", tmp_path / "no.graph")
    assert wrong.exit_code == 2
    assert "expected LOW:HIGH" in wrong.output
    run_json("import", *words, "--range", "18:80:6", "--out", tmp_path / "my.graph")
    trained = run_json(
        "train", "gap", "--data", tmp_path / "my.graph", "--unit", "node", "--epsilon", 8, "--delta", "1e-3",
        "--out", tmp_path / "model", "--set", "epochs=1", "--ledger", tmp_path / "ledger",
    )  # fmt: skip
    assert trained["mean_absolute_error"]["test"] is not None
    out = tmp_path / "predictions.csv"
    run_json(
        "predict", tmp_path / "model", "--data", tmp_path / "my.graph", "--out", out, "--ledger", tmp_path / "ledger"
    )
    rows = list(csv.DictReader(out.open()))
    assert [row["id"] for row in rows[:2]] == ["p0", "p1"]
    assert all(18.0 <= float(row["value"]) <= 80.0 for row in rows)
