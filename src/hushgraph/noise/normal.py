"""The rounded normal law, sampled exactly: round(std * Z) for a standard normal Z, as a function of a key and a number.

Sample number `i` of a key is made from an endless random binary number U(i), uniform on (-1, 1): 53 bits and the sign
come from word `i` of an AES-256-CTR key stream, the rest from a second key. It is the rounded value of
std * sqrt(2) * erfinv(U(i)). Floating point computes it from the first bits; where the result is so near to a
rounding boundary that later bits or the error of the evaluation could decide, `settled` decides with as many bits as
it takes. So the law has neither rounding errors nor a finite number of bits, and a sample is the same number on every
machine. Proof, and what it assumes: docs/proofs/noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.noise.keys import PIECE, BlockFunction, KeyStream, derive_key

# How far, in units of std, a computed sample may be from the true one. The 53 bits account for 2^-44.8, the evaluation
# for 2^-48.4 at most where it was measured; the rest is margin.
GUARD = 2.0**-42
LARGEST_STD = 2.0**40  # from there on most samples would have to be settled
GRID_BITS = 20
_LARGEST_MULTIPLE = 2.0**52
_SMALLEST_STD = 2.0**-900
_ODD_53 = 2.0**-53
_TAIL = 1.0 - 2.0**-10
_EXTREME = 2.0**-60
_SQRT2 = math.sqrt(2.0)


class NormalStream:
    """Normal samples numbered from 0 to 2^63; sample `i` is a pure function of the key and `i`."""

    def __init__(self, key: bytes) -> None:
        self._body = KeyStream(derive_key(key, "body"))
        self._rest = BlockFunction(derive_key(key, "tail"))

    def fill(self, out: Tensor, first: int) -> Tensor:
        """Write the standard normal samples `first, first + 1, ...` into the flat float64 tensor `out`.

        They are right up to `GUARD`. One in 2^60 has no known bound and is NaN: `whole` settles it.
        """
        if not 0 <= first <= (1 << 63) - out.numel():
            raise InputError(f"expected sample numbers from 0 to 2^63; got {first} + {out.numel()}; use another label")
        for start in range(0, out.numel(), PIECE):
            self._fill_piece(out[start : start + PIECE], first + start)
        return out

    def whole(self, samples: Tensor, first: int, std: float) -> Tensor:
        """round(std * sample), exactly, for the samples that `fill` computed from number `first` on; int64.

        Samples that have their memory for themselves are overwritten: fresh memory costs as much as the rounding.
        """
        alone = samples.untyped_storage().nbytes() == samples.nbytes
        out = samples.view(torch.int64) if alone else torch.empty(samples.numel(), dtype=torch.int64)
        computed, result = samples.numpy(), out.numpy()
        for start in range(0, len(result), PIECE):
            scaled = computed[start : start + PIECE] * std
            nearest = np.rint(scaled)
            scaled -= nearest
            np.abs(scaled, out=scaled)
            sure = 0.5 - GUARD * std
            if not scaled.max() <= sure:
                for place in np.flatnonzero(~(scaled <= sure)):
                    nearest[place] = self.settle(first + start + int(place), std)
            result[start : start + PIECE] = nearest
        return out

    def settle(self, number: int, std: float) -> int:
        """round(std * sample) of one sample, in as many bits as it takes."""
        odd = int(self._body.words(number, 1)[0]) >> 10 | 1
        size = settled(abs(odd), partial(self._rest.bits, number), std)
        return int(math.copysign(size, odd))

    def _fill_piece(self, out: Tensor, first: int) -> None:
        # An odd number of 54 bits with a sign, over 2^53: symmetric, exact in float64, never 0, 1 or -1.
        odd = self._body.words(first, out.numel())
        odd >>= 10
        odd |= 1
        uniform = out.numpy()
        np.multiply(odd, _ODD_53, out=uniform)
        where = np.flatnonzero(np.abs(uniform) > _TAIL)
        tail = self._tail_samples(uniform[where], first, where) if len(where) else 0.0
        out.erfinv_().mul_(_SQRT2)
        uniform[where] = tail

    def _tail_samples(self, uniform: np.ndarray, first: int, where: np.ndarray) -> np.ndarray:
        """Normal samples for uniforms close to +-1, with 53 more bits."""
        inside = ((self._rest.words(0, where + first) >> np.uint64(11)) + 0.5) * 2.0**-53
        return _tail_normal(uniform, inside)


def _tail_normal(uniform: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The normal whose two-sided survival is the cell of `1 - |uniform|`, refined by `inside` in (0, 1)."""
    survival = (1.0 - np.abs(uniform)) + (2.0 * inside - 1.0) * _ODD_53
    survival[survival < _EXTREME] = np.nan
    return np.copysign(ndtri(0.5 * survival), uniform)


