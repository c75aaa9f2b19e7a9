"""The study of docs/results-pate.md in a form of seconds: it is killed, and goes on with what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgraph.study.run import study
from hushgraph.study.store import Store

STUDIES = Path(__file__).parents[2] / "studies"
DEADLINE = 300.0
SMALL = {"teachers": 6, "queries": 40, "epochs": 4, "width": 2}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quick study, on bars at one of three places in a file like that of Fashion-MNIST."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 240), ("test", 120)):
        y = rng.integers(0, 3, count)
        x = rng.integers(0, 60, (count, 12, 12))
        x[np.arange(count), :, 4 * y + 1] += 180
        arrays |= {f"x_{part}": x.astype(np.uint8), f"y_{part}": y}
    (tmp_path / "data" / "fashion_mnist").mkdir(parents=True)
    np.savez(tmp_path / "data" / "fashion_mnist" / "fashion_mnist.npz", **arrays)
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "data"))
    (tmp_path / "studies").mkdir()
    shutil.copy(STUDIES / "pate_runs.py", tmp_path / "studies")
    values = yaml.safe_load((STUDIES / "pate-quick.yaml").read_text())
    values["datasets"][0]["options"]["public"] = 80
    for method in values["methods"]:
        method["set"] |= SMALL | ({"queries": 20} if method["name"] == "centers" else {})
    path = tmp_path / "studies" / "quick.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_a_killed_study_goes_on_and_gives_what_it_would_have_given(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "hushgraph", "study", "run", str(file), "--workers", "0"]
    store = Store(file.with_name("pate-quick.sqlite"))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as killed:
        until = time.monotonic() + DEADLINE
        while len(store.results()) < 2 and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        killed.kill()
    before = store.results()
    assert 2 <= len(before) < 7
    monkeypatch.syspath_prepend(str(file.parent))
    done = study(file, workers=0)
    assert done.counts == {"done": 7}
    assert {key: one for key, one in store.results().items() if key in before} == before
    whole = study(file, store=tmp_path / "whole.sqlite", workers=0)
    for one, other in zip(done.rows, whole.rows, strict=True):
        assert one.metrics["test_accuracy"] == other.metrics["test_accuracy"], str(one.cell)


def test_runs_that_share_a_search_give_what_a_fit_of_the_student_gives(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    import pate_runs

    from hushgraph.study.lab import Lab
    from hushgraph.study.spec import Study

    cells = [cell for cell in Study.read(file).cells if cell.method and cell.method.settings.get("student") == "pate++"]
    found = pate_runs.taught(Lab(cells[0]))
    lab = Lab(cells[0])
    room = pate_runs._classroom(lab)
    network = room.network(pate_runs._method(lab))
    pate_runs._method(lab).student_with_settings().learn(network, room.lesson, room.generator, lambda *_: None)
    assert found["test_accuracy"] == room.accuracy(network, room.graph.test)
    assert found["wrong_labels"] is not None
