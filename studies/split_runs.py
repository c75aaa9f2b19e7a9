"""Repetitions as some publications have them: every seed draws a split of its own, beside noise and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hushgraph.study.experiments.fit import Fit
from hushgraph.study.lab import Lab


class OwnSplit(Fit):
    """As `fit`, on the split that the seed draws."""

    def __call__(self, lab: Lab, **settings: Any) -> dict[str, float | None]:
        """Every measure of one run."""
        own = Lab(replace(lab.cell, split_seed=lab.cell.seed), lab.ledger_folder, lab.study, lab.group)
        found = super().__call__(own, **settings)
        lab.facts |= own.facts
        return found


fitted = OwnSplit()