def settled(odd: int, more_bits: Callable[[int], int], std: float) -> int:
    """round(std * |Z|) where P[|Z'| > |Z|], its survival, is the binary number that starts with 2^53 - `odd`.

    The survival lies in a cell of width 2^-52 around 1 - odd / 2^53; `more_bits(n)` are the first 64 n bits of its
    place in there. It is compared with P[std |Z| > k + 1/2] in twice as many bits each time, until that decides.
    """
    words = 1
    while True:
        words *= 2
        bits = 53 + 64 * words
        survival = (((1 << 53) - odd - 1) << (64 * words)) + 2 * more_bits(words)
        size = _size(survival, bits, std)
        if size is not None:
            return size


def _size(survival: int, bits: int, std: float) -> int | None:
    """The whole number, or None where a survival in [survival, survival + 2] / 2^bits does not decide it."""
    size = math.floor(-std * float(ndtri((survival + 1) / (2 << bits))) + 0.5)  # at most one off
    while True:
        beyond = _is_beyond(survival, bits, size, std)
        if beyond is None:
            return None
        if beyond:
            size += 1
        elif size == 0:
            return 0
        else:
            reached = _is_beyond(survival, bits, size - 1, std)
            if reached is not False:
                return size if reached else None
            size -= 1


def _is_beyond(survival: int, bits: int, size: int, std: float) -> bool | None:
    """Whether std |Z| exceeds size + 1/2: whether the survival is below that of the boundary; None: too close."""
    from mpmath import libmp  # on first use: few runs settle anything

    top, bottom = std.as_integer_ratio()
    precision = bits + 64
    squared = libmp.from_rational((2 * size + 1) ** 2 * bottom**2, 8 * top**2, precision)
    boundary = libmp.mpf_erfc(libmp.mpf_sqrt(squared, precision), precision)
    difference = survival - libmp.to_int(libmp.mpf_shift(boundary, bits))
    return None if abs(difference) < 8 else difference < 0


class IntegerNoise(Protocol):
    """What `perturb` needs from a source of randomness (`hushgraph.noise.source.NoiseSource` has it)."""

    def integer_gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        """Independent samples of round(std * Z), int64."""
        ...


def grid_of(std: float) -> float:
    """The grid on which noise of this scale is added: 2^20 steps to the largest power of two that is at most `std`."""
    return math.ldexp(1.0, math.frexp(checked_std(std, _SMALLEST_STD))[1] - 1 - GRID_BITS)


def in_steps(scale: float, step: float) -> float:
    """A noise scale in steps of the grid, rounded up; zero is refused, not rounded up to almost nothing."""
    return math.nextafter(checked_std(scale) / step, math.inf)


def perturb(values: Tensor, std: float, noise: IntegerNoise) -> Tensor:
    """The values rounded to multiples of `grid_of(std)`, plus Gaussian noise rounded to the same grid; float64.

    Formal guarantee: equal in law to rounding q + N(0, std^2) to the grid, where q are the rounded values; so it is
    post-processing of the Gaussian mechanism on q. If the values of two neighboring inputs differ by at most d in L2,
    their q differ by at most d + grid * sqrt(number of values): declare that. Proof: docs/proofs/noise.md.

    Edge cases: refuses values that are not finite, or so large beside the noise (2^31 times) that the grid's
    multiples are not exact in float64.
    """
    grid = grid_of(std)
    steps = (values.detach().to(torch.float64) / grid).round_()
    if steps.numel() and not float(torch.linalg.vector_norm(steps, math.inf)) <= _LARGEST_MULTIPLE:
        raise InputError(
            f"expected finite values below {_LARGEST_MULTIPLE * grid:g}, 2^31 times the noise scale {std:g}; "
            "got NaN, infinite or larger ones; bound what is released"
        )
    # Whole numbers of this size are exact in float64, and so are their sums.
    return steps.add_(noise.integer_gaussian(tuple(values.shape), std / grid)).mul_(grid)


def checked_std(std: float, least: float = 0.0, most: float = math.inf) -> float:
    """The noise scale as a float; refuses zero, negative, infinite and NaN ones, and those out of range."""
    scale = float(std)
    if not (math.isfinite(scale) and scale > 0.0):
        raise InputError(f"expected a positive, finite noise scale; got {std!r}; noise is never switched off here")
    if not least <= scale <= most:
        raise InputError(f"expected a noise scale from {least:g} to {most:g}; got {std!r}; use another unit of measure")
    return scale
