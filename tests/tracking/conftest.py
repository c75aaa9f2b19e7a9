from __future__ import annotations

import dataclasses

import pytest

from hushgraph.methods.model import Model
from reports import fitted

PRIVATE = 73.4210987
"""A figure that nobody may see: an accuracy."""


@pytest.fixture(scope="module")
def model() -> Model:
    """A model whose figures on labels are all the same, so that they are found wherever they go."""
    made = fitted("gap", "node", 4.0)
    made.metrics = {
        "accuracy": {"train": PRIVATE, "val": PRIVATE, "test": PRIVATE},
        "test_balanced_accuracy": PRIVATE,
        "loss": PRIVATE,
        "note": "not private: evaluation",
    }
    made.seconds = {"total": PRIVATE}
    assert dataclasses.is_dataclass(made.certificate)
    return made
