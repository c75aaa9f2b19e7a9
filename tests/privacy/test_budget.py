from __future__ import annotations

import math

import pytest

from hushgraph.errors import InputError
from hushgraph.privacy.budget import Budget, default_delta


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, True, "1"])
def test_epsilon_must_be_positive(epsilon: object) -> None:
    with pytest.raises(InputError, match="epsilon"):
        Budget(epsilon, 1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, 2])
def test_delta_must_be_inside_zero_and_one(delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        Budget(1.0, delta)


def test_both_problems_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        Budget(0.0, 1.0)
    assert len(caught.value.problems) == 2


def test_a_delta_of_one_over_n_is_refused_and_a_smaller_one_is_not() -> None:
    with pytest.raises(InputError, match="1/1000"):
        Budget(1.0, 1e-3).for_units(1000)
    assert Budget(1.0, 0.9e-3).for_units(1000).delta == 0.9e-3


@pytest.mark.parametrize(("units", "delta"), [(999, 1e-4), (1000, 1e-5), (8000, 1e-5), (150_000, 1e-7), (1, 1e-2)])
def test_the_default_is_the_largest_power_of_ten_below_a_tenth_of_one_over_n(units: int, delta: float) -> None:
    assert default_delta(units) == delta
    assert delta < 1 / (10 * units) <= 10 * delta
    assert Budget(1.0).for_units(units).delta == delta
