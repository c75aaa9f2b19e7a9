from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import CalibrationError
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.loss import COARSE_GRID, FINE_GRID, PrivacyLoss
from hushgraph.privacy.units import Relation


@pytest.mark.parametrize(
    ("epsilon", "delta", "hops", "published"),
    [(4.0, 1e-7, 2, 1.8354), (4.0, 1e-8, 2, 1.9736), (4.0, 1e-8, 5, 3.1206), (1.0, 1e-7, 2, 6.617)],
)
def test_the_exact_gaussian_scales_of_the_reference_code(
    epsilon: float, delta: float, hops: int, published: float
) -> None:
    scale = noise_scale(lambda s: events.gaussian(s, hops), Relation.ADD_OR_REMOVE, Budget(epsilon, delta))
    assert scale == pytest.approx(published, abs=5e-4)  # the figures are printed with three or four decimals


@pytest.mark.parametrize(
    ("epsilon", "hops", "published"), [(1.0, 1, 4.9768), (1.0, 2, 7.0382), (1.0, 5, 11.1283), (4.0, 5, 3.0639)]
)
def test_the_renyi_scales_of_the_reference_code(epsilon: float, hops: int, published: float) -> None:
    """The reference accepts an epsilon within 0.001 of its target on either side, so its scale is that loose."""
    budget, relation = Budget(epsilon, 1e-7), Relation.ADD_OR_REMOVE
    renyi = noise_scale(lambda s: events.gaussian(s, hops), relation, budget, accountant="renyi")
    exact = noise_scale(lambda s: events.gaussian(s, hops), relation, budget)
    assert renyi == pytest.approx(published, rel=1.5e-3)
    assert 1.05 < renyi / exact < 1.09


def _node_level(n_train: int, batch: int, epochs: int, hops: int):  # type: ignore[no-untyped-def]
    steps = 2 * epochs * math.ceil(n_train / batch)
    return lambda s: events.composed([events.sampled_gaussian(batch / n_train, s, steps), events.gaussian(s, hops)])


@pytest.mark.parametrize(
    ("n_train", "batch", "hops", "delta", "published"),
    [(19_804, 256, 2, 1e-5, 1.0036), (14_204, 256, 2, 1e-5, 1.038), (87_535, 2_048, 3, 1e-5, 1.2277)],
)
def test_the_node_level_scales_of_the_reference_code(
    n_train: int, batch: int, hops: int, delta: float, published: float
) -> None:
    at = _node_level(n_train, batch, 10, hops)
    scale = noise_scale(at, Relation.NULL, Budget(8.0, delta), accountant="renyi")
    assert scale == pytest.approx(published, rel=3e-3)


def test_the_tight_accountant_needs_less_noise_and_stays_within_budget() -> None:
    at, budget = _node_level(14_204, 256, 10, 2), Budget(8.0, 1e-5)
    tight = noise_scale(at, Relation.NULL, budget)
    assert 0.90 < tight / noise_scale(at, Relation.NULL, budget, accountant="renyi") < 0.97
    realized = PrivacyLoss(at(tight), Relation.NULL).epsilon(1e-5)
    assert 0.995 * 8.0 < realized <= 8.0


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(0.05, 20.0), exponent=st.integers(3, 12), hops=st.integers(1, 8))
def test_a_realized_epsilon_never_exceeds_its_target(epsilon: float, exponent: int, hops: int) -> None:
    budget = Budget(epsilon, 10.0**-exponent)
    scale = noise_scale(lambda s: events.gaussian(s, hops), Relation.NULL, budget)
    realized = PrivacyLoss(events.gaussian(scale, hops), Relation.NULL).epsilon(budget.definite_delta)
    assert realized <= epsilon
    assert realized > 0.999 * epsilon


def test_an_infinite_budget_needs_no_noise() -> None:
    assert noise_scale(lambda s: events.gaussian(s), Relation.NULL, Budget(math.inf, 1e-6)) == 0.0


def test_a_plan_whose_cost_does_not_follow_its_noise_is_an_error_not_zero_noise() -> None:
    with pytest.raises(CalibrationError, match="falls with its noise"):
        noise_scale(lambda s: events.gaussian(0.1), Relation.NULL, Budget(1.0, 1e-6))
    with pytest.raises(CalibrationError, match="does not follow"):
        noise_scale(lambda s: events.gaussian(1e3), Relation.NULL, Budget(1.0, 1e-6))
    with pytest.raises(CalibrationError):
        noise_scale(lambda s: events.gaussian(0.0), Relation.NULL, Budget(1.0, 1e-6))


def test_an_epsilon_that_no_grid_can_tell_from_nothing_is_refused_with_advice() -> None:
    with pytest.raises(CalibrationError, match=r"meets epsilon 1e-06: .* Use a larger epsilon"):
        noise_scale(lambda s: events.sampled_gaussian(0.2, s, 100), Relation.NULL, Budget(1e-6, 1e-8))


@pytest.mark.parametrize("factor", [1.01, 2.0, math.inf])
def test_a_scale_counts_only_if_the_fine_grid_confirms_it(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search runs on coarse grids; where the finest one says more, it goes on there, and may find nothing."""
    honest = PrivacyLoss.epsilon

    def worse(self: PrivacyLoss, delta: float) -> float:
        return honest(self, delta) * (factor if self.grid == FINE_GRID else 1.0)

    def event_at(scale: float) -> events.Event:
        return events.sampled_gaussian(0.1, scale, 10)

    monkeypatch.setattr(PrivacyLoss, "epsilon", worse)
    if factor == math.inf:
        with pytest.raises(CalibrationError, match="no noise scale"):
            noise_scale(event_at, Relation.NULL, Budget(1.0, 1e-6))
        return
    scale = noise_scale(event_at, Relation.NULL, Budget(1.0, 1e-6))
    assert 0.998 < PrivacyLoss(event_at(scale), Relation.NULL).epsilon(1e-6) <= 1.0


@pytest.mark.parametrize("batch", [256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize(("readers", "delta"), [(375_000, 1e-8), (3_750_000, 1e-9)])
def test_a_small_delta_of_a_large_graph_finds_its_noise(batch: int, readers: int, delta: float) -> None:
    """The rounding of many points of a fine grid takes much of such a delta; coarser grids take less."""
    rate = batch / readers

    def event_at(scale: float) -> events.Event:
        return events.composed([events.gaussian(0.4 * scale), events.sampled_gaussian(rate, scale, round(10 / rate))])

    scale = noise_scale(event_at, Relation.NULL, Budget(1.0, delta))
    loss = PrivacyLoss(event_at(scale), Relation.NULL)
    assert 0.998 < loss.epsilon(delta) <= 1.0
    assert loss.epsilon(delta) <= loss.renyi_epsilon(delta)
    assert loss.delta(1.0) <= delta * (1.0 + 1e-9)
    for grid in (COARSE_GRID, 2e-3):
        assert loss.epsilon(delta) <= PrivacyLoss(event_at(scale), Relation.NULL, grid).epsilon(delta)


@pytest.mark.parametrize(("claimed", "true"), [(0.25, 0.36), (1.0, 1.45), (2.0, 2.91), (4.0, 5.89), (8.0, 12.0)])
def test_what_a_directed_edge_epsilon_is_per_friendship(claimed: float, true: float) -> None:
    scale = noise_scale(lambda s: events.gaussian(s), Relation.ADD_OR_REMOVE, Budget(claimed, 1e-7))
    friendship = PrivacyLoss(events.gaussian(scale / math.sqrt(2)), Relation.ADD_OR_REMOVE)
    assert friendship.epsilon(1e-7) == pytest.approx(true, abs=0.015)
