from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.methods.gap import GAP
from hushgraph.settings import Settings, from_words, setting


@dataclass(frozen=True)
class Toy(Settings):
    hops: int = setting(2, least=1)
    share: float = setting(0.5, above=0, below=1)
    kind: str = setting("sum", among=("sum", "mean"))
    epochs: int | None = setting(None, least=1)
    quick: bool = False

    aliases = {"depth": "hops"}


def test_words_become_typed_values() -> None:
    read = from_words(GAP, {"hops": "3", "lr": "1e-2", "combine": "sum", "epochs": "none"})
    assert read == {"hops": 3, "lr": 0.01, "combine": "sum", "epochs": None}
    assert Toy.from_words({"quick": "True", "epochs": "auto"}) == {"quick": True, "epochs": None}


def test_all_wrong_words_are_reported_with_advice() -> None:
    with pytest.raises(InputError) as caught:
        from_words(GAP, {"hop": "3", "lr": "fast"})
    assert "did you mean 'hops'" in str(caught.value)
    assert "lr: expected a number; got 'fast'" in str(caught.value)
    with pytest.raises(InputError, match="quick: expected true or false; got '1'"):
        Toy.from_words({"quick": "1"})
    with pytest.raises(InputError, match=r"epochs: expected a whole number or none; got '2\.5'"):
        Toy.from_words({"epochs": "2.5"})


def test_older_words_are_understood() -> None:
    assert Toy.from_words({"depth": "4"}) == {"hops": 4}
    assert from_words(GAP, {"hidden": "8"}) == {"hidden_channels": 8}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hops": 0}, "hops: expected at least 1; got 0"),
        ({"share": 0.0}, "share: expected above 0; got 0.0"),
        ({"share": 1.0}, "share: expected below 1; got 1.0"),
        ({"share": math.nan}, "share: expected a number; got nan"),
        ({"hops": "2"}, "hops: expected a number; got '2'"),
        ({"hops": True}, "hops: expected a number; got True"),
        ({"kind": "max"}, "kind: got 'max'; did you mean 'mean'|kind: got 'max'; known: mean, sum"),
    ],
)
def test_values_outside_their_constraint_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Toy(**values)  # type: ignore[arg-type]


def test_everything_wrong_is_said_at_once_and_none_is_always_allowed() -> None:
    with pytest.raises(InputError) as caught:
        Toy(hops=0, share=2.0, kind="x", epochs=0)
    assert len(caught.value.problems) == 4
    assert Toy(epochs=None).as_dict() == {"hops": 2, "share": 0.5, "kind": "sum", "epochs": None, "quick": False}


@pytest.mark.parametrize("name", registry.names("methods"))
def test_the_settings_of_every_method_read_back_and_their_aliases_lead_somewhere(name: str) -> None:
    found = registry.load("methods", name)
    fields = {field.name for field in dataclasses.fields(found)}
    assert found(**found().as_dict()) == found()
    assert set(found.aliases.values()) <= fields
    assert not set(found.aliases) & fields


def test_none_is_a_value_only_where_it_is_declared() -> None:
    import hushgraph as hg

    assert hg.GAP(epochs=None).epochs is None
    with pytest.raises(InputError, match="noise_floor: expected a number; got None"):
        hg.Chorus(noise_floor=None)  # type: ignore[arg-type]


def test_an_argument_that_is_no_setting_is_told_by_name() -> None:
    import hushgraph as hg

    with pytest.raises(InputError, match=r"unknown setting 'hop' of GAP; did you mean 'hops'\?"):
        hg.GAP(hop=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"unknown setting 'hidden' of GAP; did you mean 'hidden_channels'\?"):
        hg.GAP(hidden=3)  # type: ignore[call-arg]


def test_numbers_of_numpy_become_plain_ones() -> None:
    made = hg.GAP(hops=np.int64(3), lr=np.float32(0.5))
    assert (type(made.hops), made.hops, type(made.lr), made.lr) == (int, 3, float, 0.5)
    with pytest.raises(InputError, match="hops: expected at least 1; got 0"):
        hg.GAP(hops=np.int64(0))
