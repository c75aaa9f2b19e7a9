"""Where every random number of a private run comes from.

A `NoiseSource` holds one secret 256-bit key. Named streams, noise rows and sampling keys are derived from it, so a
run needs a single draw of operating-system entropy and every piece of noise has exactly one name. What the samples
are, and what they do not protect from, is written in docs/proofs/noise.md.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.noise.discrete import SMALLEST_P, SMALLEST_STEP, failures_before_success
from hushgraph.noise.keys import PIECE, BlockFunction, KeyStream, derive_key
from hushgraph.noise.normal import LARGEST_STD, NormalStream, checked_std

_SPARSE_PROBABILITY = 0.05
_MOST_COINS = 1 << 53
_PLACES_AT_ONCE = 1 << 20
_KEY_BITS = 53

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class NoiseSource:
    """Cryptographically strong random numbers derived from one secret key.

    Two kinds of method:

    * *sequential* (`integer_gaussian`, `bernoulli_indices`, `geometric`, `integers`): each call continues where the
      last one stopped and never repeats itself;
    * *addressed* (`pair_keys`): a pure function of the key and of what is asked for. Asking twice gives the same
      bytes, in any order and in blocks of any size. Use a fresh label for every purpose.

    Edge cases: the object cannot be copied or pickled. A forked process may not use what it inherited, in any way:
    its noise would be that of its parent. It makes a source of its own.
    """

    __slots__ = (
        "__weakref__",
        "_children",
        "_key",
        "_lock",
        "_next_normal",
        "_next_word",
        "_normals",
        "_process",
        "_ready",
        "_seeded",
        "_words",
    )

    def __init__(self, key: bytes, *, seeded_run: bool) -> None:
        if len(key) != 32:
            raise InputError(f"expected a key of 32 bytes; got {len(key)}; use NoiseSource.from_os()")
        self._key = key
        self._seeded = seeded_run
        self._process = (os.getpid(), _forks)
        self._lock = threading.RLock()
        self._children: dict[str, NoiseSource] = {}
        self._normals: NormalStream | None = None
        self._words: KeyStream | None = None
        self._next_normal = 0
        self._ready = torch.empty(0, dtype=torch.float64)
        self._next_word = 0

    @classmethod
    def from_os(cls) -> NoiseSource:
        """A source keyed by the operating system's entropy: the only one that gives privacy."""
        return cls(os.urandom(32), seeded_run=False)

    @classmethod
    def seeded(cls, seed: int) -> NoiseSource:
        """A repeatable source for tests. Whoever knows the seed can subtract the noise: not private."""
        return cls(seeded_key(seed), seeded_run=True)

    @classmethod
    def of(cls, seed: int | None) -> NoiseSource:
        """A repeatable source where there is a seed, else a private one."""
        return cls.from_os() if seed is None else cls.seeded(seed)

    @property
    def seeded_run(self) -> bool:
        """True when the noise can be repeated from a seed; such a run must be stamped `seeded: not private`."""
        return self._seeded

    def stream(self, label: str) -> NoiseSource:
        """The independent source named `label`.

        Its values do not depend on which other streams exist or in which order they were asked for. Asking for the
        same label again returns the same object, which continues: no noise is handed out twice.
        """
        self._check_process()
        with self._lock:
            if label not in self._children:
                self._children[label] = NoiseSource(self._derived("stream", label), seeded_run=self._seeded)
            return self._children[label]

    # Sequential draws

    def integer_gaussian(self, shape: int | Sequence[int], std: float) -> Tensor:
        """Independent samples of round(std * Z) with Z standard normal, int64; the law is exact, for any std to 2^40.

        P[k] = Phi((k + 1/2) / std) - Phi((k - 1/2) / std). Added to whole numbers this is the Gaussian mechanism with
        its result rounded: docs/proofs/noise.md. Beyond a std of 2^30 many samples need more bits, which is slow.
        """
        scale, size = checked_std(std, most=LARGEST_STD), _size(shape)
        self._check_process()
        with self._lock:
            first, samples = self._take_normals(math.prod(size))
            return self._normal_stream().whole(samples, first, scale).view(size)

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        """The sorted indices below `n` that were chosen, each independently with probability `p` (a Poisson batch).

        The probability is `p` exactly (0 for a `p` below 2^-100): docs/proofs/noise.md.
        """
        if not (0.0 <= p <= 1.0 and 0 <= n <= _MOST_COINS):
            raise InputError(
                f"expected a probability between 0 and 1, and up to 2^53 coins; got {p!r} and {n!r}; "
                "check the sampling rate"
            )
        if p < SMALLEST_P or n == 0:
            return torch.empty(0, dtype=torch.int64)
        if p == 1.0:
            return torch.arange(n)
        if p < _SPARSE_PROBABILITY:
            return self._sparse_indices(n, p)
        _, words = self._take_words(n)
        return torch.from_numpy(np.flatnonzero(words < np.uint64(int(math.ldexp(p, 64)))))  # p * 2^64 is whole

    def bernoulli_places(self, n: int, p: float) -> np.ndarray:
        """`bernoulli_indices` in parts, so that memory is in proportion to what is chosen, not to `n`."""
        coins = int(_PLACES_AT_ONCE / p) if 0.0 < p < _SPARSE_PROBABILITY else _PLACES_AT_ONCE
        starts = range(0, n if p > 0.0 else 0, min(coins, _MOST_COINS))
        parts = [self.bernoulli_indices(min(coins, n - start), p).numpy() + start for start in starts]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def geometric(self, n: int, p: float) -> np.ndarray:
        """`n` waiting times: how many coins of probability `p` fail before the first success, int64, exact.

        None is larger than 2^53, which has a probability below e^(-2^29).
        """
        if not SMALLEST_STEP <= p < 1.0:
            raise InputError(f"expected a probability of at least 2^-24 and below 1; got {p!r}")
        if n == 0:
            return np.empty(0, dtype=np.int64)
        first, words = self._take_words(n)
        words >>= np.uint64(1)
        return failures_before_success(words.view(np.int64), p, _MOST_COINS, partial(self._more_bits, first))

    def two_sided_geometric(self, n: int, p: float) -> np.ndarray:
        """`n` samples of P[k] ~ (1 - p)^|k|, the discrete Laplace law, as differences of two waiting times."""
        return self.geometric(n, p) - self.geometric(n, p)

    def integers(self, n: int, high: int) -> Tensor:
        """`n` integers in [0, high), each value with probability 1/high up to a relative error of high / 2^63."""
        if not 0 < high <= 1 << 53:
            raise InputError(f"expected an upper bound between 1 and 2^53; got {high!r}; give a positive bound")
        _, words = self._take_words(n)
        return torch.from_numpy((words.view(np.int64) & ((1 << 63) - 1)) % high)

    def shuffled(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Each part in uniformly random order: sorted by random keys, which are drawn again should two be equal."""
        index, sizes = torch.cat(list(parts)), [part.numel() for part in parts]
        bits = min(_KEY_BITS, 62 - len(sizes).bit_length())
        first_bits = np.repeat(np.arange(len(sizes)) << bits, sizes)
        while True:
            keys = self.integers(len(index), 1 << bits).numpy() | first_bits
            order = np.argsort(keys)
            if np.diff(keys[order]).all():
                return list(index[torch.from_numpy(order)].split(sizes))

    # Addressed draws

    def pair_keys(self, label: str, owners: np.ndarray, entries: np.ndarray) -> np.ndarray:
        """A random uint64 for every pair (owner, entry): what one owner gets tells nothing about another's."""
        function = BlockFunction(self._derived("pairs", label))
        keys = np.empty(len(owners), dtype=np.uint64)
        for start in range(0, len(owners), PIECE):
            part = slice(start, start + PIECE)
            keys[part] = function.words(owners[part], entries[part])
        return keys

    def torch_generator(self, label: str) -> torch.Generator:
        """A torch generator for things that need no privacy, such as initial weights."""
        seed = int.from_bytes(self._derived("torch generator", label)[:8], "little") >> 1
        return torch.Generator().manual_seed(seed)

    # Inside

    def _derived(self, purpose: str, *details: str | bytes) -> bytes:
        """A key of this source. Everything that is drawn needs one, so nothing is drawn in another process."""
        self._check_process()
        return derive_key(self._key, purpose, *details)

    def _take_normals(self, n: int) -> tuple[int, Tensor]:
        """The next `n` standard samples and the number of the first. Small requests are served from a piece ahead."""
        have = self._ready.numel()
        first = self._next_normal - have
        if n > have:
            ahead = min(self._next_normal, PIECE)  # nothing on a stream's first draw: many streams are used once
            samples = torch.empty(max(n, have + ahead), dtype=torch.float64)
            samples[:have] = self._ready
            self._normal_stream().fill(samples[have:], self._next_normal)
            self._next_normal += samples.numel() - have
            self._ready = samples
        taken, self._ready = self._ready[:n], self._ready[n:]
        return first, taken

    def _normal_stream(self) -> NormalStream:
        if self._normals is None:
            self._normals = NormalStream(self._derived("normal"))
        return self._normals

    def _take_words(self, n: int) -> tuple[int, np.ndarray]:
        """The number of the next word, and `n` words from there, uint64."""
        self._check_process()
        with self._lock:
            if self._words is None:
                self._words = KeyStream(self._derived("words"))
            first = self._next_word
            self._next_word += n
            return first, self._words.words(first, n).view(np.uint64)

    def _sparse_indices(self, n: int, p: float) -> Tensor:
        """Jump from chosen index to chosen index: the gaps between them are geometric."""
        expected = n * p
        count = int(expected + 6.0 * math.sqrt(expected) + 16.0)
        parts: list[np.ndarray] = []
        last = -1
        while last < n:
            first, words = self._take_words(count)
            words >>= np.uint64(1)  # signed numbers turn into floats faster
            gaps = failures_before_success(words.view(np.int64), p, n, partial(self._more_bits, first))
            parts.append(np.cumsum(gaps + 1) + last)
            last = int(parts[-1][-1])
        chosen = np.concatenate(parts)
        return torch.from_numpy(chosen[: np.searchsorted(chosen, n)])

    def _more_bits(self, first: int, place: int, words: int) -> int:
        """What follows on word `first + place`, for the few draws that need it."""
        return BlockFunction(self._derived("more words")).bits(first + place, words)

    def _check_process(self) -> None:
        if self._process != (os.getpid(), _forks):
            raise HushgraphError(
                "expected a noise source of this process; got one inherited from the parent process, whose noise "
                "would be repeated; make a source with NoiseSource.from_os() inside the child"
            )

    def __repr__(self) -> str:
        kind = "seeded: not private" if self._seeded else "operating-system entropy"
        return f"NoiseSource({kind})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a NoiseSource holds a secret key and cannot be copied or pickled; use stream(label)")


def seeded_key(seed: int) -> bytes:
    """The key of a repeatable source."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"expected an integer seed; got {type(seed).__name__}; use NoiseSource.from_os() for privacy")
    return derive_key(bytes(32), "seeded: not private", str(seed))


def _size(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
