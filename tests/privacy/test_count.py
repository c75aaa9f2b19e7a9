from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import units
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.whole_numbers import discrete_laplace_std


@given(st.floats(1e-4, 50.0), st.integers(1, 500))
def test_within_meets_epsilon_and_a_smaller_scale_would_not(epsilon: float, cap: int) -> None:
    unit = units.Node()
    stage = CountStage.within("count", epsilon, unit, cap)
    assert stage.epsilon(unit) <= epsilon
    assert stage.scale == 1 or cap / (stage.scale - 1) > epsilon
    loss = PrivacyLoss(stage.event(unit), unit.relation)
    assert loss.epsilon(1e-9) == pytest.approx(stage.epsilon(unit))
    assert loss.accountant == "sum of pure epsilons"


def test_every_unit_has_its_own_bound_and_others_are_refused() -> None:
    stage = CountStage.within("count", 0.1, units.Node(), 10)
    expected = {
        units.DirectedEdge(): 1,
        units.UndirectedEdge(): 2,
        units.Node(max_degree=3): 10,
        units.NodeReplace(max_degree=3): 10,
        units.NodePromise(max_degree=3): 6,
        units.NodePromise(max_degree=30): 40,
    }
    assert {unit: stage.sensitivity(unit) for unit in expected} == expected
    for unit in (units.Record(), units.Local()):
        with pytest.raises(UnprovenError, match="count of edges"):
            stage.event(unit)

    class Stranger(units.Node):
        name = "stranger"

    with pytest.raises(UnprovenError, match="stranger"):
        stage.sensitivity(Stranger())


def test_the_standard_deviation_is_that_of_the_law() -> None:
    for scale in (1, 2, 40):
        k = np.arange(-60 * scale, 60 * scale + 1)
        law = np.exp(-np.abs(k) / scale)
        assert discrete_laplace_std(scale) == pytest.approx(math.sqrt(np.sum(law * k**2.0) / law.sum()))


def test_no_noise_and_a_false_scale_are_refused() -> None:
    good = CountStage.within("count", 0.1, units.Node(), 10)
    for change in ({"scale": 0}, {"scale": 2.5}, {"cap": 0}, {"count": 0}, {"std": 0.0}, {"scale": good.scale + 1}):
        with pytest.raises(InputError):
            dataclasses.replace(good, **change)
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            CountStage.within("count", epsilon, units.Node(), 10)


def test_what_a_plan_shows_of_it() -> None:
    shown = CountStage.within("count", 0.1, units.Node(), 10).as_dict(units.Node())
    assert shown["mechanism"] == "noisy count"
    assert (shown["scale"], shown["cap"], shown["epsilon"], shown["sensitivity"]) == (100, 10, 0.1, 10.0)
