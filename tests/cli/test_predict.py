from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commands import TRAIN, flat, run, run_json
from hushgraph.datasets import write_npz
from hushgraph.methods.evaluation import EVALUATION
from small_graphs import random_graph

NODE = ["--unit", "node", "--set", "batch_size=8", "--set", "max_degree=5"]


@pytest.fixture
def model(data: Path, tmp_path: Path) -> Path:
    """An edge-level model."""
    run_json("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    return tmp_path / "model"


def test_predictions_cost_nothing_and_are_written(model: Path, tmp_path: Path) -> None:
    predicted = run_json("predict", model, "--out", tmp_path / "p.npz")
    assert predicted["charged"] is False
    assert len(predicted["predictions"]) == 40
    with np.load(tmp_path / "p.npz", allow_pickle=False) as file:
        assert file["classes"].tolist() == predicted["predictions"]
        assert np.allclose(file["probabilities"].sum(axis=1), 1.0, atol=1e-5)
    again = run("predict", model, "--out", tmp_path / "p.npz")
    assert (again.exit_code, "exists already" in " ".join(again.output.split())) == (2, True)


def test_another_graph_needs_and_charges_a_budget(model: Path, tmp_path: Path) -> None:
    other = write_npz(random_graph(5, num_nodes=48), tmp_path / "other.npz")
    refused = run("predict", model, "--on", other)
    assert refused.exit_code == 2
    assert "--epsilon" in refused.output
    words = ["predict", model, "--on", other, "--epsilon", 2, "--delta", 1e-3, "--edges", 900]
    found = run_json(*words)
    assert (found["charged"], found["nodes"]) == (True, 48)
    assert float(found["certificate"]["epsilon"]) <= 2.0
    assert {"code": "edges-declared", "edges": 900} in found["certificate"]["public"]
    assert "differentially private for the unit 'undirected-edge'" in flat(run(*words))


def test_a_count_of_classes_is_marked_where_it_reads_private_records(data: Path, model: Path, tmp_path: Path) -> None:
    assert run_json("predict", model)["classes_note"] == ""
    run_json("train", "gap", "--data", data, "--out", tmp_path / "node", *TRAIN, *NODE)
    assert run_json("predict", tmp_path / "node", "--data", data)["classes_note"] == EVALUATION
    assert f"nodes in each class ({EVALUATION})" in flat(run("predict", tmp_path / "node", "--data", data))
    on = ["predict", tmp_path / "node", "--on", data, "--epsilon", 4, "--delta", 1e-3]
    assert run_json(*on)["classes_note"] == EVALUATION


def test_an_unprotected_model_s_counts_are_marked(data: Path, tmp_path: Path) -> None:
    run_json("train", "gcn", "--data", data, "--out", tmp_path / "gcn", "--epsilon", "inf", "--set", "epochs=1")
    assert run_json("predict", tmp_path / "gcn", "--data", data)["classes_note"] == EVALUATION


def test_predictions_from_raw_neighborhoods_say_so(data: Path, tmp_path: Path) -> None:
    run_json("train", "dp-gnn", "--data", data, "--unit", "node", "--out", tmp_path / "m", *TRAIN)
    assert "NOT PROTECTED: predictions" in flat(run("predict", tmp_path / "m", "--data", data))
    assert run_json("predict", tmp_path / "m", "--data", data)["not_protected"]


def test_the_nodes_own_features_are_asked_for_at_node_level(data: Path, model: Path, tmp_path: Path) -> None:
    run_json("train", "gap", "--data", data, "--out", tmp_path / "node", *TRAIN, *NODE)
    refused = run("predict", tmp_path / "node")
    assert (refused.exit_code, "(--data)" in refused.output) == (2, True)
    own = run_json("predict", tmp_path / "node", "--data", data)
    assert own["own_features"] == "given"
    assert len(own["predictions"]) == 40
    assert run_json("predict", model)["own_features"] == "public"
    assert "Nothing was charged: the predictions are stored with the model." in flat(run("predict", model))


@pytest.mark.parametrize("words", [[], NODE], ids=["edge", "node"])
def test_another_graph_of_the_same_size_is_not_taken_for_the_training_graph(
    words: list[str], data: Path, tmp_path: Path
) -> None:
    run_json("train", "gap", "--data", data, "--out", tmp_path / "one", *TRAIN, *words)
    other = write_npz(random_graph(7), tmp_path / "other.npz")
    refused = run("predict", tmp_path / "one", "--data", other)
    assert refused.exit_code == 2
    assert "expected the features of the training graph; got others" in " ".join(refused.output.split())
    assert "--on GRAPH" in " ".join(refused.output.split())


def test_a_budget_is_for_another_graph(data: Path, model: Path) -> None:
    refused = run("predict", model, "--epsilon", 1, "--delta", 1e-4)
    assert (refused.exit_code, refused.output.count("expected --on GRAPH")) == (2, 2)
    assert "got both" in run("predict", model, "--data", data, "--on", data, "--epsilon", 1).output


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    result = run("predict", tmp_path)
    assert result.exit_code == 2
    assert "config.json is missing" in " ".join(result.output.split())


def test_the_folder_of_predictions_is_made_and_tried_before_a_charge(model: Path, tmp_path: Path) -> None:
    run_json("predict", model, "--out", tmp_path / "new" / "p.csv")
    assert (tmp_path / "new" / "p.csv").is_file()
    other = write_npz(random_graph(5, num_nodes=48), tmp_path / "other.npz")
    before = run("ledger", "show").output
    for method in (
        ["predict", model, "--on", other, "--epsilon", 2, "--delta", 1e-3, "--out", other / "p.csv"],
        ["train", "gap", "--data", other, *TRAIN, "--out", other / "model"],
        ["release", "arr", "--data", other, *TRAIN[:2], "--out", other / "graph"],
    ):
        refused = run(*method)
        assert (refused.exit_code, "which is a file" in " ".join(refused.output.split())) == (2, True)
    assert run("ledger", "show").output == before
