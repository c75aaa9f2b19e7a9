"""Experiments that need no graph, for tests of the study runner."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hushgraph.errors import UnprovenError
from hushgraph.study.axes import Needs
from hushgraph.study.lab import Lab

PRIVATE_METRIC, PRIVATE_FACT = 73.4210987, 41.9876543
"""What `loose` computes on its data without paying for it."""


def noisy(lab: Lab, *, size: float = 1.0, pause: float = 0.0, log: str = "") -> dict[str, float | None]:
    """A number that follows from the cell; every start is written to the file `log`."""
    if log:
        with Path(log).open("a") as file:
            file.write(f"{size:g} {lab.cell.seed}\n")
    time.sleep(pause)
    return {"value": 10.0 * size + lab.cell.seed, "other": -size}


def fails(lab: Lab, *, how: str = "error") -> dict[str, float | None]:
    """Ends in one of the bad ways."""
    if how == "error":
        raise ZeroDivisionError("a bug")
    if how == "refused":
        raise UnprovenError("no proof")
    if how == "dies":
        os._exit(9)
    return {"value": 1.0}


class _Loose:
    """An experiment that notes more than it may tell: one of its metrics is released, the other is a loss."""

    needs = Needs()
    released = ("noisy_count",)

    def __call__(self, lab: Lab) -> dict[str, float | None]:
        lab.facts |= {"epsilon": 1.0, "largest_gradient": PRIVATE_FACT}
        return {"noisy_count": 12.5, "loss": PRIVATE_METRIC}


loose = _Loose()
