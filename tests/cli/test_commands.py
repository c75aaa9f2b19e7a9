"""The commands as a user runs them: words, JSON, exit codes, and nothing written when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from hushgraph.cli import app
from hushgraph.datasets import write_npz
from small_graphs import hub_graph, random_graph

QUICK = ["--set", "hidden=4", "--set", "epochs=2"]
TRAIN = ["--epsilon", "4", "--delta", "1e-3", *QUICK]


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def run_json(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_npz(random_graph(1), tmp_path / "toy.npz")


def test_plan_prints_the_agreed_fields() -> None:
    plan = run_json(
        "plan", "gap", "--unit", "undirected-edge", "--nodes", 8000, "--edges", 300000, "--epsilon", 1, "--delta", 1e-7
    )
    assert plan["unit"] == "undirected-edge"
    assert plan["delta"] == 1e-7
    assert 0.999 < plan["epsilon"] <= 1.0
    (stage,) = plan["stages"]
    assert stage["std"] == pytest.approx(stage["noise_multiplier"] * stage["sensitivity"])
    assert {"name", "noise_multiplier", "sensitivity", "std", "count"} <= set(stage)


def test_plan_in_words_and_in_paper_mode() -> None:
    words = [
        "plan",
        "gap",
        "--unit",
        "directed-edge",
        "--nodes",
        26406,
        "--edges",
        2117924,
        "--epsilon",
        4,
        "--delta",
        1e-7,
    ]
    shown = run(*words, "--paper-mode")
    assert shown.exit_code == 0
    assert "claimed epsilon 4" in shown.stdout.replace("\n", " ")
    plan = run_json(*words, "--paper-mode")
    assert plan["claimed_epsilon"] == pytest.approx(4.0, abs=1e-3)
    assert plan["provable_epsilon"] == pytest.approx(5.89, abs=0.01)
    assert plan["provable_unit"] == "undirected-edge"


def test_the_plan_of_auto_tells_the_count_and_both_ways_without_asking_for_edges() -> None:
    words = ["plan", "auto", "--unit", "node", "--nodes", 20000, "--epsilon", 8]
    plan = run_json(*words)
    count, pairs = plan["stages"]
    assert [count["mechanism"], pairs["mechanism"]] == ["noisy count", "noisy count of pairs"]
    assert 0 < count["epsilon"] <= 0.02 * 8
    assert 0 < pairs["epsilon"] <= 0.03 * 8
    assert [option["method"] for option in plan["then_one_of"]] == ["chorus", "dp-mlp"]
    for option in plan["then_one_of"]:
        assert option["budget"] == pytest.approx(8 - count["epsilon"] - pairs["epsilon"])
        assert option["epsilon"] <= option["budget"]
    assert 7.98 < plan["epsilon"] <= 8.0
    shown = " ".join(run(*words).stdout.split())
    assert "First this is asked with noise, for epsilon" in shown
    assert "count of edges and pairs of neighbors" in shown
    assert "A rule chooses chorus or dp-mlp" in shown
    declared = run_json(*words, "--set", "average_degree=40")
    assert [stage["mechanism"] for stage in declared["stages"]] == ["noisy count of pairs"]
    low = run_json(*words, "--set", "average_degree=1")
    assert "then_one_of" not in low
    few = run_json(
        "plan", "auto", "--unit", "node", "--nodes", 20000, "--train-nodes", 200, "--classes", 6, "--epsilon", 8
    )
    assert [stage["name"] for stage in few["stages"]] == ["label sums", "stage_1"]
    refused = run("plan", "auto", "--unit", "undirected-edge", "--nodes", 20000, "--epsilon", 8)
    assert refused.exit_code == 2
    assert "edges: expected their number" in refused.stderr


def test_node_units_take_a_degree_cap() -> None:
    words = [
        "plan",
        "gap",
        "--nodes",
        26406,
        "--edges",
        2117924,
        "--epsilon",
        8,
        "--delta",
        1e-5,
        "--set",
        "max_degree=25",
    ]
    plan = run_json(*words, "--unit", "node")
    assert plan["unit_parameters"] == {"name": "node", "max_degree": 25}
    assert [stage["name"] for stage in plan["stages"]] == ["encoder", "aggregation", "classifier"]
    assert plan["stages"][1]["sensitivity"] == pytest.approx(5.0)


def test_train_predict_and_verify(data: Path, tmp_path: Path) -> None:
    out, ledger = tmp_path / "model", tmp_path / "ledger"
    trained = run_json("train", "gap", "--data", data, "--out", out, "--ledger", ledger, *TRAIN)
    assert set(trained["accuracy"]) == {"train", "val", "test"}
    assert trained["certificate"]["unit"]["name"] == "undirected-edge"
    assert {"encoder", "aggregation", "classifier", "total"} <= set(trained["seconds"])
    saved = {"model.safetensors", "config.json", "certificate.json", "metrics.json"}
    assert {p.name for p in out.iterdir()} == saved | {"manifest.json", "ledger_head.json"}

    predicted = run_json("predict", out, "--out", tmp_path / "p.npz")
    assert predicted["charged"] is False
    assert len(predicted["predictions"]) == 40
    with np.load(tmp_path / "p.npz", allow_pickle=False) as file:
        assert file["classes"].tolist() == predicted["predictions"]

    verified = run_json("ledger", "verify", ledger)
    assert verified["verified"] is True
    assert verified["datasets"][0]["totals"][0]["epsilon"] == pytest.approx(trained["epsilon"])
    again = run_json("train", "gap", "--data", data, "--out", tmp_path / "second", "--ledger", ledger, *TRAIN)
    assert again["certificate"]["dataset_epsilon"] > 1.3 * again["epsilon"]
    assert "2" in run("ledger", "show", ledger).stdout


def test_train_in_words_ends_with_the_place_of_the_model(data: Path, tmp_path: Path) -> None:
    result = run("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    assert result.exit_code == 0
    assert "differentially private for the unit 'undirected-edge'" in result.stdout
    assert result.stdout.rstrip().endswith(str(tmp_path / "model"))
    assert (Path(os.environ["HUSHGRAPH_LEDGER"]) / "ledger.db").exists()


def test_inductive_prediction_needs_and_charges_a_budget(data: Path, tmp_path: Path) -> None:
    run_json("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    other = write_npz(random_graph(5, num_nodes=48), tmp_path / "other.npz")
    refused = run("predict", tmp_path / "model", "--on", other)
    assert refused.exit_code == 2
    assert "--epsilon" in refused.output
    found = run_json("predict", tmp_path / "model", "--on", other, "--epsilon", 2, "--delta", 1e-3)
    assert found["charged"] is True
    assert found["nodes"] == 48
    assert float(found["certificate"]["epsilon"]) <= 2.0


def test_a_directed_graph_is_accepted_when_it_is_said_to_be_one(tmp_path: Path) -> None:
    data = _raw_npz(tmp_path / "directed.npz", random_graph(1, symmetric=False))
    refused = run("train", "gap", "--data", data, "--out", tmp_path / "one", *TRAIN)
    assert refused.exit_code == 2
    assert "both directions" in refused.output
    trained = run_json("train", "gap", "--data", data, "--directed", "--out", tmp_path / "two", *TRAIN)
    assert trained["unit"] == "directed-edge"


def test_a_limit_is_declared_and_enforced_with_its_own_exit_code(data: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    run_json(
        "ledger", "limit", ledger, "--epsilon", 5, "--delta", 1e-3, "--dataset", "toy", "--unit", "undirected-edge"
    )
    run_json("train", "gap", "--data", data, "--out", tmp_path / "one", "--ledger", ledger, *TRAIN)
    refused = run("train", "gap", "--data", data, "--out", tmp_path / "two", "--ledger", ledger, *TRAIN)
    assert refused.exit_code == 3
    assert "the dataset's limit is epsilon 5" in refused.output
    shown = run_json("ledger", "show", ledger)
    assert (shown["runs_in_all"], shown["refused_in_all"]) == (1, 1)
    assert not (tmp_path / "two").exists()


def _with(**changes: Any) -> Data:
    graph = random_graph(1)
    for name, value in changes.items():
        graph[name] = value
    return graph


def _raw_npz(path: Path, graph: Data, **replaced: np.ndarray) -> Path:
    """A file in the dataset format that the writer itself would refuse to make."""
    arrays = {
        "edge_index": graph.edge_index.numpy().astype(np.int32),
        "x": graph.x.numpy(),
        "y": graph.y.numpy(),
        "class_names": np.array(graph.class_names),
        **{f"{name}_mask": graph[f"{name}_mask"].numpy() for name in ("train", "val", "test")},
    }
    np.savez(path, **(arrays | replaced))
    return path


nan_features = random_graph(1).x.numpy().copy()
nan_features[0, 0] = np.nan
far_edge = np.array([[0, 99], [99, 0]], dtype=np.int32)


@pytest.mark.parametrize(
    ("replaced", "words", "message"),
    [
        ({"x": nan_features}, [], "NaN"),
        ({"y": np.full(40, 7)}, [], "labels|class"),
        ({"edge_index": far_edge}, [], "99"),
        ({"train_mask": np.zeros(40, dtype=bool)}, [], "train"),
        ({}, ["--epsilon", "0"], "epsilon: expected a positive number"),
        ({}, ["--epsilon", "-1"], "epsilon: expected a positive number"),
        ({}, ["--delta", "1"], "delta: expected a number above 0 and below 1"),
        ({}, ["--delta", "0.5"], "delta: expected less than 1/"),
        ({}, ["--unit", "nod"], "did you mean 'node'"),
        ({}, ["--set", "hopps=2"], "did you mean 'hops'"),
        ({}, ["--set", "hops"], "expected KEY=VALUE"),
        ({}, ["--unit", "directed-edge"], "one friendship is two entries"),
        ({}, ["--split", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_explained_and_nothing_is_written_or_charged(
    tmp_path: Path, replaced: dict[str, np.ndarray], words: list[str], message: str
) -> None:
    import re

    data = _raw_npz(tmp_path / "bad.npz", random_graph(1), **replaced)
    out, ledger = tmp_path / "model", tmp_path / "ledger"
    result = run("train", "gap", "--data", data, "--out", out, "--ledger", ledger, *TRAIN, *words)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output), result.output
    assert not out.exists()
    assert not ledger.exists()


def test_a_broken_promise_and_an_unknown_method_are_refused(tmp_path: Path) -> None:
    data = write_npz(hub_graph(60), tmp_path / "hub.npz")
    words = ["--data", data, "--out", tmp_path / "m", *TRAIN]
    promised = run("train", "gap", "--unit", "node-promise", "--set", "max_degree=10", *words)
    assert promised.exit_code == 2
    assert "with 60" in promised.output
    unknown = run("train", "gapp", *words)
    assert unknown.exit_code == 2
    assert "did you mean 'gap'" in unknown.output
    assert not (tmp_path / "m").exists()


def test_a_broken_ledger_stops_everything(data: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    run_json("train", "gap", "--data", data, "--out", tmp_path / "one", "--ledger", ledger, *TRAIN)
    file = ledger / "ledger.db"
    file.write_bytes(file.read_bytes().replace(b'"charges":', b'"chagres":', 1))  # in the last entry but one
    for words in (
        ("ledger", "verify", ledger),
        ("ledger", "show", ledger),
        ("train", "gap", "--data", data, "--out", tmp_path / "two", "--ledger", ledger, *TRAIN),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert "changed" in result.output
    assert not (tmp_path / "two").exists()


def test_an_existing_folder_is_never_written_over(data: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious.txt").write_text("mine")
    result = run("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    assert result.exit_code == 2
    assert "new or empty folder" in result.output
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["precious.txt"]


def test_errors_are_json_too_when_asked() -> None:
    result = run("plan", "gap", "--unit", "nod", "--nodes", 10, "--edges", 10, "--epsilon", 1, "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)
    assert error["exit_code"] == 2
    assert "did you mean" in error["error"]


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    result = run("predict", tmp_path)
    assert result.exit_code == 2
    assert "config.json is missing" in result.output


def test_methods_lists_what_can_be_set(data: Path) -> None:
    assert "chorus" in run("methods").stdout
    shown = run_json("methods", "dp-gnn")
    assert shown["settings"]["layers"] == 1
    assert "--set max_degree=(by rule)" in run("methods", "dp-gnn").stdout
    wrong = run("methods", "gapp")
    assert (wrong.exit_code, "did you mean 'gap'" in wrong.output) == (2, True)


def test_predictions_from_raw_neighborhoods_say_so(data: Path, tmp_path: Path) -> None:
    trained = run("train", "dp-gnn", "--data", data, "--unit", "node", "--out", tmp_path / "m", *TRAIN)
    assert "lowest classes" in trained.stdout
    assert "NOT PROTECTED: predictions" in run("predict", tmp_path / "m", "--data", data).stdout
    assert run_json("predict", tmp_path / "m", "--data", data)["not_protected"]


def test_datasets_and_doctor_answer() -> None:
    names = {record["name"] for record in run_json("datasets")["datasets"]}
    assert {"campus", "digits"} <= names
    assert "campus" in run("datasets").stdout
    report = run_json("doctor")
    assert report["healthy"] is True
    assert {"entropy", "noise", "accountant", "ledger"} <= {check["what"] for check in report["checks"]}


def test_help_is_fast_because_it_imports_no_torch() -> None:
    code = "import sys; import hushgraph.cli; assert not {'torch', 'dp_accounting'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for words in (["--help"], ["plan", "--help"], ["train", "--help"], ["ledger", "--help"]):
        assert run(*words).exit_code == 0
    assert run("--version").stdout.startswith("hushgraph ")


def test_the_node_own_features_are_asked_for_at_node_level(data: Path, tmp_path: Path) -> None:
    words = ["--unit", "node", "--set", "batch_size=8", "--set", "max_degree=5"]
    run_json("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN, *words)
    alone = run_json("predict", tmp_path / "model")
    assert alone["own_features"].startswith("absent")
    own = run_json("predict", tmp_path / "model", "--data", data)
    assert own["own_features"] == "read from --data"
    assert torch.tensor(own["predictions"]).shape == (40,)
