"""Whole-number laws sampled exactly from fair bits: the discrete Laplace law and its coins, and waiting times.

For the discrete Laplace law only whole numbers are compared: docs/proofs/count.md. Waiting times, which make sparse
Poisson batches, are computed in floating point and settled in high precision where that is not sure:
docs/proofs/noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushgraph.errors import InputError

if TYPE_CHECKING:  # `discrete_laplace_std` is used where no torch is loaded
    from hushgraph.noise.source import NoiseSource

_BITS = 53
_LARGEST = 1 << 40  # keeps the share of draws that are thrown away below 2^-13, and every product below 2^53

# How far a computed logarithm of a uniform number may be from the true one. The 63 bits account for 2^-45 (smaller
# words are always settled), the evaluation for 2^-47: docs/proofs/noise.md. The rest is margin.
_LOG_GUARD = 2.0**-42
_SMALLEST_SURE_WORD = 1 << 44
_SMALLEST_P_BITS = 100
SMALLEST_P = 2.0**-_SMALLEST_P_BITS
SMALLEST_STEP = 2.0**-24
ROUNDING = 2.0**-46
"""Relative room for the rounding of a few library functions, each of which is off by at most 2^-50."""


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


def step_probability(loss: float) -> float:
    """A probability p with -ln(1 - p) <= `loss`, and hardly less: whole-number noise of decay 1 - p per step.

    With it P[k] ~ (1 - p)^|k| changes by a factor of at most e^loss from one whole number to the next.
    """
    if not (math.isfinite(loss) and loss > 0.0):
        raise InputError(f"loss per step: expected a positive, finite number; got {loss!r}")
    found = -math.expm1(-loss) * (1.0 - ROUNDING)
    if found < SMALLEST_STEP:
        raise InputError(f"loss per step: expected at least 2^-24; got {loss!r}. Use a larger epsilon, or larger steps")
    return found


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


def failures_before_success(words: np.ndarray, p: float, most: int, more_bits: Callable[[int, int], int]) -> np.ndarray:
    """How many coins of probability `p` fail before the first success, at most `most`; int64, exact.

    Sample `i` is made from an endless random number U in (0, 1): its first 63 bits are `words[i]` (int64), the next
    64 n are `more_bits(i, n)`. It is floor(ln U / ln(1 - p)), so that P[at least k] = P[U < (1 - p)^k] = (1 - p)^k.
    Floating point computes it; where that is too near to a whole number to be sure, high precision decides.
    """
    rate = -math.log1p(-p)
    guard = _LOG_GUARD / rate
    computed = words * 2.0**-63
    computed += 2.0**-64
    np.log(computed, out=computed)
    computed *= -1.0 / rate
    failures = np.minimum(computed, float(most)).astype(np.int64)
    computed -= failures
    # What is left is the fraction above the whole number, or how far `most` was exceeded.
    if computed.min() <= guard or computed.max() >= 1.0 - guard or words.min() < _SMALLEST_SURE_WORD:
        unsure = (computed <= guard) | (words < _SMALLEST_SURE_WORD)
        unsure |= (computed >= 1.0 - guard) & (failures < most)
        for place in np.flatnonzero(unsure).tolist():
            failures[place] = min(_settled_failures(int(words[place]), partial(more_bits, place), p), most)
    return failures


def _settled_failures(word: int, more_bits: Callable[[int], int], p: float) -> int:
    """floor(ln U / ln(1 - p)) in as many bits as it takes."""
    words = 1
    while True:
        bits = 63 + 64 * words
        low = (word << (64 * words)) + more_bits(words)
        least, largest = _failures(low + 1, bits, p, -1), _failures(low, bits, p, 1)
        if least == largest:
            return least
        words *= 2


def _failures(number: int, bits: int, p: float, side: int) -> int:
    """floor(ln(number / 2^bits) / ln(1 - p)), moved to one side by more than the error of this evaluation."""
    from mpmath import libmp  # on first use: few runs settle anything

    precision = bits + 4 * _SMALLEST_P_BITS
    top, bottom = p.as_integer_ratio()
    of_one = libmp.mpf_log(libmp.from_rational(bottom - top, bottom, precision), precision)
    of_all = libmp.mpf_log(libmp.from_man_exp(max(number, 1), -bits), precision)
    ratio = libmp.mpf_div(of_all, of_one, precision)
    moved = libmp.mpf_add(ratio, libmp.from_man_exp(side, -bits), precision)
    return max(0, int(libmp.to_int(libmp.mpf_floor(moved, precision))))
