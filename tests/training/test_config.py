from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hushgraph.errors import InputError
from hushgraph.training import Training


def test_the_usual_values() -> None:
    training = Training(10)
    assert (training.lr, training.optimizer, training.batch_size, training.average_last) == (0.01, "adam", None, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        training.lr = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"epochs": -1}, "epochs"),
        ({"lr": 0.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"optimizer": "adm"}, "adam"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"batch_size": 0}, "batch_size"),
        ({"best_by": "luck"}, "best_by"),
        ({"patience": 0}, "patience"),
        ({"average_last": 1.5}, "average_last"),
        ({"average_last": math.nan}, "average_last"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=name):
        Training(**{"epochs": 1, **wrong})


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InputError, match="3 problems"):
        Training(-1, lr=-1.0, patience=0)
