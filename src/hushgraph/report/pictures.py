"""Gray pictures inside the page: a small PNG writer, and images laid out in a grid."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from hushgraph.errors import InputError


def image_grid(images: Any, columns: int, gap: int = 2) -> np.ndarray:
    """Images `[n, height, width]` with values in [0, 1] side by side, as bytes."""
    stack = np.asarray(images, dtype=np.float64)
    if stack.ndim != 3 or columns < 1:
        raise InputError(f"pictures: expected images [n, height, width]; got shape {list(stack.shape)}")
    count, height, width = stack.shape
    rows = -(-count // columns)
    canvas = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap))
    for number, image in enumerate(stack):
        top, left = (number // columns) * (height + gap), (number % columns) * (width + gap)
        canvas[top : top + height, left : left + width] = np.clip(image, 0.0, 1.0)
    return np.round(255 * canvas).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    """A gray 8-bit PNG of `[height, width]` bytes."""
    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.astype(np.uint8)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def data_uri(pixels: np.ndarray) -> str:
    """The picture as text that an `img` element shows without fetching anything."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
