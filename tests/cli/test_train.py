from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from commands import TRAIN, flat, run, run_json
from hushgraph.datasets import write_npz
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.evaluation import EVALUATION
from hushgraph.methods.gap import GAP
from small_graphs import hub_graph, random_graph


def raw_npz(path: Path, graph: Data, **replaced: np.ndarray) -> Path:
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


def test_a_model_is_written_with_its_certificate(data: Path, tmp_path: Path) -> None:
    out, ledger = tmp_path / "model", tmp_path / "ledger"
    trained = run_json("train", "gap", "--data", data, "--out", out, "--ledger", ledger, *TRAIN)
    assert set(trained["accuracy"]) == {"train", "val", "test"}
    assert trained["certificate"]["unit"] == {"name": "undirected-edge"}
    assert trained["certificate"]["epsilon"] == trained["epsilon"] <= 4.0
    assert {"encoder", "aggregation", "classifier", "total"} <= set(trained["seconds"])
    assert {"model.safetensors", "config.json", "certificate.json", "metrics.json"} <= {p.name for p in out.iterdir()}
    again = run_json("train", "gap", "--data", data, "--out", tmp_path / "second", "--ledger", ledger, *TRAIN)
    assert again["certificate"]["total"]["epsilon"] > 1.3 * again["epsilon"]


def test_figures_are_marked_as_an_evaluation(data: Path, tmp_path: Path) -> None:
    trained = run_json("train", "gap", "--data", data, "--out", tmp_path / "one", *TRAIN)
    assert trained["accuracy_note"] == EVALUATION
    text = flat(run("train", "gap", "--data", data, "--out", tmp_path / "two", *TRAIN))
    assert re.search(rf"accuracy train [\d.]+%, val [\d.]+%, test [\d.]+% \({EVALUATION}\)", text)
    assert re.search(rf"lowest classes .*\({EVALUATION}\)", text)


def test_in_words_it_ends_with_the_place_of_the_model(data: Path, tmp_path: Path) -> None:
    result = run("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    assert result.exit_code == 0
    assert "differentially private for the unit 'undirected-edge'" in flat(result)
    assert result.stdout.rstrip().endswith(str(tmp_path / "model"))


def test_declared_edges_are_public_knowledge_and_others_are_not_read(data: Path, tmp_path: Path) -> None:
    words = ["train", "gap", "--data", data, "--epsilon", 4, "--set", "hidden=4", "--set", "epochs=2"]
    declared = run_json(*words, "--edges", 5000, "--out", tmp_path / "one")
    assert {"code": "edges-declared", "edges": 5000} in declared["certificate"]["public"]
    assert declared["delta"] == 1e-5
    silent = run_json(*words, "--out", tmp_path / "two")
    assert [one["code"] for one in silent["certificate"]["public"] if "edges" in one["code"]] == ["edges-assumed"]


def test_the_choice_of_auto_is_said(data: Path, tmp_path: Path) -> None:
    words = ["train", "auto", "--data", data, "--epsilon", 4, "--delta", 1e-3]
    trained = run_json(*words, "--out", tmp_path / "one")
    assert trained["reason"]["code"] == "chose-validation"
    assert trained["reason"]["words"].startswith(trained["method"])
    assert "on public validation labels" in flat(run(*words, "--out", tmp_path / "two"))


def test_a_directed_graph_is_accepted_when_it_is_said_to_be_one(tmp_path: Path) -> None:
    data = raw_npz(tmp_path / "directed.npz", random_graph(1, symmetric=False))
    refused = run("train", "gap", "--data", data, "--out", tmp_path / "one", *TRAIN)
    assert refused.exit_code == 2
    assert "both directions" in refused.output
    trained = run_json("train", "gap", "--data", data, "--directed", "--out", tmp_path / "two", *TRAIN)
    assert trained["unit"] == "directed-edge"


def test_a_run_over_the_limit_is_refused_with_its_own_exit_code(data: Path, tmp_path: Path) -> None:
    words = ["train", "gap", "--data", data, "--ledger", tmp_path / "ledger", *TRAIN]
    run_json(*words, "--out", tmp_path / "one")
    Ledger(tmp_path / "ledger").set_limit(5.0, 1e-3)
    refused = run(*words, "--out", tmp_path / "two")
    assert refused.exit_code == 3
    assert not (tmp_path / "two").exists()


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
        ({}, ["--set", "hops=0"], "hops: expected at least 1; got 0"),
        ({}, ["--unit", "directed-edge"], "one edge is two entries"),
        ({}, ["--split", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_explained_and_nothing_is_written_or_charged(
    tmp_path: Path, replaced: dict[str, np.ndarray], words: list[str], message: str
) -> None:
    data = raw_npz(tmp_path / "bad.npz", random_graph(1), **replaced)
    out, ledger = tmp_path / "model", tmp_path / "ledger"
    result = run("train", "gap", "--data", data, "--out", out, "--ledger", ledger, *TRAIN, *words)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output), result.output
    assert not out.exists()
    assert not ledger.exists()


def test_a_broken_promise_and_an_unknown_method_are_refused(tmp_path: Path) -> None:
    data = write_npz(hub_graph(60), tmp_path / "hub.npz")
    words = ["--data", data, "--out", tmp_path / "m", *TRAIN]
    promised = run("train", "gap", "--unit", "bounded-degree-node", "--set", "max_degree=10", *words)
    assert promised.exit_code == 2
    assert "more than 10 neighbors" in promised.output
    assert "60" not in promised.output  # the largest degree is private
    unknown = run("train", "gapp", *words)
    assert unknown.exit_code == 2
    assert "did you mean 'gap'" in unknown.output
    assert not (tmp_path / "m").exists()


def test_an_existing_folder_is_never_written_over(data: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious.txt").write_text("mine")
    result = run("train", "gap", "--data", data, "--out", tmp_path / "model", *TRAIN)
    assert result.exit_code == 2
    assert "new or empty folder" in result.output
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["precious.txt"]


def test_classes_that_are_other_numbers_are_the_same_data_on_the_command_line_and_in_python(tmp_path: Path) -> None:
    graph, ledger = random_graph(1), tmp_path / "ledger"
    graph.y, graph.class_names = graph.y + 1, list(range(1, len(graph.class_names) + 1))
    torch.save(graph, tmp_path / "toy.pt")
    run_json("train", "gap", "--data", tmp_path / "toy.pt", "--out", tmp_path / "one", "--ledger", ledger, *TRAIN)
    limit = ["--epsilon", 50, "--delta", 1e-2, "--unit", "undirected-edge"]
    run_json("ledger", "limit", ledger, "--data", tmp_path / "toy.pt", *limit)
    GAP(hidden_channels=4, epochs=2).fit(graph, "undirected-edge", (4.0, 1e-3), ledger=ledger)
    assert len(run_json("ledger", "show", ledger)["datasets"]) == 1
