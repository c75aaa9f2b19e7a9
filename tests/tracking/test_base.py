from __future__ import annotations

import json
import math

import pytest

import hushgraph as hg
from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.methods.model import Model
from hushgraph.tracking.base import EVALUATION, Entry, Tracker, entry_of, flat, tracker_of

from .conftest import PRIVATE


class Recorder(Tracker):
    name = "recorder"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.entries: list[Entry] = []

    def log(self, entry: Entry) -> None:
        self.entries.append(entry)


def test_what_is_sent_is_the_certificate_and_the_settings(model: Model) -> None:
    entry, certificate = entry_of(model), model.certificate
    assert json.loads(entry.certificate)["run"] == certificate.run
    assert entry.figures["epsilon"] == certificate.epsilon
    assert entry.figures["delta"] == certificate.delta
    assert entry.figures["dataset_epsilon"] == certificate.total.epsilon
    for charge in certificate.charges:
        assert entry.figures[f"scale/{charge.stage}"] == charge.scale
    assert entry.settings["unit"] == "node"
    assert entry.settings["set_hidden_channels"] == 4
    assert entry.settings["private"] is True


def test_no_private_figure_is_in_it(model: Model) -> None:
    assert str(PRIVATE)[:6] not in repr(entry_of(model))
    assert entry_of(model).evaluation == {}


def test_evaluation_is_sent_when_asked_for_under_its_name(model: Model) -> None:
    entry = entry_of(model, evaluation=True)
    assert entry.evaluation["accuracy_test"] == PRIVATE
    assert entry.numbers[f"{EVALUATION}/accuracy_test"] == PRIVATE
    assert all(name.startswith(EVALUATION) for name, value in entry.numbers.items() if value == PRIVATE)
    assert "not_private" in EVALUATION


@pytest.mark.parametrize("name", ["loss", "train_loss", "gradient_norm", "accuracy", "val/accuracy", "scale", "scale/"])
def test_a_private_diagnostic_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="never tracked"):
        Entry("run", {}, {"epsilon": 1.0, name: 0.5}, "{}")


def test_nothing_is_tracked_while_a_run_goes_on(model: Model) -> None:
    """A tracker has one function, for a finished run: nothing of `fit` takes one."""
    import inspect

    assert "track" not in " ".join(inspect.signature(hg.Method.fit).parameters)
    assert [name for name in vars(Tracker) if getattr(vars(Tracker)[name], "__isabstractmethod__", False)] == ["log"]


def test_track_hands_one_entry_to_every_tracker(model: Model) -> None:
    one, two = Recorder("a"), Recorder("b")
    hg.track(model, [one, two])
    hg.track(model, two, evaluation=True)
    assert one.entries == [entry_of(model)]
    assert two.entries == [entry_of(model), entry_of(model, evaluation=True)]


def test_a_tracker_needs_a_name_and_a_place(model: Model) -> None:
    with pytest.raises(InputError, match="did you mean 'tensorboard'"):
        tracker_of("tensorbord:x")
    for name in registry.names("trackers"):
        with pytest.raises(InputError, match=f"expected {name}:PLACE"):
            tracker_of(name)


def test_others_bring_their_own(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setitem(registry._KNOWN["trackers"], "recorder", Recorder)
    assert Recorder.kind == "trackers"
    found = tracker_of("recorder:here:and:there")
    assert found.place == "here:and:there"


def test_settings_are_words_and_numbers() -> None:
    found = flat({"a": None, "b": 1, "c": True, "d": [1, 2], "e": "x" * 9999, "f": math.inf})
    assert found == {"b": 1, "c": True, "d": "[1, 2]", "e": "x" * 500, "f": "inf"}


def test_infinity_is_no_figure() -> None:
    entry = Entry("run", {}, {"epsilon": math.inf, "delta": 0.0}, "{}")
    assert entry.numbers == {"delta": 0.0}
