from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_experiments import PRIVATE_FACT, PRIVATE_METRIC

from hushgraph.errors import InputError
from hushgraph.study.results import Results
from hushgraph.study.run import default_store, read_study, study
from hushgraph.study.spec import Study
from hushgraph.study.store import Result, State, Store
from hushgraph.study.tracked import entry_of_cell, tracked
from hushgraph.tracking.base import Entry, Tracker

ACCURACY = "test_accuracy"


class Recorder(Tracker):
    name = "recorder"

    def __init__(self, fails: bool = False) -> None:
        super().__init__("here")
        self.entries: list[Entry] = []
        self.fails = fails

    def log(self, entry: Entry) -> None:
        if self.fails:
            raise InputError("track: no answer")
        self.entries.append(entry)


def ran(tmp_path: Path, *trackers: Recorder, evaluation: bool = False) -> Results:
    values = {
        "name": "s",
        "privacy": "research",
        "datasets": ["campus"],
        "methods": [{"method": "mlp", "set": {"epochs": 1}}],
    }
    declared = read_study({**values, "epsilons": [1, 4], "seeds": 1, "units": ["undirected-edge"]}, {})
    return watched(declared, tmp_path, *trackers, evaluation=evaluation)


def watched(declared: Study, tmp_path: Path, *trackers: Recorder, evaluation: bool = False) -> Results:
    before = Results(declared, Store(tmp_path / default_store(declared).name))
    told = tracked(before, trackers, evaluation=evaluation)
    return study(declared, store=before.store.path, workers=0, watch=told)


def test_every_run_is_shown_once_without_its_metrics(tmp_path: Path) -> None:
    one = Recorder()
    results = ran(tmp_path, one)
    assert [entry.settings["epsilon"] for entry in one.entries] == [1.0, 4.0]
    for entry, row in zip(one.entries, results.rows):
        assert entry.evaluation == {}
        assert entry.settings["method"] == "mlp"
        assert set(entry.figures) == {"epsilon", "delta"}
        assert set(entry.released) == {"proved_epsilon"}
        accuracy = row.metrics[ACCURACY]
        assert accuracy is not None
        assert str(accuracy)[:6] not in repr(entry)
    ran(tmp_path, one)
    assert len(one.entries) == 2  # nothing was left to run


def test_metrics_are_shown_when_asked_for(tmp_path: Path) -> None:
    one = Recorder()
    results = ran(tmp_path, one, evaluation=True)
    assert [entry.evaluation[ACCURACY] for entry in one.entries] == [row.metrics[ACCURACY] for row in results.rows]


def test_a_tracker_that_fails_does_not_stop_the_study(tmp_path: Path) -> None:
    good, bad = Recorder(), Recorder(fails=True)
    with pytest.warns(UserWarning, match="no longer tracked"):
        results = ran(tmp_path, bad, good)
    assert results.counts["done"] == 2
    assert len(good.entries) == 2


OWN: dict[str, Any] = {"name": "own", "privacy": "research", "experiment": "toy_experiments:loose", "seeds": 1}


def test_an_own_experiment_sends_what_it_declares_and_nothing_else(tmp_path: Path) -> None:
    one = Recorder()
    watched(read_study(OWN, {}), tmp_path, one)
    (entry,) = one.entries
    assert entry.numbers == {"epsilon": 1.0, "released/noisy_count": 12.5}
    for private in (PRIVATE_METRIC, PRIVATE_FACT):
        assert str(private)[:6] not in repr(entry)


def test_research_sends_all_metrics_when_asked_for_and_no_strange_fact(tmp_path: Path) -> None:
    one = Recorder()
    watched(read_study(OWN, {}), tmp_path, one, evaluation=True)
    (entry,) = one.entries
    assert entry.evaluation == {"loss": PRIVATE_METRIC}
    assert entry.numbers["not_private_evaluation/loss"] == PRIVATE_METRIC
    assert str(PRIVATE_FACT)[:6] not in repr(entry)


def test_an_experiment_that_declares_nothing_sends_no_metric(tmp_path: Path) -> None:
    one = Recorder()
    watched(read_study({**OWN, "experiment": "toy_experiments:noisy"}, {}), tmp_path, one)
    assert one.entries[0].numbers == {}


def test_a_charged_study_refuses_to_send_evaluations_before_it_runs(tmp_path: Path) -> None:
    values = {"name": "s", "datasets": ["campus"], "methods": ["mlp"], "epsilons": [1], "seeds": 1}
    charged = read_study({**values, "privacy": "charged", "ledger": str(tmp_path / "ledger")}, {})
    one = Recorder()
    with pytest.raises(InputError, match="no run has paid for"):
        watched(charged, tmp_path, one, evaluation=True)
    done = Result("k" * 8, "code", State.DONE, {"test_accuracy": 73.4}, {}, "", 0.0, 0.0)
    with pytest.raises(InputError, match="no run has paid for"):
        entry_of_cell(charged.cells[0], done, evaluation=True)
    assert entry_of_cell(charged.cells[0], done).numbers == {}
    assert one.entries == []
    assert not (tmp_path / "ledger").exists()
