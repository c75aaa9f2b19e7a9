"""A model's folder with sizes that its weights do not have: refused at once, whatever the sizes say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hushgraph import GAP, Budget, Chorus, units
from hushgraph.errors import InputError
from hushgraph.files.modules import WithinBudget
from hushgraph.methods.model import load
from small_graphs import random_graph


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    methods = {"gap": GAP(epochs=1), "chorus": Chorus(epochs=1)}
    for name, method in methods.items():
        folder = method.fit(random_graph(0), units.UndirectedEdge(), Budget(4.0, 1e-4)).save(place / name)
        (folder / "manifest.json").unlink()
    return {name: place / name for name in methods}


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("gap", {"hops": 10**12}),
        ("gap", {"hops": 1000}),
        ("gap", {"hidden_channels": 10**9}),
        ("gap", {"hidden_channels": 1 << 16}),
        ("gap", {"encoder_layers": 10**9}),
        ("chorus", {"hops": 10**12}),
        ("chorus", {"ensemble_size": 10**12}),
    ],
)
def test_a_folder_that_asks_for_more_than_it_holds_is_refused_at_once(
    saved: dict[str, Path], tmp_path: Path, model: str, changes: dict[str, Any]
) -> None:
    for path in saved[model].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["parameters"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError):
        load(tmp_path).predict(random_graph(0))


def test_the_budget_stops_before_the_memory_is_taken() -> None:
    with (
        pytest.raises(InputError, match="much larger than the weights beside them"),
        WithinBudget([torch.ones(10)], "folder"),
    ):
        torch.nn.Linear(10**6, 10**6)
    with pytest.raises(InputError, match="much larger"), WithinBudget([], "folder"):
        [torch.nn.Linear(1, 1) for _ in range(10**6)]
    with WithinBudget([torch.ones(100)], "folder"):
        assert torch.nn.Linear(10, 10).weight.shape == (10, 10)


@pytest.mark.parametrize(("name", "value"), [("combine", 3), ("centered", "false"), ("hops", 2.5), ("lr", "fast")])
def test_settings_of_another_type_are_refused(name: str, value: Any) -> None:
    method = GAP if name in ("combine", "lr") else Chorus
    with pytest.raises(InputError, match=name):
        method(**{name: value})


def test_a_busy_machine_is_no_damage_and_work_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with WithinBudget([torch.ones(10)], "folder"):
        monkeypatch.setattr(time, "monotonic", lambda: 1e12)  # hours pass while other processes run
        torch.zeros(10)
    budget = WithinBudget([torch.ones(10)], "folder")
    monkeypatch.setattr(time, "thread_time", lambda: 1e12)  # and here they are our own
    with pytest.raises(InputError, match="much larger"), budget:
        torch.zeros(10)
