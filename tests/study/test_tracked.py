from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.study.results import Results
from hushgraph.study.run import default_store, read_study, study
from hushgraph.study.store import Store
from hushgraph.study.tracked import tracked
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
    store = Store(tmp_path / default_store(declared).name)
    return study(declared, store=store.path, workers=0, watch=tracked(store, trackers, evaluation=evaluation))


def test_every_run_is_shown_once_without_its_metrics(tmp_path: Path) -> None:
    one = Recorder()
    results = ran(tmp_path, one)
    assert [entry.settings["epsilon"] for entry in one.entries] == [1.0, 4.0]
    for entry, row in zip(one.entries, results.rows):
        assert entry.evaluation == {}
        assert entry.settings["method"] == "mlp"
        assert set(entry.figures) == {"epsilon", "delta"}
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
