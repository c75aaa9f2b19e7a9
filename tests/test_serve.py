"""The example that serves predictions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fastapi.testclient import TestClient

import hushgraph as hg
from importing.tables_of_people import CITIES, ROLES, people


@pytest.fixture
def serve() -> Any:
    path = Path(__file__).resolve().parents[1] / "examples" / "serve.py"
    found = importlib.util.spec_from_file_location("serve", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_predictions_by_the_users_ids(serve: Any) -> None:
    nodes, edges = people()
    features = {"age": (0, 120), "city": CITIES}
    tables = pd.DataFrame(nodes), pd.DataFrame(edges)
    graph = hg.Graph.from_pandas(*tables, id="person", label="role", classes=ROLES, features=features, directed=False)
    model = hg.GAP(epochs=1).fit(graph, "undirected-edge", (4.0, 1e-4))
    client = TestClient(serve.app_of(model, graph))
    said = client.get("/predictions/p007").json()
    assert said["class"] == ROLES[int(model.predict()[7])]
    assert sum(said["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
    assert client.get("/predictions/zz").status_code == 404
    promise = client.get("/promise").json()
    assert (promise["unit"], promise["private"]) == ("undirected-edge", True)
    assert "differentially private" in " ".join(promise["words"].split())
