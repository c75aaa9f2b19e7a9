"""The discrete Laplace law, by going through all that the sampler can draw and by statistics; waiting times."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.noise import NoiseSource, discrete
from hushgraph.noise.discrete import bernoulli_exp, discrete_laplace, discrete_laplace_std, uniform_below
from hushgraph.noise.keys import BlockFunction, KeyStream, derive_key


class _MoreNeeded(Exception):
    """The code under test draws: `odds` are the probabilities of 0, 1, 2, ..."""

    def __init__(self, odds: list[float]) -> None:
        self.odds = odds


def enumerated(draw: Callable[[], int], script: list[int], smallest: float) -> tuple[dict[int, float], float]:
    """The probability of every result of `draw`, and that of all branches below `smallest`, which are left out.

    `draw` takes its random numbers from `script` and raises `_MoreNeeded` when that is empty.
    """
    law: dict[int, float] = {}
    left_out, waiting = 0.0, [((), 1.0)]
    while waiting:
        drawn, probability = waiting.pop()
        if probability < smallest:
            left_out += probability
            continue
        script[:] = drawn
        try:
            value = draw()
            law[value] = law.get(value, 0.0) + probability
        except _MoreNeeded as more:
            waiting += [((*drawn, one), probability * odds) for one, odds in enumerate(more.odds) if odds]
    return law, left_out


def take(script: list[int], odds: list[float]) -> int:
    if not script:
        raise _MoreNeeded(odds)
    return script.pop(0)


NOISE = NoiseSource.seeded(0)


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 3), (1, 3), (2, 3), (1, 1)])
def test_a_coin_lands_with_exactly_the_stated_probability(
    numerator: int, denominator: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[int] = []
    monkeypatch.setattr(discrete, "uniform_below", lambda bound, _: take(script, [1.0 / bound] * bound))
    law, left_out = enumerated(lambda: bernoulli_exp(numerator, denominator, NOISE), script, 1e-6)
    assert left_out < 2e-3
    assert law[True] - 1e-9 <= math.exp(-numerator / denominator) <= law[True] + left_out + 1e-9


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_the_sampler_has_exactly_the_stated_law(scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going through all it can draw, given coins with the probabilities of the test above."""
    script: list[int] = []

    def coin(numerator: int, denominator: int, _: object) -> bool:
        lands = math.exp(-numerator / denominator)
        return take(script, [1.0 - lands, lands]) == 1

    monkeypatch.setattr(discrete, "uniform_below", lambda bound, _: take(script, [1.0 / bound] * bound))
    monkeypatch.setattr(discrete, "bernoulli_exp", coin)
    law, left_out = enumerated(lambda: discrete_laplace(scale, NOISE), script, 2e-8)
    assert left_out < 1e-3
    for k in range(-3 * scale, 3 * scale + 1):
        assert law[k] - 1e-9 <= probability_of(k, scale) <= law[k] + left_out + 1e-9
    # Scales of 2/3 and 3/2 are told from it.
    for wrong in (scale * 2 / 3, scale * 3 / 2):
        assert not law[0] <= math.tanh(0.5 / wrong) <= law[0] + left_out


def probability_of(k: int, scale: int) -> float:
    return math.tanh(0.5 / scale) * math.exp(-abs(k) / scale)


def chi_square(samples: np.ndarray, scale: float) -> float:
    """The p-value of the samples under noise of `scale`, in cells with at least 20 expected."""
    edge = int(scale * math.log(len(samples) * math.tanh(0.5 / scale) / 20))
    inside = np.arange(-edge, edge + 1)
    expected = np.tanh(0.5 / scale) * np.exp(-np.abs(inside) / scale) * len(samples)
    seen = np.array([(samples == k).sum() for k in inside])
    seen = np.append(seen, len(samples) - seen.sum())
    return float(stats.chisquare(seen, np.append(expected, len(samples) - expected.sum())).pvalue)


def test_the_noise_is_accepted_and_other_scales_are_rejected() -> None:
    """With other seeds the first assertion fails once in ten thousand; the others about never."""
    noise = NoiseSource.seeded(11)
    samples = np.array([discrete_laplace(6, noise) for _ in range(4_000)])
    assert chi_square(samples, 6.0) > 1e-4
    assert chi_square(samples, 4.0) < 1e-9
    assert chi_square(samples, 9.0) < 1e-9
    assert samples.std() == pytest.approx(discrete_laplace_std(6), rel=0.1)


