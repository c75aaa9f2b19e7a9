"""`hushgraph study`: one file from the dry run to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import flat, run, run_json

FILE = """
name: tiny
privacy: research
datasets: [{load: campus, options: {num_nodes: 300}}]
methods: [{method: gap, set: {epochs: 2, hops: [1, 2]}}, {method: mlp, set: {epochs: 2}}]
units: [undirected-edge]
epsilons: [1, 4]
deltas: [1e-4]
seeds: 2
choose: {by: val_accuracy, over: [hops]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(FILE)
    return path


def test_a_dry_run_shows_runs_time_and_privacy_and_runs_nothing(file: Path) -> None:
    shown = flat(run("study", "run", file, "--dry-run"))
    assert "12 runs: 12 missing" in shown
    assert "time left not known yet" in shown
    assert "2 x study, campus, gap, undirected-edge, epsilon 1: epsilon 1 at delta 0.0001" in shown
    assert "for 12 protected runs" in shown
    assert "choosing among 2 settings looked at 4 runs of epsilon 1 each" in shown
    assert "nothing is charged" in shown
    found = run_json("study", "run", file, "--dry-run")
    assert found["missing"] == found["runs"] == 12
    assert not file.with_suffix(".sqlite").exists()


def test_a_plot_without_finished_runs_is_refused(file: Path, tmp_path: Path) -> None:
    refused = run("study", "plot", file, "--out", tmp_path / "p.svg")
    assert refused.exit_code == 2
    assert "plot: expected finished runs; got none: hushgraph study run" in " ".join(refused.output.split())


def test_a_timed_dry_run_knows_the_time_and_keeps_what_it_ran(file: Path) -> None:
    found = run_json("study", "run", file, "--dry-run", "--timed", "--workers", 0)
    assert found["missing"] == 10
    assert found["seconds"]["unknown"] == 0
    file.write_text(FILE.replace("research", "charged"))
    refused = run("study", "run", file, "--dry-run", "--timed")
    assert refused.exit_code == 2
    assert "charges nothing" in " ".join(refused.output.split())


def test_from_the_run_to_tables_plots_page_and_csv(file: Path, tmp_path: Path) -> None:
    done = run("study", "run", file, "--workers", 0)
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    for expected in ("12 done", "best by val_accuracy", "none of it was charged", "not private: evaluation"):
        assert expected in words
    assert run_json("study", "run", file)["counts"] == {"done": 12}
    shown = run_json("study", "show", file)
    assert shown["counts"] == {"done": 12}
    assert "cost" not in shown
    assert run_json("study", "show", file, "--cost")["cost"]["runs"]
    options = ["--rows", "epsilon", "--baseline", "mlp"]
    (table,) = run_json("study", "table", file, *options)["tables"]
    assert table["baseline"] == "mlp"
    assert {"p_t", "bootstrap_low", "difference"} <= table["entries"][0].keys()
    assert r"\toprule" in run("study", "table", file, "--form", "latex").stdout
    text = run("study", "table", file, "--value", "test_auc", "--where", "hops=1", "--bootstrap").stdout
    assert "test auc" in text
    (plot,) = run_json("study", "plot", file, "--out", tmp_path / "p.svg", "--x", "hops", "--series", "epsilon")[
        "plots"
    ]
    assert Path(plot).read_text().startswith("<?xml")
    page = run_json("study", "report", file)
    assert page["bytes"] < 5_000_000
    assert run("study", "export", file).stdout.count("\n") == 13


def test_all_problems_of_a_file_are_shown_at_once(file: Path) -> None:
    file.write_text(FILE.replace("gap", "gapp").replace("privacy: research", "privacy: reserch"))
    result = run("study", "run", file)
    assert result.exit_code == 2
    assert "did you mean 'gap'" in result.output
    assert "did you mean 'research'" in result.output
