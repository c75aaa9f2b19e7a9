"""Exact rows under clipped gradients: a hub turns every example round, which is what is charged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.mechanisms.pagerank_gradient import PageRankGradient
from hushgraph.nn.layers import Linear
from hushgraph.nn.weighted import WeightedMean
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import NodeReplace, NodeWithEdges, Unit
from hushgraph.training.config import Training
from matrix_graphs import view_of

ROWS = 6
MECHANISM = PageRankGradient(0.5, 0.5, 4, ROWS - 1, num_rows=ROWS, top=3)


def summed(unit: Unit, planted: bool) -> np.ndarray:
    """The sum over all examples, almost without noise."""
    module = WeightedMean(Linear(1, 2, bias=False))
    nn.init.zeros_(module.scorer.weight)
    view = view_of(MECHANISM._planted(unit, np.array([planted])), MECHANISM, unit)
    return MECHANISM.before_noise(view, NoiseSource.seeded(0), module, torch.arange(ROWS), None, Training(epochs=1))


@pytest.mark.parametrize("unit", [NodeWithEdges(), NodeReplace()], ids=str)
def test_a_hub_moves_the_sum_by_what_is_charged(unit: Unit) -> None:
    moved = float(np.linalg.norm(summed(unit, True) - summed(unit, False)))
    assert 0.99 * MECHANISM.sensitivity(unit) < moved <= MECHANISM.sensitivity(unit)


def test_sources_that_were_not_planned_are_refused() -> None:
    with pytest.raises(InputError, match="6 distinct nodes"):
        MECHANISM.check(None, torch.tensor([0, 1, 2, 3, 4, 4]))