def test_large_scales_spread_as_they_should() -> None:
    """The mean of |k| over 2,000 draws has a standard error of 2.2%: five of them, so one failure in a million."""
    noise = NoiseSource.seeded(5)
    size = np.mean([abs(discrete_laplace(2_500, noise)) for _ in range(2_000)])
    assert abs(size / 2_500 - 1.0) < 0.112
    assert not any(abs(size / (2_500 * wrong) - 1.0) < 0.112 for wrong in (2 / 3, 3 / 2))


def test_numbers_below_a_bound_are_equally_likely() -> None:
    noise = NoiseSource.seeded(2)
    seen = Counter(uniform_below(7, noise) for _ in range(3_500))
    assert set(seen) == set(range(7))
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4  # one seed in ten thousand fails


def test_what_has_no_law_is_refused() -> None:
    for scale in (0, -1, True, 2.5, 1 << 60):
        with pytest.raises(InputError, match="scale"):
            discrete_laplace(scale, NoiseSource.seeded(0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fraction"):
        bernoulli_exp(3, 2, NoiseSource.seeded(0))
    with pytest.raises(InputError, match="bound"):
        uniform_below(1 << 60, NoiseSource.seeded(0))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_same_seed_gives_the_same_noise_and_streams_differ(seed: int) -> None:
    one, other = NoiseSource.seeded(seed), NoiseSource.seeded(seed)
    first = [discrete_laplace(1_000_000, one.stream("a")) for _ in range(3)]
    assert first == [discrete_laplace(1_000_000, other.stream("a")) for _ in range(3)]
    assert first != [discrete_laplace(1_000_000, other.stream("b")) for _ in range(3)]


# Waiting times


CONTEXT = mpmath.MPContext()
CONTEXT.prec = 600


def some_words(seed: int, count: int) -> tuple[np.ndarray, Callable[[int, int], int]]:
    function = BlockFunction(bytes([seed]) * 32)
    return KeyStream(bytes([seed]) * 32).words(0, count) & ((1 << 63) - 1), function.bits


def true_failures(word: int, rest: int, p: float) -> int:
    """From 63 + 256 bits."""
    uniform = (CONTEXT.mpf(word) * 2**256 + rest + CONTEXT.mpf(0.5)) / CONTEXT.mpf(2) ** 319
    return int(CONTEXT.floor(CONTEXT.log(uniform) / CONTEXT.log1p(-CONTEXT.mpf(p))))


@pytest.mark.parametrize("p", [0.9, 0.5, 0.049, 1e-3, 1e-9, 1e-13, 2.0**-100])
def test_waiting_times_are_exact_wherever_high_precision_decides(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words, more_bits = some_words(1, 1000)
    most = 1 << 53
    fast = discrete.failures_before_success(words, p, most, more_bits)
    for place in range(200):
        assert fast[place] == min(most, true_failures(int(words[place]), more_bits(place, 4), p))
    monkeypatch.setattr(discrete, "_LOG_GUARD", 1e40)
    assert np.array_equal(discrete.failures_before_success(words, p, most, more_bits), fast)


def test_computed_logarithms_are_far_more_exact_than_the_guard_assumes() -> None:
    rng = np.random.default_rng(3)
    words = np.concatenate((rng.integers(1 << 44, 1 << 63, 1000), (2.0 ** rng.uniform(44, 63, 1000)).astype(np.int64)))
    computed = np.log(words * 2.0**-63 + 2.0**-64)
    exact = [CONTEXT.log((CONTEXT.mpf(word) + 0.5) / CONTEXT.mpf(2) ** 63) for word in words.tolist()]
    worst = max(abs(CONTEXT.mpf(value) - true) for value, true in zip(computed.tolist(), exact))
    # The product with 1 / rate adds a few roundings of a number up to 14, which is 2^-47.
    assert 0 < float(worst) < 2.0**-47
    assert discrete._LOG_GUARD >= 4 * (2.0**-45 + 2.0**-46)


@pytest.mark.parametrize(("p", "wait"), [(0.3, 1), (0.01, 40), (1e-6, 12_345), (1e-12, 1)])
def test_a_waiting_time_at_a_boundary_is_decided_by_its_later_bits(p: float, wait: int) -> None:
    precise = CONTEXT.clone()
    precise.prec = 1500
    boundary = int(precise.floor((1 - precise.mpf(p)) ** wait * precise.mpf(2) ** (63 + 1024)))
    for step, expected in ((-(1 << 400), wait), (1 << 400, wait - 1)):
        word, rest = divmod(boundary + step, 1 << 1024)
        found = discrete.failures_before_success(
            np.array([word]), p, 1 << 53, lambda _, words, rest=rest: rest >> (1024 - 64 * words)
        )
        assert found.tolist() == [expected]


@pytest.mark.parametrize("p", [0.01, 1e-9])
def test_the_smallest_numbers_are_settled_even_where_they_seem_to_be_beyond_the_end(p: float) -> None:
    # From 63 zero bits one would guess ln U = -44.4; the next bits, all ones, say that it is -43.7.
    most = int(44.0 / p)
    found = discrete.failures_before_success(np.array([0]), p, most, lambda _, words: (1 << 64 * words) - 1)
    assert found[0] == int(63 * math.log(2) / -math.log1p(-p)) < most


@given(st.floats(0.05, 1.0, exclude_max=True))
def test_the_threshold_of_dense_coins_is_exactly_the_probability(p: float) -> None:
    assert Fraction(int(math.ldexp(p, 64)), 1 << 64) == Fraction(p)


def test_dense_coins_compare_whole_words_with_the_probability() -> None:
    p = 0.05 + 2.0**-57
    words = KeyStream(derive_key(NOISE._key, "words")).words(0, 5000).view(np.uint64).tolist()
    expected = [place for place, word in enumerate(words) if Fraction(word, 1 << 64) < Fraction(p)]
    assert NoiseSource.seeded(0).bernoulli_indices(5000, p).tolist() == expected


def test_very_rare_coins() -> None:
    assert len(NoiseSource.seeded(6).bernoulli_indices(1 << 53, 2.0**-101)) == 0
    chosen = NoiseSource.seeded(6).bernoulli_indices(1 << 53, 1e-13)  # 901 expected; seeded, 4 sigma are 120
    assert abs(len(chosen) - 901) < 120
    assert int(chosen[-1]) < 1 << 53


def test_these_laws_need_no_torch() -> None:
    code = "import sys; from hushgraph.noise import discrete_laplace_std; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Whole-number noise of any decay


@given(st.floats(2.0**-20, 25.0))
def test_a_step_loses_no_more_than_it_may_and_hardly_less(loss: float) -> None:
    p = discrete.step_probability(loss)
    with mpmath.workdps(60):
        exact = -mpmath.log(1 - mpmath.mpf(p))
        assert exact <= loss
        assert exact > loss * (1 - 1e-3 if loss > 20 else 1 - 1e-6)


@pytest.mark.parametrize("loss", [0.0, -1.0, math.inf, math.nan, 1e-9])
def test_a_loss_without_a_step_is_refused(loss: float) -> None:
    with pytest.raises(InputError, match="loss per step"):
        discrete.step_probability(loss)


@pytest.mark.parametrize("p", [0.001, 0.3, 0.98])
def test_waiting_times_and_their_differences_have_their_laws_and_not_others(p: float) -> None:
    """Chi-square of 20,000 draws each, seeded; with other seeds a right law fails once in a million."""
    waiting = NoiseSource.seeded(1).geometric(20_000, p)
    both = NoiseSource.seeded(2).two_sided_geometric(20_000, p)
    assert _fits(waiting, stats.geom(p, loc=-1).cdf) > 1e-6
    assert _fits(waiting, stats.geom(min(0.999, 1.1 * p), loc=-1).cdf) < 1e-6
    scale = -math.log1p(-p)
    assert _fits(both, stats.dlaplace(scale).cdf) > 1e-6
    assert _fits(both, stats.dlaplace(0.9 * scale).cdf) < 1e-4
    assert len(NoiseSource.seeded(1).geometric(0, p)) == 0


def _fits(found: np.ndarray, below: Callable[[np.ndarray], np.ndarray]) -> float:
    """The p-value of counts in cells that the law makes about equally likely."""
    edges = np.unique(np.quantile(found, np.linspace(0.0, 1.0, 12)[1:-1]).astype(np.int64))
    chances = np.diff(np.concatenate(([0.0], below(edges), [1.0])))
    counts = np.bincount(np.searchsorted(edges, found), minlength=len(chances))
    return float(stats.chisquare(counts, len(found) * chances).pvalue)


def test_places_in_parts_are_those_of_one_request_in_law() -> None:
    """A binomial test of how many, and no place twice; seeded."""
    for n, p in ((10**12, 3e-6), (5_000_000, 0.2), (100, 0.0)):
        found = NoiseSource.seeded(3).bernoulli_places(n, p)
        assert (np.diff(found) > 0).all()
        assert len(found) == 0 or (found[0] >= 0 and found[-1] < n)
        assert stats.binomtest(len(found), n, p).pvalue > 1e-6 if p else len(found) == 0
