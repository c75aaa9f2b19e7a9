"""The two-sided mixture: against other implementations, against integration, and the lemma on random vectors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from theorem1 import one_sided_pld, theorem1_epsilon

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import events, mixture
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.loss import PrivacyLoss, _composed
from hushgraph.privacy.mixture import (
    TwoSidedMixture,
    group_pld,
    occurrence_bound,
)
from hushgraph.privacy.units import Relation

GRID = 1e-3


@pytest.mark.parametrize(
    ("before", "after", "relation"),
    [(1, 1, NeighboringRelation.REPLACE_ONE), (1, 0, NeighboringRelation.ADD_OR_REMOVE_ONE)],
)
def test_one_example_is_the_usual_dp_sgd_step(before: int, after: int, relation: NeighboringRelation) -> None:
    ours = group_pld(1.1, 0.05, before, after, GRID)
    known = pld_lib.from_gaussian_mechanism(
        1.1, sampling_prob=0.05, value_discretization_interval=GRID, neighboring_relation=relation
    )
    for steps in (1, 200):
        a, b = ours.self_compose(steps), known.self_compose(steps)
        for delta in (1e-3, 1e-7):
            assert a.get_epsilon_for_delta(delta) == pytest.approx(b.get_epsilon_for_delta(delta), rel=1e-6)


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps"),
    [(1.0, 0.013, 1120), (0.4, 0.001, 50), (3.0, 0.2, 500), (0.6, 1.0, 3), (9.0, 0.9, 40)],
)
def test_what_is_charged_for_a_sampled_step_is_what_the_library_computes(
    multiplier: float, rate: float, steps: int
) -> None:
    event = events.sampled_gaussian(rate, multiplier, steps)

    def by_library(grid: float, delta: float) -> tuple[float, float]:
        known = pld_lib.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=grid)
        rounding = _composed(*PrivacyLoss(event, Relation.NULL, grid)._key).error
        assert rounding < 2e-9
        return known.self_compose(steps).get_epsilon_for_delta(delta - rounding), rounding

    for delta in (1e-2, 1e-5, 1e-8):
        expected, rounding = by_library(GRID, delta)
        for grid in (2e-3, 4e-3):
            if rounding > 0.1 * delta:
                found, rounding = by_library(grid, delta)
                expected = min(expected, found)
        assert PrivacyLoss(event, Relation.NULL, GRID).epsilon(delta) == pytest.approx(expected, rel=1e-5)


def test_both_directions_of_a_step_are_in_its_distribution() -> None:
    """Adding and removing one example are not alike: the costlier one counts at every epsilon."""
    pair = TwoSidedMixture(0.6, 0.2, 1, 0)
    both = group_pld(0.6, 0.2, 1, 0, GRID)
    at = np.array([0.05, 0.1, 0.2, 1.0])
    one, other = pair.delta(at), pair.swapped.delta(at)
    assert (one != other).all()
    for epsilon, needed in zip(at, np.maximum(one, other), strict=True):
        assert needed * (1.0 - 1e-9) <= both.get_delta_for_epsilon(float(epsilon)) <= needed * 1.01
    swapped = group_pld(0.6, 0.2, 0, 1, GRID)
    assert swapped.self_compose(5).get_epsilon_for_delta(1e-5) == pytest.approx(
        both.self_compose(5).get_epsilon_for_delta(1e-5), rel=1e-9
    )


def test_nothing_after_is_the_mixture_of_gaussians() -> None:
    probabilities = stats.binom.pmf(np.arange(6), 5, 0.2)
    known = pld_lib.from_mixture_gaussian_mechanism(
        3.0, list(range(6)), list(probabilities), value_discretization_interval=0.01
    )
    ours = group_pld(3.0, 0.2, 5, 0, 0.01)
    for delta in (1e-2, 1e-6):
        expected = known.self_compose(30).get_epsilon_for_delta(delta)
        assert ours.self_compose(30).get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("before", "after"), [(4, 3), (3, 4), (7, 7), (0, 3)])
def test_delta_is_the_integral_of_the_positive_part(before: int, after: int) -> None:
    pair, epsilons = TwoSidedMixture(2.0, 0.3, before, after), np.array([-1.0, -0.1, 0.0, 0.4, 1.5])

    weights = {count: stats.binom.pmf(np.arange(count + 1), count, 0.3) for count in (before, after)}

    def density(x: float, count: int, sign: int) -> float:
        shape = np.exp(-((x - sign * np.arange(count + 1)) ** 2) / 8) / math.sqrt(8 * math.pi)
        return float(weights[count] @ shape)

    def positive(x: float, order: float) -> float:
        return max(0.0, density(x, before, 1) - order * density(x, after, -1))

    for epsilon, delta in zip(epsilons, pair.delta(epsilons)):
        integral, _ = integrate.quad(positive, -30, 40, args=(math.exp(epsilon),), limit=400)
        assert delta == pytest.approx(integral, abs=1e-8)


def test_the_grid_never_underestimates() -> None:
    pair = TwoSidedMixture(4.0, 0.2, 5, 4)
    epsilons = np.linspace(-0.8, 0.8, 97)
    rough = pld_lib.PrivacyLossDistribution(pair.pmf(0.01))
    assert (np.array([rough.get_delta_for_epsilon(e) for e in epsilons]) >= pair.delta(epsilons) - 1e-12).all()


vectors = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2 * math.pi)), min_size=3, max_size=3)


@settings(max_examples=15, deadline=None)
@given(vectors, vectors, st.floats(0.05, 0.95), st.floats(0.6, 2.0), st.floats(0.3, 4.0))
def test_no_vectors_are_told_apart_better_than_the_claimed_pair(
    old: list[tuple[float, float]], new: list[tuple[float, float]], rate: float, std: float, order: float
) -> None:
    """The lemma of docs/proofs/mixture.md in the plane, by quadrature, at orders above and below one."""
    axis = np.linspace(-14, 14, 281)
    x, y = np.meshgrid(axis, axis)

    def density(polar: list[tuple[float, float]]) -> np.ndarray:
        points = [(r * math.cos(a), r * math.sin(a)) for r, a in polar]
        total = np.zeros_like(x)
        for chosen in itertools.product((0, 1), repeat=len(points)):
            weight = math.prod(rate if c else 1 - rate for c in chosen)
            cx, cy = (sum(c * p[k] for c, p in zip(chosen, points)) for k in (0, 1))
            total += weight * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * std**2))
        return total / (2 * math.pi * std**2)

    cell = (axis[1] - axis[0]) ** 2
    realized = np.maximum(density(old) - order * density(new), 0.0).sum() * cell
    claimed = TwoSidedMixture(std, rate, 3, 3).delta(np.array([math.log(order)]))[0]
    assert realized <= claimed + 2e-4


def test_the_one_sided_mixture_is_not_a_pair_that_composes() -> None:
    """In the reversed order it sees nothing beyond (1 - q)^-d, where replaced examples still differ."""
    epsilon = np.array([-4 * math.log1p(-0.05) + 0.01])
    one_sided = TwoSidedMixture(2.0 / 2, 0.05, 4, 0)  # shifts of 2 with noise 2 are shifts of 1 with noise 1
    assert one_sided.swapped.delta(epsilon)[0] < 1e-9
    assert TwoSidedMixture(2.0, 0.05, 4, 4).delta(epsilon)[0] > 1e-4


SETTINGS = [  # train nodes, K, r, batch, noise multiplier, steps; one-sided without replacement at most
    (90_941, 7, 1, 10_000, 2.0, 488, 6.13),
    (90_941, 7, 1, 20_000, 4.0, 698, 7.52),
    (90_941, 3, 2, 20_000, 2.0, 193, 8.0),
    (196_615, 10, 1, 10_000, 1.0, 392, 5.14),
    (153_932, 10, 1, 10_000, 1.0, 282, 5.58),
]


@pytest.mark.parametrize(("train", "k", "r", "batch", "multiplier", "steps", "most"), SETTINGS)
def test_the_settings_of_the_paper_cost_less_than_theorem_1_says(
    train: int, k: int, r: int, batch: int, multiplier: float, steps: int, most: float
) -> None:
    touched, delta = occurrence_bound(k, r), 1 / (10 * train)
    std = multiplier * 2 * touched
    theorem = theorem1_epsilon(
        noise_std=std, touched=touched, train_nodes=train, batch_size=batch, steps=steps, delta=delta
    )
    assert theorem == pytest.approx(10.0, abs=0.05)
    charged = group_pld(std, batch / train, touched, touched - 1, GRID).self_compose(steps)
    all_replaced = group_pld(std, batch / train, touched, touched, GRID).self_compose(steps)
    weights = stats.hypergeom.pmf(np.arange(touched + 1), train, touched, batch)
    one_sided = one_sided_pld(std, weights, 1e-3).self_compose(steps).get_epsilon_for_delta(delta)
    assert charged.get_epsilon_for_delta(delta) < all_replaced.get_epsilon_for_delta(delta) < one_sided <= most


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 15), st.floats(0.01, 0.5), st.floats(0.8, 4.0), st.integers(1, 200))
def test_never_looser_than_theorem_1(touched: int, rate: float, multiplier: float, steps: int) -> None:
    train = 2_000
    batch = max(1, round(rate * train))
    std = multiplier * 2 * touched
    theorem = theorem1_epsilon(
        noise_std=std, touched=touched, train_nodes=train, batch_size=batch, steps=steps, delta=1e-5
    )
    ours = group_pld(std, batch / train, touched, touched, GRID).self_compose(steps).get_epsilon_for_delta(1e-5)
    # Binomial counts (ours) spread a little more than hypergeometric ones (theirs): the margin is for that.
    assert ours <= theorem * 1.001 + 1e-3


def test_more_touched_examples_cost_more() -> None:
    costs = [group_pld(20.0, 0.1, d, d - 1, GRID).self_compose(100).get_epsilon_for_delta(1e-5) for d in (1, 2, 5, 9)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1] / 3


def test_occurrence_bound() -> None:
    assert [occurrence_bound(7, 1), occurrence_bound(3, 2), occurrence_bound(2, 3), occurrence_bound(1, 3)] == [
        8,
        13,
        15,
        4,
    ]
    with pytest.raises(InputError):
        occurrence_bound(-1, 2)


def test_the_event_survives_the_ledger_and_has_no_renyi_route() -> None:
    event = events.sampled_group(0.1, 5.0, 4, 3, 20)
    assert events.from_json(events.to_json(event)) == event
    loss = PrivacyLoss(event, Relation.NULL)
    assert loss.accountant == "PLD"
    direct = group_pld(5.0, 0.1, 4, 3, loss.grid).self_compose(20).get_epsilon_for_delta(1e-5)
    assert loss.epsilon(1e-5) == pytest.approx(direct)
    with pytest.raises(UnprovenError):
        loss.renyi_epsilon(1e-5)
    assert not PrivacyLoss(events.sampled_group(0.1, 0.0, 4, 3, 20), Relation.NULL).is_private


def test_calibration_to_epsilon_and_to_a_number_of_steps() -> None:
    def at(scale: float, steps: int = 50) -> events.Event:
        return events.sampled_group(0.1, 15.0 * scale, 8, 7, steps)

    scale = noise_scale(at, Relation.NULL, Budget(4.0, 1e-5))
    assert 3.99 < PrivacyLoss(at(scale), Relation.NULL).epsilon(1e-5) <= 4.0
    assert PrivacyLoss(at(scale, 51), Relation.NULL).epsilon(1e-5) > 4.0


@pytest.mark.parametrize("bad", [(0.0, 0.1, 1, 1), (math.nan, 0.1, 1, 1), (1.0, 0.0, 1, 1), (1.0, 0.1, 0, 0)])
def test_impossible_mixtures_are_refused(bad: tuple[float, float, int, int]) -> None:
    with pytest.raises(InputError):
        TwoSidedMixture(*bad)


@pytest.mark.parametrize("rate", [1e-4, 0.3, 1.0])
def test_the_logarithms_of_binomial_weights_are_those_of_scipy(rate: float) -> None:
    assert np.array_equal(mixture._log_binomial(7, rate), stats.binom.logpmf(np.arange(8), 7, rate))
