"""Where local mechanisms get their randomness.

The default is the operating system's cryptographic source. `OsRandom` offers the draws the mechanisms need,
under the names and shapes of `numpy.random.Generator`, so a test may pass a seeded numpy generator instead. A
seeded generator must never be used on real answers: whoever knows the seed can subtract the noise.
"""

from __future__ import annotations

import math
import os
from typing import Any, Protocol

import numpy as np

from hushgraph.errors import InputError

Shape = int | tuple[int, ...] | None


class Randomness(Protocol):
    """The draws a mechanism may make. `numpy.random.Generator` fits; so does `OsRandom`."""

    def random(self, size: Any = None) -> Any:
        """Uniform floats in [0, 1)."""
        ...

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Uniform integers in [low, high), or [0, low) when `high` is left out."""
        ...

    def bytes(self, length: int) -> bytes:
        """That many random bytes."""
        ...


class OsRandom:
    """Uniform numbers, whole numbers and bytes from `os.urandom`.

    It keeps no state: nothing can be replayed, and a forked process that goes on using its parent's object draws other
    numbers than the parent, because each draw asks the operating system.
    """

    def random(self, size: Shape = None) -> Any:
        """Uniform floats in [0, 1), multiples of 2^-53."""
        uniforms = (self._words(size) >> np.uint64(11)) * 2.0**-53
        return float(uniforms[0]) if size is None else uniforms.reshape(size)

    def integers(self, low: int, high: int | None = None, size: Shape = None) -> Any:
        """Exactly uniform integers in [low, high): words past the last full multiple are drawn again."""
        start, stop = (0, low) if high is None else (low, high)
        width = stop - start
        if not 0 < width < 2**63:
            raise InputError(f"expected an integer range that is not empty; got [{start}, {stop}); check the bounds")
        limit = np.uint64(2**64 - (2**64 % width) - 1)
        words = self._words(size)
        while (rejected := words > limit).any():
            words[rejected] = self._words(int(rejected.sum()))
        drawn = (words % np.uint64(width)).astype(np.int64) + start
        return int(drawn[0]) if size is None else drawn.reshape(size)

    def bytes(self, length: int) -> bytes:
        """That many random bytes."""
        return os.urandom(length)

    @staticmethod
    def _words(size: Shape) -> np.ndarray:
        """Fresh 64-bit words, flat."""
        return np.frombuffer(os.urandom(8 * _count(size)), dtype=np.uint64).copy()


def os_generator() -> OsRandom:
    """The source used whenever no generator is passed: operating-system entropy."""
    return OsRandom()


def _count(size: Shape) -> int:
    if size is None:
        return 1
    return math.prod(size) if isinstance(size, tuple) else int(size)
