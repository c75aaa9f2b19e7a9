"""Whole-number laws sampled from fair bits alone: the discrete Laplace law and the coins it is made of.

Only whole numbers are compared, so there is no rounding anywhere. Proofs: docs/proofs/count.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hushgraph.errors import InputError

if TYPE_CHECKING:  # `discrete_laplace_std` is used where no torch is loaded
    from hushgraph.noise.source import NoiseSource

_BITS = 53
_LARGEST = 1 << 40  # keeps the share of draws that are thrown away below 2^-13, and every product below 2^53


def discrete_laplace(scale: int, noise: NoiseSource) -> int:
    """One sample of P[k] ~ exp(-|k| / scale), exact given fair bits (Canonne, Kamath and Steinke 2020, Algorithm 2).

    A geometric number is put together from its remainder and its quotient by `scale`, given a sign, and drawn again
    when it is a negative zero.
    """
    if isinstance(scale, bool) or not isinstance(scale, int) or not 1 <= scale <= _LARGEST:
        raise InputError(f"scale: expected a whole number from 1 to 2^40; got {scale!r}")
    while True:
        remainder = uniform_below(scale, noise)
        if not bernoulli_exp(remainder, scale, noise):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, noise):
            quotient += 1
        size = remainder + scale * quotient
        negative = uniform_below(2, noise) == 1
        if not (negative and size == 0):
            return -size if negative else size


def discrete_laplace_std(scale: int) -> float:
    """The standard deviation of P[k] ~ exp(-|k| / scale) on the whole numbers."""
    return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / scale))


def bernoulli_exp(numerator: int, denominator: int, noise: NoiseSource) -> bool:
    """True with probability exp(-g), g = numerator / denominator in [0, 1].

    Successes of probability g/1, g/2, g/3, ... are counted until the first failure: the number of trials is odd with
    probability 1 - g + g^2/2! - ... = exp(-g).
    """
    if not 0 <= numerator <= denominator:
        raise InputError(f"expected a fraction from 0 to 1; got {numerator} / {denominator}")
    trial = 1
    while uniform_below(denominator * trial, noise) < numerator:
        trial += 1
    return trial % 2 == 1


def uniform_below(bound: int, noise: NoiseSource) -> int:
    """A whole number in [0, bound), all equally likely: 53 fair bits, drawn again beyond the last multiple."""
    if not 1 <= bound <= 1 << _BITS:
        raise InputError(f"expected a bound from 1 to 2^{_BITS}; got {bound!r}")
    top = (1 << _BITS) - (1 << _BITS) % bound
    while True:
        word = int(noise.integers(1, 1 << _BITS))
        if word < top:
            return word % bound
