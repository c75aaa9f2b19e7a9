"""Signs from single bytes against the law they stand for, byte by byte and bit by bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hushgraph.local import MultiBit, OsRandom
from hushgraph.local.bits import ManySigns, draw_signs, flip_probability

EPSILONS = [1e-6, 0.01, 1.0, 4.0, 9.0, 30.0]
RANGES = [(0.0, 1.0), (-3.0, 7.0), (100.0, 101.0), (-1e-20, 1e-20)]


class Scripted:
    """A source of given bytes and given uniforms, which counts what it gave."""

    def __init__(self, first: np.ndarray, later: np.ndarray | float) -> None:
        self.first, self.later, self.asked = first, later, 0

    def bytes(self, length: int) -> bytes:
        assert length == self.first.size
        return self.first.astype(np.uint8).tobytes()

    def random(self, size: int) -> np.ndarray:
        self.asked = size
        return np.broadcast_to(self.later, (size,))


def every_byte(value: float) -> tuple[np.ndarray, np.ndarray]:
    return np.full(256, value), np.arange(256)


def flips_exactly(signs: ManySigns, values: np.ndarray, first: np.ndarray, later: float) -> np.ndarray:
    """U < p, with U written out in two parts: the definition."""
    unit = signs.unit(values)
    byte = np.where(unit >= 0, 255 - first, first)
    return (byte + later) / 1.0 < 256.0 * flip_probability(unit, signs.epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_byte_decides_as_the_definition_says(epsilon: float, low: float, high: float, dtype: type) -> None:
    signs = ManySigns(epsilon, low, high)
    assert signs._is_quick
    for share in (0.0, 1e-9, 0.001, 0.25, 0.4999, 0.5, 0.5001, 0.77, 1.0, -5.0, 8.0):
        values, first = every_byte(low + share * (high - low))
        values = values.astype(dtype)
        for later in (0.0, 0.3, 0.999):
            drawn = signs.draw(values, Scripted(first, later))
            plus = np.not_equal(signs.unit(values) >= 0, flips_exactly(signs, values, first, later))
            assert np.array_equal(drawn > 0, plus)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_the_realized_probability_is_the_stated_one_rounded_up(epsilon: float, share: float) -> None:
    # For each byte, the later bits flip the sign for a share of U that is found by asking at its two ends.
    signs, (values, first) = ManySigns(epsilon, 0.0, 1.0), every_byte(share)
    probability = float(flip_probability(signs.unit(values[:1]), epsilon)[0])
    upper = share >= 0.5
    whole, open_byte = math.floor(256.0 * probability), 256.0 * probability % 1.0
    always = (signs.draw(values, Scripted(first, 1.0 - 2.0**-53)) > 0) != upper
    never = (signs.draw(values, Scripted(first, 0.0)) > 0) == upper
    assert always.sum() in (whole, whole + 1 if open_byte > 1 - 2.0**-53 else whole)
    assert (~never).sum() == whole + (open_byte > 0)
    if 0 < open_byte < 1:
        below, at = math.nextafter(open_byte, 0.0), open_byte
        assert ((signs.draw(values, Scripted(first, below)) > 0) != upper).sum() == whole + 1
        assert ((signs.draw(values, Scripted(first, at)) > 0) != upper).sum() == whole


def test_few_numbers_need_more_than_a_byte() -> None:
    source = Scripted(np.random.default_rng(0).integers(0, 256, 100_000), 0.5)
    ManySigns(1.0, 0.0, 1.0).draw(np.random.default_rng(1).random(100_000), source)
    assert 0 < source.asked < 1_500


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(1e-6, 30.0),
    low=st.floats(-50.0, 50.0),
    width=st.floats(0.01, 100.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_values_and_bytes_agree_with_the_definition(epsilon: float, low: float, width: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    signs = ManySigns(epsilon, low, low + width)
    assume(signs._is_quick)  # elsewhere the definition itself is used
    values = rng.uniform(low - 0.1 * width, low + 1.1 * width, 2_000).astype(np.float32)
    first, later = rng.integers(0, 256, 2_000), float(rng.random())
    plus = np.not_equal(signs.unit(values) >= 0, flips_exactly(signs, values, first, later))
    assert np.array_equal(signs.draw(values, Scripted(first, later)) > 0, plus)


@pytest.mark.parametrize(("low", "high"), [(1e9, 1e9 + 1.0), (-1e300, 1e300)])
def test_ranges_beyond_single_precision_take_the_slow_way(low: float, high: float) -> None:
    signs = ManySigns(1.0, low, high)
    assert not signs._is_quick
    values = np.linspace(low, high, 500)
    slow = draw_signs(signs.unit(values), 1.0, np.random.default_rng(0))
    assert np.array_equal(signs.draw(values, np.random.default_rng(0)), slow)


@pytest.mark.parametrize("value", [0.0, 0.3, 0.8, 1.0])
def test_frequencies_from_the_operating_system(value: float) -> None:
    # Four two-sided z-tests at 5.5 sigma: flake rate 2e-7. The same draws reject 2/3 and 3/2 of the epsilon.
    n, mechanism = 400_000, MultiBit(1.5 * 100, 100, sampled=100)
    report = mechanism.perturb(np.full((n // 100, 100), value, dtype=np.float32), OsRandom())
    mean, expected = report.value.mean(), (2 * value - 1) * math.tanh(0.75)
    assert abs(mean - expected) < 5.5 / math.sqrt(n)
    if value != 0.3:
        for wrong in (2 / 3, 3 / 2):
            assert abs(mean - (2 * value - 1) * math.tanh(0.75 * wrong)) > 5.5 / math.sqrt(n)
