from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from hushgraph.methods.saving import save_model
from typer.testing import CliRunner

import hushgraph as hg
from hushgraph import datasets
from hushgraph.cli.audit import audit
from hushgraph.errors import AuditContradiction
from hushgraph.methods.gap import GAP
from hushgraph.privacy.units import DirectedEdge, UndirectedEdge


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(audit)
    return made


@pytest.mark.parametrize("paper", [False, True])
def test_the_command_prints_claim_bound_and_verdict_and_keeps_the_result(tmp_path: Path, paper: bool) -> None:
    unit = DirectedEdge() if paper else UndirectedEdge()
    data = datasets.load("campus", num_nodes=300)
    folder = save_model(GAP(epochs=1).fit(data, unit, hg.Budget(1.0, 1e-5), paper_mode=paper), tmp_path / "run")
    shown = CliRunner().invoke(app(), [str(folder), "--seed", "3"])
    written = json.loads((folder / "audit.json").read_text())
    assert "lower bound" in shown.output
    assert "95%" in shown.output
    assert written["verdict"] == ("contradicted" if paper else "consistent")
    assert isinstance(shown.exception, AuditContradiction) == paper


def test_json_is_the_same_as_the_file(tmp_path: Path) -> None:
    data = datasets.load("campus", num_nodes=300)
    folder = save_model(GAP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-5)), tmp_path / "run")
    shown = CliRunner().invoke(app(), [str(folder), "--json", "--canaries", "500", "--out", str(tmp_path / "a.json")])
    assert json.loads(shown.output) == json.loads((tmp_path / "a.json").read_text())
