"""One node in several examples: how far it moves a sum, and whom it may not move."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.nn.layers import Linear
from hushgraph.nn.weighted import WeightedMean
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.units import NodeReplace, NodeWithEdges, Unit
from hushgraph.training.config import Training
from matrix_graphs import view_of

UNITS = [NodeWithEdges(), NodeReplace()]


def sums(mechanism: WeightedGradient, unit: Unit, planted: bool, support: int | None = None) -> np.ndarray:
    """The sum over all examples of three canaries, all planted or none, almost without noise."""
    reading = mechanism if support is None else replace(mechanism, max_support=support)
    graph, rows = reading._planted(unit, np.full(3, planted)), reading._canary_rows(3)
    module = WeightedMean(Linear(3, 2, bias=False))
    nn.init.zeros_(module.scorer.weight)
    view = view_of(graph, mechanism, unit)
    return mechanism.before_noise(view, NoiseSource.seeded(0), copy.deepcopy(module), rows, Training(epochs=1))


@pytest.mark.parametrize("support", [0, 1, 5])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_one_record_turns_round_every_example_that_is_charged_for(unit: Unit, support: int) -> None:
    mechanism = WeightedGradient(0.5, 0.25, 4, max_support=support)
    moved = float(np.linalg.norm(sums(mechanism, unit, True) - sums(mechanism, unit, False)))
    bound = np.sqrt(3) * mechanism.sensitivity(unit)  # three canaries, at right angles
    assert 0.99 * bound < moved <= bound


def test_a_row_more_than_the_cap_moves_the_sum_beyond_the_bound_and_is_refused() -> None:
    mechanism = WeightedGradient(0.5, 0.25, 4, max_support=2)
    with pytest.raises(InputError, match="support"):
        sums(mechanism, UNITS[0], True, support=3)

    @dataclass(frozen=True)
    class Unchecked(WeightedGradient):
        def check(self, *inputs: object) -> None:
            """Broken on purpose."""

    broken = Unchecked(0.5, 0.25, 4, max_support=2)
    moved = np.linalg.norm(sums(broken, UNITS[0], True, 3) - sums(broken, UNITS[0], False, 3)) / np.sqrt(3)
    assert moved > 1.3 * broken.sensitivity(UNITS[0])


@pytest.mark.parametrize("sources", [[0, 1, 1], [0, 1, -1]])
def test_a_source_has_one_example(sources: list[int]) -> None:
    """Two rows of one source would make its own example count twice."""
    own = torch.tensor(sources)
    rows = TopRows(own, own.unsqueeze(1), torch.ones(3, 1))
    with pytest.raises(InputError, match="distinct nodes"):
        WeightedGradient().check(None, rows)


def test_the_weight_of_a_column_bounds_nothing() -> None:
    """A node that has next to no weight in many rows turns all their clipped gradients, if it is loud enough."""
    mechanism = WeightedGradient(1.0, 1.0, 1, max_support=34)
    graph = mechanism._planted(UNITS[0], np.array([True]))
    rows = mechanism._canary_rows(1)
    quiet = TopRows(rows.sources, rows.columns, torch.tensor([1.0 - 1e-3, 1e-3]).expand(35, 2))
    graph.features.values[0] = 1e8
    module = WeightedMean(Linear(1, 2, bias=False))
    nn.init.zeros_(module.scorer.weight)
    found = []
    for present in (True, False):
        held = graph if present else mechanism._planted(UNITS[0], np.array([False]))
        view = view_of(held, mechanism, UNITS[0])
        found.append(mechanism.before_noise(view, NoiseSource.seeded(0), module, quiet, Training(epochs=1)))
    assert float(quiet.weights[1:, 1].sum()) < 0.04
    assert np.linalg.norm(found[0] - found[1]) > 60.0


def test_what_is_beyond_all_protection_is_not_priced() -> None:
    mechanism = WeightedGradient(1.0, 0.8, 400, max_support=69)
    assert mechanism.event(UNITS[0], 4.0) == events.non_private()
    assert mechanism.event(UNITS[0], 400.0) != events.non_private()
