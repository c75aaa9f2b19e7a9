"""What labels cost for the votes at hand, against the exact law of labels on all votes of a few teachers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from hushgraph.privacy import leads
from hushgraph.privacy.leads import epsilon_of_labels, for_all_votes, label_law, of_lead, of_sum

ORDERS = [1.05, 1.5, 2.0, 4.0, 9.0, 32.0]
TINY = [(3, 2), (5, 2), (5, 3), (8, 3), (40, 2)]
NOISES = [0.3, 0.6, 1.0, 2.5, 7.0]


def histograms(teachers: int, classes: int) -> Iterator[tuple[int, ...]]:
    for head in itertools.product(range(teachers + 1), repeat=classes - 1):
        if sum(head) <= teachers:
            yield (*head, teachers - sum(head))


def neighbors(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for giver, taker in itertools.permutations(range(len(counts)), 2):
        if counts[giver]:
            moved = list(counts)
            moved[giver] -= 1
            moved[taker] += 1
            yield tuple(moved)


def lead(counts: tuple[int, ...]) -> int:
    first, second, *_ = sorted(counts, reverse=True)
    return first - second


def divergence(law: np.ndarray, other: np.ndarray, order: float) -> float:
    seen = law > 1e-250
    logs = order * np.log(law[seen]) + (1.0 - order) * np.log(other[seen])
    return float(np.logaddexp.reduce(logs)) / (order - 1.0)


@pytest.mark.parametrize(("teachers", "classes"), TINY)
@pytest.mark.parametrize("noise", NOISES)
def test_no_neighbor_is_further_away_in_either_direction(teachers: int, classes: int, noise: float) -> None:
    laws = {counts: label_law(np.array(counts), noise) for counts in histograms(teachers, classes)}
    for counts, law in laws.items():
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        for order in ORDERS:
            bound = float(of_lead(np.array(lead(counts)), classes, noise, order))
            assert bound <= for_all_votes(noise, order)
            for other in neighbors(counts):
                there, back = (divergence(*pair, order) for pair in ((law, laws[other]), (laws[other], law)))
                assert max(there, back) <= bound + 1e-9


def test_votes_that_agree_cost_far_less_and_close_votes_all_of_it() -> None:
    found = of_lead(np.array([0, 60, 250]), 10, 26.2, 7.0)
    assert found[0] == found[1] == for_all_votes(26.2, 7.0)
    assert found[2] < 1e-6 * found[0]


def test_bounds_fall_as_leads_grow() -> None:
    for noise, order in itertools.product([0.3, 2.0, 26.2, 80.0], ORDERS):
        assert bool((np.diff(of_lead(np.arange(251), 10, noise, order)) <= 0.0).all())


def test_without_room_for_the_other_of_the_pair_the_bound_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead moves by 2: a bound that takes it for the same on both sides is too small for some pair."""

    def as_it_is(counts: tuple[int, ...], order: float) -> float:
        return float(of_lead(np.array(lead(counts) + 3), 2, 1.0, order))

    laws = {counts: label_law(np.array(counts), 1.0) for counts in histograms(9, 2)}
    broken = [
        divergence(laws[other], law, order) > as_it_is(counts, order) + 1e-9
        for counts, law in laws.items()
        for other in neighbors(counts)
        for order in ORDERS
    ]
    assert any(broken)


@pytest.mark.parametrize(("teachers", "classes", "low"), [(3, 2, 1), (4, 3, 1), (5, 2, 2)])
@pytest.mark.parametrize("noise", [0.3, 0.8])
def test_a_sum_of_leads_bounds_the_sum_of_costs(teachers: int, classes: int, low: int, noise: float) -> None:
    kinds = sorted({lead(counts) for counts in histograms(teachers, classes)})
    for order in ORDERS:
        each = {one: float(of_lead(np.array(one), classes, noise, order)) for one in kinds}
        for queries in (1, 2, 3):
            for held in itertools.combinations_with_replacement(kinds, queries):
                total = sum(max(one - low, 0) for one in held)
                bound = of_sum(total, queries, teachers, low, classes, noise, order)
                assert sum(each[one] for one in held) <= bound * (1.0 + 1e-9) + 1e-12
                assert bound <= of_sum(total - 0.7, queries, teachers, low, classes, noise, order) + 1e-12


def test_one_teacher_moves_a_lead_by_at_most_two() -> None:
    moves = [
        abs(lead(counts) - lead(other))
        for teachers, classes in TINY[:4]
        for counts in histograms(teachers, classes)
        for other in neighbors(counts)
    ]
    assert max(moves) == 2


def test_the_stated_epsilon_fails_as_rarely_as_delta_allows() -> None:
    """With noise of the sum at its allowance the exact sum is met; `_FAILS` of delta is the rest of the tail."""
    queries, teachers, low, classes, noise, delta = 300, 250, 100, 10, 27.6, 1e-5
    std, moved, exact = 4_000.0, 600.0, 30_000.0
    at = float(stats.norm.isf(leads._FAILS * delta)) * std + 0.5
    stated = epsilon_of_labels(exact + at, std, moved, queries, teachers, low, classes, noise, delta)
    more = epsilon_of_labels(exact + 2.0 * at, std, moved, queries, teachers, low, classes, noise, delta)
    true = min(
        of_sum(exact, queries, teachers, low, classes, noise, order)
        + order * (moved / std) ** 2 / 2.0
        + leads.beyond(order, (1.0 - leads._FAILS) * delta)
        for order in leads.ORDERS
    )
    assert stated == pytest.approx(true, rel=1e-12)
    assert more < stated
    assert math.isclose(float(stats.norm.sf(at / std)), leads._FAILS * delta, rel_tol=1e-2)
