from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.methods.model import Model
from hushgraph.tracking.mlflow import EXPERIMENT

from .conftest import PRIVATE

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before it is imported, as the tracker does
pytest.importorskip("mlflow")


@pytest.fixture(autouse=True)
def files_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow wants its folders to be asked for; tests need no database."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def runs(place: Path) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(place.as_uri())
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def test_a_model_is_a_finished_run(model: Model, tmp_path: Path) -> None:
    place = tmp_path / "mlruns"
    for _ in range(2):
        hg.track(model, f"mlflow:{place.as_uri()}")
    found = runs(place)
    assert len(found) == 2
    run = found[0]
    assert run.info.status == "FINISHED"
    assert run.info.run_name == f"gap-{model.certificate.run}"
    assert run.data.metrics["epsilon"] == model.certificate.epsilon
    assert run.data.params["unit"] == "node"
    (certificate,) = Path(run.info.artifact_uri.removeprefix("file://")).rglob("certificate.json")
    assert json.loads(certificate.read_text())["run"] == model.certificate.run


def test_nothing_of_the_evaluation_is_sent(model: Model, tmp_path: Path) -> None:
    hg.track(model, f"mlflow:{(tmp_path / 'without').as_uri()}")
    hg.track(model, f"mlflow:{(tmp_path / 'with').as_uri()}", evaluation=True)

    def text(folder: Path) -> str:
        return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())

    assert str(PRIVATE) in text(tmp_path / "with")
    assert str(PRIVATE)[:6] not in text(tmp_path / "without")


def test_only_the_named_place_is_told(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "elsewhere").as_uri())
    hg.track(model, f"mlflow:{(tmp_path / 'here').as_uri()}")
    assert not (tmp_path / "elsewhere").exists()
    assert len(runs(tmp_path / "here")) == 1
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_what_mlflow_refuses_is_said(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with pytest.raises(InputError, match="MLFLOW_ALLOW_FILE_STORE"):
        hg.track(model, f"mlflow:{(tmp_path / 'runs').as_uri()}")
