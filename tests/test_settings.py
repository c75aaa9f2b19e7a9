from __future__ import annotations

import pytest

from hushgraph.errors import InputError
from hushgraph.methods.gap import GAP
from hushgraph.registry import METHODS, method_class, model_class
from hushgraph.settings import from_words


def test_words_become_typed_values() -> None:
    read = from_words(GAP, {"hops": "3", "lr": "1e-2", "combine": "sum", "epochs": "none"})
    assert read == {"hops": 3, "lr": 0.01, "combine": "sum", "epochs": None}


def test_all_wrong_words_are_reported_with_advice() -> None:
    with pytest.raises(InputError) as caught:
        from_words(GAP, {"hop": "3", "lr": "fast"})
    assert "did you mean 'hops'" in str(caught.value)
    assert "lr: expected a number; got 'fast'" in str(caught.value)


def test_every_registered_method_exists_and_has_its_own_name() -> None:
    for name in METHODS:
        assert method_class(name).name == name
        assert model_class(name).__name__
    with pytest.raises(InputError, match="did you mean 'gap'"):
        method_class("gapp")
