from __future__ import annotations

import json

import pytest
from dp_accounting import dp_event as dpa

from hushgraph.errors import InputError, LedgerError
from hushgraph.privacy import events

EVENTS = [
    events.gaussian(1.5, 3),
    events.gaussian(0.0),
    events.composed([]),
    events.composed([events.gaussian(2.0), events.sampled_gaussian(0.1, 1.0, 7)]),
    dpa.LaplaceDpEvent(2.0),
    dpa.RandomizedResponseDpEvent(0.3, 4),
    dpa.MixtureOfGaussiansDpEvent(1.0, [0.0, 2.0], [0.9, 0.1]),
    dpa.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(1.0), 10.0, 1.0),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_json(event: events.Event) -> None:
    assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event


def test_flatten_merges_equal_leaves() -> None:
    event = events.composed([events.gaussian(2.0, 3), events.repeated(events.gaussian(2.0), 4), events.gaussian(1.0)])
    assert dict(events.flatten(event)) == {dpa.GaussianDpEvent(2.0): 7, dpa.GaussianDpEvent(1.0): 1}


@pytest.mark.parametrize("values", [{}, {"type": "Unknown"}, {"type": "Gaussian"}, {"type": "NoOp", "extra": 1}])
def test_an_unreadable_event_is_never_guessed(values: dict[str, object]) -> None:
    with pytest.raises(LedgerError):
        events.from_json(values)


def test_an_event_without_a_ledger_form_is_refused() -> None:
    with pytest.raises(InputError, match="no ledger form"):
        events.to_json(dpa.UnsupportedDpEvent())


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_sample_rates_are_probabilities(rate: float) -> None:
    with pytest.raises(InputError, match="sample rate"):
        events.sampled_gaussian(rate, 1.0, 1)
