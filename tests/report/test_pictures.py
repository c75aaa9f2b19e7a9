from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from hushgraph.errors import InputError
from hushgraph.report.pictures import data_uri, image_grid, png


def test_a_png_holds_the_pixels_that_were_given() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    raw = png(pixels)
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", raw[16:24]) == (4, 3)
    start = raw.index(b"IDAT")
    length = struct.unpack(">I", raw[start - 4 : start])[0]
    rows = np.frombuffer(zlib.decompress(raw[start + 4 : start + 4 + length]), dtype=np.uint8).reshape(3, 5)
    assert (rows[:, 1:] == pixels).all()
    assert data_uri(pixels).startswith("data:image/png;base64,")


def test_a_grid_lays_images_out_row_by_row_and_cuts_values_off() -> None:
    images = np.stack([np.full((2, 2), value) for value in (0.0, 0.5, 7.0)])
    grid = image_grid(images, columns=2, gap=1)
    assert grid.shape == (5, 5)
    assert grid[0, 0] == 0
    assert grid[0, 3] == 128
    assert grid[3, 0] == 255
    with pytest.raises(InputError, match="expected images"):
        image_grid(np.zeros((2, 2)), 2)
