from __future__ import annotations

from pathlib import Path

from commands import flat, run, run_json
from hushgraph.datasets import load, write_npz
from small_graphs import random_graph

BUDGET = ["--epsilon", "4", "--delta", "1e-3"]


def test_a_graph_is_released_verified_audited_and_loaded(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = run_json("release", "arr", "--data", data, "--out", out, *BUDGET)
    assert found["epsilon"] <= 4.0
    assert found["released_edges"] == load(out).edge_index.shape[1]
    assert run("verify", out).exit_code == 0
    assert run("audit", out, "--canaries", "500").exit_code == 0
    words = ["train", "sage", "--data", out, "--epsilon", "inf", "--set", "epochs=1"]
    assert (
        run_json(*words, "--out", tmp_path / "model")["method"] == "sage"
    )  # no question: the ledger knows the release


def test_a_directed_release_is_loaded_without_saying_so_again(tmp_path: Path) -> None:
    data, out = write_npz(random_graph(0, symmetric=False), tmp_path / "toy.npz"), tmp_path / "out"
    refused = run("release", "arr", "--data", data, "--out", out, *BUDGET)
    assert "--directed" in refused.output
    run_json("release", "arr", "--data", data, "--directed", "--unit", "directed-edge", "--out", out, *BUDGET)
    words = ["train", "sage", "--data", out, "--unit", "directed-edge", "--epsilon", "inf", "--set", "epochs=1"]
    assert run_json(*words, "--out", tmp_path / "model")["unit"] == "directed-edge"


def test_a_released_graph_is_no_way_around_a_node_level_account(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_json("release", "arr", "--data", data, "--out", out, *BUDGET)
    refused = run("train", "gap", "--data", out, "--out", tmp_path / "model", "--unit", "node", *BUDGET)
    assert refused.exit_code == 2
    assert "expected the real graph under the unit 'node'" in " ".join(refused.output.split())
    refused = run("train", "lpgnn", "--data", out, "--out", tmp_path / "model", *BUDGET)  # of a unit that is not named
    assert "expected the real graph under the unit 'local'" in " ".join(refused.output.split())
    (out / "certificate.json").write_text("{}")  # nothing confirms the release any more
    asked = run("train", "mlp", "--data", out, "--out", tmp_path / "model", *BUDGET)
    assert asked.exit_code == 2
    assert "--separate" in asked.output


def test_a_release_whose_noise_can_be_drawn_again_is_a_question(data: Path, tmp_path: Path) -> None:
    """Left out of totals, its edges were charged to nobody: to train on it freely would be a way around them."""
    out, seeded = tmp_path / "out", ["--seed", "1", "--unpublished"]
    run_json("release", "arr", "--data", data, "--out", out, *BUDGET, *seeded)
    assert run("verify", out).exit_code == 0
    asked = run("train", "mlp", "--data", out, "--out", tmp_path / "model", *BUDGET)
    assert asked.exit_code == 2
    assert "--separate" in asked.output


def test_in_words_it_says_what_came_out(data: Path, tmp_path: Path) -> None:
    text = flat(run("release", "lap-graph", "--data", data, "--out", tmp_path / "out", *BUDGET))
    assert "graph: noisy-edges, discrete Laplace noise of scale 0.2525 on every pair of nodes" in text
    assert "edges (entries)," in text


def test_what_cannot_be_released_is_refused(data: Path, tmp_path: Path) -> None:
    refused = run("release", "gap", "--data", data, "--out", tmp_path / "out", *BUDGET)
    assert refused.exit_code == 2
    assert "expected a method that releases a graph; gap does not" in refused.output
    assert not (tmp_path / "out").exists()
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("mine")
    assert "new or empty folder" in run("release", "arr", "--data", data, "--out", full, *BUDGET).output


def test_public_edges_of_a_file_come_out(tmp_path: Path) -> None:
    graph = random_graph(1)
    graph.public_edge_index = graph.edge_index[:, (graph.edge_index < 12).all(dim=0)]
    data = write_npz(graph, tmp_path / "toy.npz")
    run_json("release", "edge-rand", "--data", data, "--out", tmp_path / "out", *BUDGET)
    released = set(map(tuple, load(tmp_path / "out").edge_index.t().tolist()))
    assert set(map(tuple, graph.public_edge_index.t().tolist())) <= released


def test_features_and_edges_are_released_together(data: Path, tmp_path: Path) -> None:
    wide = ["--set", "low=-4", "--set", "high=4", "--set", "steps_per_node=5"]
    asked = ["release", "hetero-rr", "--data", data, *BUDGET, *wide]
    assert "--feature-epsilon" in run(*asked, "--out", tmp_path / "none").output
    found = run_json(*asked, "--feature-epsilon", "2", "--out", tmp_path / "out")
    assert (found["unit"], found["features"]["unit"]["name"]) == ("undirected-edge", "local")
    assert found["features"]["epsilon"] <= 2.0
    assert run("verify", tmp_path / "out").exit_code == 0
    assert load(tmp_path / "out").x.min() >= 0.0
