from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import TRAIN, flat, run, run_json


@pytest.fixture
def model(data: Path, tmp_path: Path) -> Path:
    run_json("train", "gap", "--data", data, "--out", tmp_path / "model", "--ledger", tmp_path / "ledger", *TRAIN)
    return tmp_path / "model"


def test_the_file_is_written_where_it_says(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    shown = run_json("report", model, "--out", out, "--compare", model)
    assert shown["report"] == str(out)
    assert "Test accuracy against epsilon" in out.read_text()
    assert f"wrote {model / 'report.html'}" in flat(run("report", model))


def test_the_state_of_the_run_is_told(model: Path, tmp_path: Path) -> None:
    checked = run_json("report", model, "--ledger", tmp_path / "ledger")
    assert checked["verification"] in ("verified", "not verified")
    assert checked["findings"]


def test_a_contradicted_run_has_a_page_and_its_own_exit_code(model: Path, tmp_path: Path) -> None:
    values = json.loads((model / "certificate.json").read_text())
    (model / "certificate.json").write_text(json.dumps({**values, "epsilon": 0.01}))
    result = run("report", model, "--ledger", tmp_path / "ledger")
    assert result.exit_code == 4
    assert "contradicted" in result.stdout
    assert "CONTRADICTED" in (model / "report.html").read_text()


def test_another_ledger_is_refused(model: Path, tmp_path: Path) -> None:
    result = run("report", model, "--ledger", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "expected a ledger that holds the run" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("form", "file"),
    [("markdown", "report.md"), ("card", "README.md"), ("json", "privacy.json"), ("deployment", "deployment.yaml")],
)
def test_other_forms(model: Path, form: str, file: str) -> None:
    assert run("report", model, "--format", form).exit_code == 0
    assert (model / file).stat().st_size > 500


def test_an_unknown_form_is_refused(model: Path) -> None:
    result = run("report", model, "--format", "jsn")
    assert result.exit_code == 2
    assert "did you mean 'json'" in result.output
