"""A study does what is missing and nothing twice: after errors, after a worker's death, after kill -9."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hushgraph
from hushgraph.errors import InputError
from hushgraph.study.export import runs_csv
from hushgraph.study.results import Results
from hushgraph.study.run import Progress, study
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store, StoreLock

TOY = {"privacy": "research", "experiment": "toy_experiments:noisy", "seeds": 3}


def run(tmp_path: Path, workers: int = 0, **values: Any) -> Results:
    return study({**TOY, **values}, store=tmp_path / "s.sqlite", workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_start_does_nothing_and_an_extension_only_what_is_new(tmp_path: Path, workers: int) -> None:
    log = str(tmp_path / "log")
    first = run(tmp_path, workers, settings={"size": [1, 2], "log": log})
    again = run(tmp_path, workers, settings={"size": [1, 2], "log": log})
    assert runs_csv(first) == runs_csv(again)
    assert first.counts == {"done": 6}
    run(tmp_path, workers, settings={"size": [1, 2, 3], "log": log})
    started = Path(log).read_text().splitlines()
    assert len(started) == 9 == len(set(started))


def test_other_code_is_other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(tmp_path)
    for module in ("results", "workers"):
        monkeypatch.setattr(f"hushgraph.study.{module}.code_version", lambda name: "newer")
    now = Results(before.study, before.store)
    assert now.counts == {"missing": 3}
    assert now.of_other_code == 3
    assert Results(before.study, before.store, any_code=True).counts == {"done": 3}
    assert run(tmp_path).counts == {"done": 3}


def test_errors_end_their_cell_alone_and_are_tried_again_when_asked(tmp_path: Path) -> None:
    values = {**TOY, "experiment": "toy_experiments:fails", "seeds": 1, "settings": {"how": ["error", "refused", "ok"]}}
    found = study(values, store=tmp_path / "s.sqlite", workers=1)
    assert found.counts == {"failed": 1, "refused": 1, "done": 1}
    messages = {cell.settings["how"]: one.message for cell, one in found.ended(State.FAILED, State.REFUSED)}
    assert "ZeroDivisionError: a bug" in messages["error"]
    assert messages["refused"] == "no proof"
    assert sum(Store(tmp_path / "s.sqlite").begun().values()) == 3
    study(values, store=tmp_path / "s.sqlite", workers=1)
    assert sum(Store(tmp_path / "s.sqlite").begun().values()) == 3
    study(values, store=tmp_path / "s.sqlite", workers=1, retry=True)
    assert sum(Store(tmp_path / "s.sqlite").begun().values()) == 5


def test_a_worker_that_dies_is_replaced_and_its_cell_given_up(tmp_path: Path) -> None:
    values = {**TOY, "experiment": "toy_experiments:fails", "seeds": 2, "settings": {"how": ["dies", "ok"]}}
    found = study(values, store=tmp_path / "s.sqlite", workers=2)
    assert found.counts == {"failed": 2, "done": 2}
    assert "exit code 9" in found.ended(State.FAILED)[0][1].message


def test_progress_counts_up_and_says_when_nothing_is_known(tmp_path: Path) -> None:
    seen: list[Progress] = []
    study({**TOY, "settings": {"pause": 0.01}}, store=tmp_path / "s.sqlite", workers=0, watch=seen.append)
    assert [one.done for one in seen] == [0, 1, 2, 3]
    assert str(seen[0].remaining) == "time left not known yet"
    assert seen[1].remaining.unknown == 0
    assert 0.0 < seen[1].remaining.likely < 10.0


def test_a_store_has_one_runner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with StoreLock(path), pytest.raises(InputError, match="another process"), StoreLock(path, wait=0.1):
        pass
    with StoreLock(path, wait=0.1):
        pass


def test_what_is_done_is_never_replaced(tmp_path: Path) -> None:
    store, cell = Store(tmp_path / "s.sqlite"), Study.from_dict(TOY).cells[0]
    store.finish(cell, "code", State.FAILED, message="first")
    store.finish(cell, "code", State.DONE, metrics={"a": float("inf"), "b": None})
    store.finish(cell, "code", State.FAILED, message="later")
    found = store.result(cell.key("code"))
    assert found is not None
    assert (found.state, found.metrics) == (State.DONE, {"a": float("inf"), "b": None})


KILLED = """
privacy: research
experiment: toy_experiments:noisy
seeds: 5
settings: {size: [1, 2, 3, 4], pause: 0.04, log: LOG}
"""


def test_killed_at_random_moments_and_started_again_it_gives_the_same_table(tmp_path: Path) -> None:
    """Each start is killed with signal 9; workers end with it, and no cell that was stored is run again."""
    (tmp_path / "toy_experiments.py").write_text((Path(__file__).parent / "toy_experiments.py").read_text())
    file, log = tmp_path / "killed.yaml", tmp_path / "log"
    file.write_text(KILLED.replace("LOG", str(log)))
    log.touch()
    command = [sys.executable, "-m", "hushgraph", "study", "run", str(file), "--workers", "2", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hushgraph.__file__).parents[1])}
    moments, kills = random.Random(0), 0
    for _ in range(3):
        started = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = log.stat().st_size
        while log.stat().st_size == before and started.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.15))
        if started.poll() is None:
            started.send_signal(signal.SIGKILL)
            kills += 1
        started.wait()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    store = Store(tmp_path / "killed.sqlite")
    resumed = Results(Study.read(file), store)
    assert kills >= 2
    assert resumed.counts == {"done": 20}
    plain = study(Study.read(file), store=tmp_path / "whole.sqlite", workers=0)
    assert runs_csv(resumed) == runs_csv(plain)
    assert sum(store.begun().values()) <= 20 + 2 * kills
