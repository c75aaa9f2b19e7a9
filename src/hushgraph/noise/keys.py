"""Random bits with names: keys derived from one secret, and AES words that can be asked for in any order."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# Work is cut into pieces that stay in the cache and below the size at which torch would split them over threads,
# so a sample's bytes depend neither on the number of threads nor on the request it was part of.
PIECE = 1 << 15
_ZEROS = memoryview(bytes(8 * PIECE + 16))


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

    def words(self, high: np.ndarray | int, low: np.ndarray | int) -> np.ndarray:
        """One uint64 per pair `(high[i], low[i])`, independent of all other pairs; one of the two may be a number."""
        plain = np.empty((np.broadcast(high, low).size, 2), dtype="<u8")
        plain[:, 0] = high
        plain[:, 1] = low
        cipher = np.empty(plain.nbytes + 16, dtype=np.uint8)
        self._context.update_into(plain.view(np.uint8).reshape(-1).data, cipher.data)
        return cipher[: plain.nbytes].view("<u8")[::2]

    def bits(self, number: int, words: int) -> int:
        """The first `64 * words` bits that belong to `number`; asking for more leaves these in front."""
        return int.from_bytes(self.words(np.arange(words), number).astype(">u8").tobytes(), "big")
