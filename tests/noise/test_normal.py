"""The rounded normal law: exact cell probabilities, the guard, the settled samples, and `perturb`.

Statistical tests use fixed seeds. Each accepts with a level of 1e-4 (the chance that a fresh seed would fail a
correct source), and the wrong scales are rejected with p-values far below 1e-12.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from hushgraph.errors import InputError
from hushgraph.noise import NoiseSource, grid_of, normal, perturb

LEVEL = 1e-4
CONTEXT = mpmath.MPContext()
CONTEXT.prec = 400


def cell_p_value(samples: torch.Tensor, std: float) -> float:
    """Chi-square of the counts of single whole numbers against Phi((k + 1/2) / std) - Phi((k - 1/2) / std)."""
    reach = int(3.5 * std)
    inner = np.arange(-reach, reach + 2) - 0.5
    cumulative = np.r_[0.0, special.ndtr(inner / std), 1.0]
    counts = np.histogram(samples.numpy(), np.r_[-np.inf, inner, np.inf])[0]
    return float(stats.chisquare(counts, len(samples) * np.diff(cumulative)).pvalue)


@pytest.mark.parametrize("std", [1.0, 2.5, 6.3])
def test_every_whole_number_has_its_probability_and_other_scales_are_rejected(std: float) -> None:
    samples = NoiseSource.seeded(41).integer_gaussian(2_000_000, std)
    assert samples.dtype == torch.int64
    assert cell_p_value(samples, std) > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert cell_p_value(samples, std * wrong) < 1e-12


@pytest.mark.parametrize("std", [0.3, 40.0, 1e4, 2.0**20 * 1.7, 2.0**31])
def test_variance_is_that_of_the_rounded_law(std: float) -> None:
    samples = NoiseSource.seeded(42).integer_gaussian(200_000, std).to(torch.float64)
    k = np.arange(-20, 21)
    cells = np.diff(special.ndtr((np.r_[k, 21] - 0.5) / std))
    variance = float((cells * k**2).sum()) if std < 1 else std**2 + 1 / 12
    fourth = float((cells * k**4).sum()) if std < 1 else 3 * std**4
    error = math.sqrt((fourth - variance**2) / samples.numel())
    squares = float((samples**2).mean())
    assert abs(squares - variance) < 4 * error
    for wrong in (2 / 3, 3 / 2):
        assert abs(squares - variance * wrong**2) > 30 * error


def true_sample(stream: normal.NormalStream, number: int) -> mpmath.mpf:
    """The sample from 53 + 192 bits by solving erfc(|z| / sqrt 2) = survival, another way than `settled`."""
    odd = int(stream._body.words(number, 1)[0]) >> 10 | 1
    place = CONTEXT.mpf(stream._rest.bits(number, 3)) / 2**192
    survival = (CONTEXT.mpf(2**53 - abs(odd) - 1) + 2 * place) / 2**53
    size = CONTEXT.mpf(float(-special.ndtri(float(survival) / 2)))
    for _ in range(5):
        size += (CONTEXT.erfc(size / CONTEXT.sqrt(2)) - survival) / (2 * CONTEXT.npdf(size))
    return size if odd > 0 else -size


def test_computed_samples_are_far_more_exact_than_the_guard_assumes() -> None:
    stream = normal.NormalStream(b"\x01" * 32)
    computed = torch.empty(400_000, dtype=torch.float64)
    stream.fill(computed, 0)
    tails = np.flatnonzero(computed.abs().numpy() > 3.2905)
    edges = np.argsort(np.abs(computed.abs().numpy() - 3.29))[:100]  # where the fewest bits of the body are left
    assert len(tails) > 300
    worst = 0.0
    for number in (*range(300), *tails[:300].tolist(), *edges.tolist()):
        worst = max(worst, float(abs(true_sample(stream, number) - CONTEXT.mpf(float(computed[number])))))
    assert worst < normal.GUARD / 4


def test_evaluation_error_without_the_missing_bits_is_a_64th_of_the_guard() -> None:
    rng = np.random.default_rng(43)
    odd = (rng.integers(0, 2**53, 500) | 1).astype(np.float64)
    near_edge = 2.0**53 * (1 - 2.0**-10 * (1 + rng.exponential(1, 500)))
    body = np.concatenate((odd[odd < 2**53 * (1 - 2**-10)], np.floor(near_edge), 2.0 ** rng.uniform(1, 50, 200)))
    uniform = np.floor(body) * 2.0**-53
    values = torch.erfinv(torch.from_numpy(uniform)).mul_(math.sqrt(2)).tolist()
    tail = 2.0 ** -rng.uniform(10, 60, 500)
    pairs = [*zip(values, (1 - CONTEXT.mpf(x) for x in uniform.tolist()))]
    pairs += [*zip((-special.ndtri(tail / 2)).tolist(), (CONTEXT.mpf(s) for s in tail.tolist()))]
    worst = 0.0
    for value, survival in pairs:
        # One step of Newton's method from the computed value gives its error to twice its digits.
        missing = (CONTEXT.erfc(CONTEXT.mpf(value) / CONTEXT.sqrt(2)) - survival) / (2 * CONTEXT.npdf(value))
        worst = max(worst, float(abs(missing)))
    assert 0 < worst < normal.GUARD / 64


@pytest.mark.parametrize("std", [1.0, 2.5, 1234.5, 2.0**20 * 1.3, 2.0**40])
def test_settled_samples_equal_the_rounded_true_ones(std: float) -> None:
    stream = normal.NormalStream(b"\x02" * 32)
    for number in range(150):
        assert stream.settle(number, std) == int(CONTEXT.nint(CONTEXT.mpf(std) * true_sample(stream, number)))


@pytest.mark.parametrize("std", [1.0, 2.5, 777.7, 2.0**20, 2.0**33])
def test_settling_every_sample_changes_none(std: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = NoiseSource.seeded(44).integer_gaussian(4000, std)
    monkeypatch.setattr(normal, "GUARD", 1.0)
    assert torch.equal(NoiseSource.seeded(44).integer_gaussian(4000, std), fast)


def test_too_small_a_guard_gives_wrong_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    # At 2^40 the guard decides for half of the samples: without it some are off by one.
    right = NoiseSource.seeded(45).integer_gaussian(2000, 2.0**40)
    monkeypatch.setattr(normal, "GUARD", 0.0)
    assert 0 < int((NoiseSource.seeded(45).integer_gaussian(2000, 2.0**40) != right).sum()) < 1000


@pytest.mark.parametrize(("std", "size"), [(1.0, 0), (1.0, 2), (2.5, 11), (2.0**20, 1_234_567)])
def test_a_sample_at_a_boundary_is_decided_by_its_later_bits(std: float, size: int) -> None:
    # A survival that agrees with the boundary's in 500 bits, and one bit more on either side.
    boundary = CONTEXT.clone()
    boundary.prec = 1200
    survival = boundary.erfc(boundary.mpf(2 * size + 1) / (2 * boundary.mpf(std) * boundary.sqrt(2)))
    digits = int(boundary.floor(survival * boundary.mpf(2) ** (53 + 1024 - 1)))
    odd, place = (1 << 53) - 1 - 2 * (digits >> 1024), digits & ((1 << 1024) - 1)
    asked: list[int] = []
    for step, expected in ((-(1 << 500), size + 1), (1 << 500, size)):

        def bits(words: int, step: int = step) -> int:
            asked.append(words)
            return (place + step) >> (1024 - 64 * words)

        assert normal.settled(odd, bits, std) == expected
    assert max(asked) == 16


def test_the_last_cell_reaches_beyond_8_standard_deviations() -> None:
    last = (1 << 53) - 1
    for place in (1, 1 << 60, 1 << 120):
        found = normal.settled(last, lambda words, place=place: place << (64 * words - 128), 1000.0)
        survival = CONTEXT.mpf(2 * place) / CONTEXT.mpf(2) ** 181
        assert abs(CONTEXT.erfc(CONTEXT.mpf(found) / 1000 / CONTEXT.sqrt(2)) / survival - 1) < 0.01
        assert found > 8200


def test_samples_without_a_known_error_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal, "_EXTREME", 2.0**-11)
    stream = normal.NormalStream(b"\x03" * 32)
    computed = torch.empty(20_000, dtype=torch.float64)
    stream.fill(computed, 0)
    missing = np.flatnonzero(np.isnan(computed.numpy()))
    assert len(missing) > 3
    whole = stream.whole(computed, 0, 3.0)
    assert all(int(whole[number]) == stream.settle(int(number), 3.0) for number in missing)


def test_known_answers_of_the_seeded_source() -> None:
    noise = NoiseSource.seeded(2024)
    assert noise.integer_gaussian(6, 3.0).tolist() == [-4, 1, -3, -5, 5, 3]


@given(sizes=st.lists(st.integers(0, 3000), max_size=12), std=st.floats(0.5, 2.0**22))
@settings(max_examples=40, deadline=None)
def test_sequential_samples_do_not_depend_on_how_they_are_asked_for(sizes: list[int], std: float) -> None:
    apart, together = NoiseSource.seeded(47), NoiseSource.seeded(47)
    parts = [apart.integer_gaussian(size, std) for size in sizes]
    whole = together.integer_gaussian(sum(sizes), std)
    assert torch.equal(torch.cat([torch.empty(0, dtype=torch.int64), *parts]), whole)


def test_other_labels_share_nothing() -> None:
    noise = NoiseSource.seeded(48)
    base = noise.stream("release").integer_gaussian((50, 8), 2.0**30)
    for other in (
        noise.stream("another").integer_gaussian((50, 8), 2.0**30),
        NoiseSource.seeded(49).stream("release").integer_gaussian((50, 8), 2.0**30),
        noise.integer_gaussian((50, 8), 2.0**30),
    ):
        assert int(((base - other).abs() < 2).sum()) == 0


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf"), 2.0**41])
def test_scales_without_a_law_are_refused(std: float) -> None:
    noise = NoiseSource.seeded(4)
    with pytest.raises(InputError, match="noise scale"):
        noise.integer_gaussian(3, std)
    if std != 2.0**41:
        with pytest.raises(InputError, match="noise scale"):
            perturb(torch.zeros(1), std, noise)


def test_places_without_a_meaning_are_refused() -> None:
    with pytest.raises(InputError, match="2\\^63"):
        normal.NormalStream(bytes(32)).fill(torch.empty(4, dtype=torch.float64), 1 << 63)


@pytest.mark.parametrize(("std", "grid"), [(1.0, -20), (1.999, -20), (2.0, -19), (0.75, -21), (1e-3, -30)])
def test_the_grid_is_a_power_of_two_a_millionth_of_the_noise(std: float, grid: int) -> None:
    assert grid_of(std) == 2.0**grid
    assert 2.0**20 <= std / grid_of(std) < 2.0**21


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    std=st.floats(1e-2, 1e6),
)
@settings(max_examples=60, deadline=None)
def test_perturbed_values_are_the_rounded_ones_plus_noise_of_the_grid(values: list[float], std: float) -> None:
    exact, grid = torch.tensor(values, dtype=torch.float64), grid_of(std)
    released = perturb(exact, std, NoiseSource.seeded(50))
    drawn = NoiseSource.seeded(50).integer_gaussian(len(values), std / grid)
    assert released.dtype == torch.float64
    assert torch.equal(released, (torch.round(exact / grid) + drawn) * grid)
    assert bool((released / grid == torch.round(released / grid)).all())


@pytest.mark.parametrize("std", [0.25, 3.0])
def test_perturbing_adds_noise_of_that_scale(std: float) -> None:
    values = torch.linspace(-5, 5, 100_000, dtype=torch.float32)
    drawn = (perturb(values, std, NoiseSource.seeded(51)) - values.to(torch.float64)).numpy()
    assert stats.kstest(drawn / std, "norm").pvalue > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn / std / wrong, "norm").pvalue < 1e-12


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**33, 1e300])
def test_values_beyond_the_grid_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="finite values"):
        perturb(torch.tensor([0.0, value], dtype=torch.float64), 1.0, NoiseSource.seeded(1))
