"""How far rounding can move the delta of a composed privacy-loss distribution.

`dp_accounting` composes distributions by fast Fourier transforms in double precision. Rounding there is absolute: a
tail of 1e-13 is lost in it. `ComposedLoss` carries a bound on it, which is added to every delta. The bound is far from
tight and costs nothing at usual deltas. Derivation: docs/proofs/fft.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy import fft

_ULP = sys.float_info.epsilon
_BUTTERFLY = 6.0
"""Relative rounding of one level of a transform, in units of `_ULP`: twiddle factor, complex product and sum."""
_POWER = 8.0
"""The same for one factor of a complex power."""
_STEP = 16.0
"""Absolute rounding of the divergence of one step, in units of `_ULP`: two tails of at most 1, subtracted."""
_TRUNCATED = 1e-15
"""The mass at both ends of a composed loss that the library lets go of, always to the larger loss."""


@dataclass(frozen=True)
class ComposedLoss:
    """A distribution with what rounding can have taken: `point` from each of its points, `steps` from its delta."""

    pld: pld_lib.PrivacyLossDistribution
    point: float = 0.0
    steps: float = 0.0

    @property
    def error(self) -> float:
        """The most by which a true delta can exceed the one that the distribution gives."""
        return self.point * max(_probabilities(pmf).size for pmf in _directions(self.pld)) + self.steps

    def repeated(self, count: int) -> ComposedLoss:
        """This one, as a single step, `count` times."""
        steps = self.steps + count * _STEP * _ULP
        if count == 1:
            return ComposedLoss(self.pld, self.point, steps)
        composed = self.pld.self_compose(count)
        sizes = [_probabilities(pmf).size for pmf in _directions(composed)]
        point = max(_power_error(_probabilities(pmf), count, size) for pmf, size in zip(_directions(self.pld), sizes))
        return ComposedLoss(composed, self.point + point, steps)

    def then(self, other: ComposedLoss) -> ComposedLoss:
        """Both together. Earlier errors stay as large as they were: the other distribution adds up to at most 1."""
        composed = _both(self.pld, other.pld)
        lengths = [float(np.linalg.norm(_probabilities(p))) for one in (self.pld, other.pld) for p in _directions(one)]
        size = max(_probabilities(pmf).size for pmf in _directions(composed))
        point = 3.0 * _transform_error(size) * max(lengths) ** 2 if size > 1 else 0.0
        return ComposedLoss(composed, self.point + other.point + point, self.steps + other.steps)


def _both(
    one: pld_lib.PrivacyLossDistribution, other: pld_lib.PrivacyLossDistribution
) -> pld_lib.PrivacyLossDistribution:
    """`one.compose(other)` to the last digit, without `scipy.signal`, which takes longer to import than this to run."""
    removed = _convolved(one._pmf_remove, other._pmf_remove)
    both_ways = not (one._symmetric and other._symmetric)
    return pld_lib.PrivacyLossDistribution(removed, _convolved(one._pmf_add, other._pmf_add) if both_ways else None)


def _convolved(one: pld_pmf.PLDPmf, other: pld_pmf.PLDPmf) -> pld_pmf.PLDPmf:
    """The sum of two independent losses; its tails are cut as the library cuts them."""
    if all(isinstance(part, pld_pmf.SparsePLDPmf) for part in (one, other)) or not one._pessimistic_estimate:
        return pld_pmf.compose_pmfs(one, other, _TRUNCATED)
    one, other = one.to_dense_pmf(), other.to_dense_pmf()
    one.validate_composable(other)
    size = one.size + other.size - 1
    length = fft.next_fast_len(size, real=True)
    product = fft.rfftn(one._probs, [length]) * fft.rfftn(other._probs, [length])
    first, kept, beyond = _without_tails(fft.irfftn(product, [length])[:size])
    infinite = one._infinity_mass + other._infinity_mass - one._infinity_mass * other._infinity_mass
    lowest = one._lower_loss + other._lower_loss + first
    return pld_pmf.DensePLDPmf(one._discretization, lowest, kept, infinite + beyond, True)


def _without_tails(probabilities: np.ndarray) -> tuple[int, np.ndarray, float]:
    """How many of the smallest losses were cut (their mass is the next one's), what is left, the mass cut above."""
    half, size = _TRUNCATED / 2, probabilities.size
    first = _reached(np.cumsum(probabilities) > half)
    last = max(size - _reached(np.cumsum(probabilities[::-1]) > half), first + 1)
    below, beyond = np.sum(probabilities[:first]), np.sum(probabilities[last:])
    kept = probabilities[first:last]
    kept[0] += below
    return first, kept, float(beyond)


def _reached(above: np.ndarray) -> int:
    return int(np.argmax(above)) if above.any() else above.size


def _power_error(probabilities: np.ndarray, count: int, size: int) -> float:
    """Rounding of each point of the inverse transform of the transform to the power `count`."""
    length = fft.next_fast_len(max(size, probabilities.size))
    spectrum = np.minimum(np.abs(fft.rfft(probabilities, length)) + _transform_error(length), 1.0)
    mean = float(np.mean(spectrum ** (count - 1)))
    return (count + 1) * (_transform_error(length) + _POWER * _ULP) * mean


def _transform_error(length: int) -> float:
    """Rounding of each entry of a transform of numbers that add up to at most 1."""
    return _BUTTERFLY * _ULP * math.log2(max(length, 2))


def _directions(pld: pld_lib.PrivacyLossDistribution) -> Iterator[pld_pmf.PLDPmf]:
    yield pld._pmf_remove
    if not pld._symmetric:
        yield pld._pmf_add


def _probabilities(pmf: pld_pmf.PLDPmf) -> np.ndarray:
    return np.asarray(pmf.to_dense_pmf()._probs)
