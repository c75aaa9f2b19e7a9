from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hushgraph.cli.audit import audit
from hushgraph.cli.console import command
from hushgraph.methods.gap import GAP
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import DirectedEdge, Node, UndirectedEdge, Unit
from small_graphs import random_graph


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(command(audit))
    return made


def trained(folder: Path, unit: Unit, paper_mode: bool = False) -> Path:
    model = GAP(epochs=1).fit(random_graph(0), unit, Budget(1.0, 1e-4), paper_mode=paper_mode)
    return model.save(folder / "run")


@pytest.mark.parametrize("paper", [False, True])
def test_the_command_prints_claim_bound_and_verdict_and_keeps_the_result(tmp_path: Path, paper: bool) -> None:
    folder = trained(tmp_path, DirectedEdge() if paper else UndirectedEdge(), paper)
    shown = CliRunner().invoke(app(), [str(folder), "--seed", "3"])
    written = json.loads((folder / "audit.json").read_text())
    assert "proven lower bound" in " ".join(shown.output.split())
    assert "95%" in shown.output
    assert written["verdict"] == ("contradicted" if paper else "consistent")
    assert shown.exit_code == (4 if paper else 0)


def test_lines_fit_in_80_columns(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app(), [str(trained(tmp_path, Node(max_degree=10))), "--canaries", "200", "--seed", "1"])
    lines = shown.stdout.splitlines()
    assert any("all audited stages together" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("paper", [False, True])
def test_json_is_one_object_and_the_same_as_the_file(tmp_path: Path, paper: bool) -> None:
    folder = trained(tmp_path, DirectedEdge() if paper else UndirectedEdge(), paper)
    shown = CliRunner().invoke(app(), [str(folder), "--json", "--seed", "3", "--out", str(tmp_path / "a.json")])
    assert json.loads(shown.stdout) == json.loads((tmp_path / "a.json").read_text())
    assert not (folder / "audit.json").exists()
    assert shown.exit_code == (4 if paper else 0)


def test_a_folder_without_a_model_is_an_input_error(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app(), [str(tmp_path)])
    assert shown.exit_code == 2
    assert "config.json is missing" in " ".join(shown.output.split())
