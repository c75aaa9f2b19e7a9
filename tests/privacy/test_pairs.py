from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import units
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.pairs import PairStage
from hushgraph.privacy.whole_numbers import discrete_laplace_std


@given(st.floats(1e-4, 50.0), st.sampled_from([units.Node(), units.NodeReplace()]))
def test_within_meets_epsilon_and_a_smaller_scale_would_not(epsilon: float, unit: units.Unit) -> None:
    stage = PairStage.within("pairs", epsilon, unit)
    assert stage.epsilon(unit) <= epsilon
    assert stage.scale == 1 or stage.sensitivity(unit) / (stage.scale - 1) > epsilon
    assert PrivacyLoss(stage.event(unit), unit.relation).epsilon(1e-9) == pytest.approx(stage.epsilon(unit))


def test_units_without_a_bound_are_refused() -> None:
    stage = PairStage.within("pairs", 0.1, units.Node())
    assert (stage.sensitivity(units.Node()), stage.sensitivity(units.NodeReplace())) == (3.0, 5.0)
    for unit in (units.NodePromise(max_degree=3), units.DirectedEdge(), units.UndirectedEdge(), units.Local()):
        with pytest.raises(UnprovenError, match="counts of pairs"):
            stage.event(unit)


def test_no_noise_and_a_false_scale_are_refused() -> None:
    for epsilon in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="epsilon"):
            PairStage.within("pairs", epsilon, units.Node())
    with pytest.raises(InputError, match="std"):
        PairStage("pairs", 1, 0.0, 4)
    with pytest.raises(InputError, match="scale"):
        PairStage("pairs", 1, discrete_laplace_std(1), 0)


def test_the_stage_as_json() -> None:
    shown = PairStage.within("pairs", 0.3, units.Node()).as_dict(units.Node())
    assert (shown["mechanism"], shown["sensitivity"], shown["scale"]) == ("noisy count of pairs", 3.0, 10)
    assert shown["epsilon"] == pytest.approx(0.3)
