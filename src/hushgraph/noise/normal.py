"""Standard normal samples as a function of a secret key and a sample number.

Sample number `i` of a key is computed from the 64-bit word `i` of an AES-256-CTR key stream, by inverting the normal
distribution function. A word gives a 53-bit uniform number with a sign. One sample in 1024 falls into the tails
(beyond 3.3 standard deviations), where 53 bits are too coarse; it gets 53 more bits from a second key, so the tails
are complete. The law and its limits are described in docs/proofs/noise.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.special import ndtri
from torch import Tensor

# Work is cut into pieces that stay in the cache and below the size at which torch would split them over threads,
# so a sample's bytes depend neither on the number of threads nor on the request it was part of.
PIECE = 1 << 15
_ZEROS = memoryview(bytes(8 * PIECE + 16))
_ODD_53 = 2.0**-53
_TAIL = 1.0 - 2.0**-10
_SQRT2 = math.sqrt(2.0)


def derive_key(key: bytes, purpose: str, *details: str | bytes) -> bytes:
    """A 256-bit key for one purpose (HMAC-SHA256). Lengths are written out, so no two lists of details collide."""
    message = b"hushgraph noise v1"
    for part in (purpose, *details):
        raw = part.encode() if isinstance(part, str) else part
        message += len(raw).to_bytes(8, "little") + raw
    return hmac.new(key, message, hashlib.sha256).digest()


class KeyStream:
    """AES-256-CTR words: word `i` is the same whenever and however it is asked for."""

    def __init__(self, key: bytes) -> None:
        self._context = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._next_block = 0

    def words(self, first: int, count: int) -> np.ndarray:
        """The 64-bit words `first .. first + count` as a fresh int64 array."""
        block, skip = divmod(first, 2)
        blocks = (skip + count + 1) // 2
        if block != self._next_block:
            self._context.reset_nonce(block.to_bytes(16, "big"))
        buffer = np.empty(16 * blocks + 16, dtype=np.uint8)
        for start in range(0, 16 * blocks, len(_ZEROS)):
            size = min(len(_ZEROS), 16 * blocks - start)
            self._context.update_into(_ZEROS[:size], buffer[start : start + size + 16].data)
        self._next_block = block + blocks
        return buffer.view(np.int64)[skip : skip + count]


class BlockFunction:
    """AES-256 on single 16-byte blocks: a pseudo-random word for each pair of 64-bit numbers."""

    def __init__(self, key: bytes) -> None:
        self._context = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def words(self, high: np.ndarray | int, low: np.ndarray) -> np.ndarray:
        """One uint64 per pair `(high[i], low[i])`, independent of all other pairs."""
        plain = np.empty((len(low), 2), dtype="<u8")
        plain[:, 0] = high
        plain[:, 1] = low
        cipher = np.empty(16 * len(low) + 16, dtype=np.uint8)
        self._context.update_into(plain.view(np.uint8).reshape(-1).data, cipher.data)
        return cipher[: 16 * len(low)].view("<u8")[::2]


class NormalStream:
    """Standard normal samples numbered from 0; sample `i` is a pure function of the key and `i`."""

    def __init__(self, key: bytes) -> None:
        self._body = KeyStream(derive_key(key, "body"))
        self._tail = BlockFunction(derive_key(key, "tail"))

    def fill(self, out: Tensor, first: int, std: float) -> Tensor:
        """Write `std` times the samples `first, first + 1, ...` into the flat float64 tensor `out`."""
        for start in range(0, out.numel(), PIECE):
            piece = out[start : start + PIECE]
            self._fill_piece(piece, first + start)
            if std != 1.0:
                piece.mul_(std)
        return out

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
        """Normal samples for uniforms close to +-1: place each at random inside its cell of width 2^-52."""
        index = where.astype(np.uint64) + np.uint64(first & 0xFFFFFFFFFFFFFFFF)
        inside = ((self._tail.words(first >> 64, index) >> np.uint64(11)) + 0.5) * 2.0**-53
        return _tail_normal(uniform, inside)


def _tail_normal(uniform: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The normal whose two-sided survival is the cell of `1 - |uniform|`, refined by `inside` in (0, 1)."""
    survival = (1.0 - np.abs(uniform)) + (2.0 * inside - 1.0) * _ODD_53
    return np.copysign(ndtri(0.5 * survival), uniform)
