"""Histograms of oriented gradients: against a naive loop, and row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.nn.hog import HOG
from hushgraph.nn.rowwise import require_rowwise


def naive(image: np.ndarray, cell: int, bins: int, block: int) -> np.ndarray:
    height, width = image.shape
    cells = np.zeros((height // cell, width // cell, bins))
    for i in range(cells.shape[0] * cell):
        for j in range(cells.shape[1] * cell):
            down = image[i + 1, j] - image[i - 1, j] if 0 < i < height - 1 else 0.0
            across = image[i, j + 1] - image[i, j - 1] if 0 < j < width - 1 else 0.0
            place = (math.atan2(down, across) % math.pi) / math.pi * bins
            low, share = int(place) % bins, place - int(place)
            cells[i // cell, j // cell, low] += (1 - share) * math.hypot(down, across) / cell**2
            cells[i // cell, j // cell, (low + 1) % bins] += share * math.hypot(down, across) / cell**2
    found = []
    for i in range(cells.shape[0] - block + 1):
        for j in range(cells.shape[1] - block + 1):
            part = cells[i : i + block, j : j + block].ravel()
            part = np.minimum(part / math.sqrt((part**2).sum() + 1e-6), 0.2)
            found.append(part / math.sqrt((part**2).sum() + 1e-6))
    return np.concatenate(found)


@pytest.mark.parametrize(("shape", "cell", "bins", "block"), [((28, 28), 4, 8, 2), ((14, 11), 3, 9, 1)])
def test_it_is_what_a_loop_over_pixels_computes(shape: tuple[int, int], cell: int, bins: int, block: int) -> None:
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    hog = HOG(shape, cell=cell, bins=bins, block=block)
    found = hog(images.flatten(1))
    assert found.shape == (3, hog.width_out)
    expected = np.stack([naive(image.double().numpy(), cell, bins, block) for image in images])
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


def test_a_picture_is_described_by_itself_and_a_blank_one_by_zeros() -> None:
    hog = HOG((8, 8))
    require_rowwise(hog)
    rows = torch.rand(1500, 64, generator=torch.Generator().manual_seed(1))
    rows[7] = 0.5
    together = hog(rows)
    assert torch.equal(together[7], torch.zeros(hog.width_out))
    changed = rows.clone()
    changed[1200] = 0.0
    kept = torch.arange(1500) != 1200
    assert torch.equal(hog(changed)[kept], together[kept])


def test_rows_of_another_size_and_pictures_without_a_block_are_refused() -> None:
    with pytest.raises(InputError, match="8 x 8 pixels"):
        HOG((8, 8))(torch.zeros(2, 63))
    with pytest.raises(InputError, match="smaller cells"):
        HOG((7, 28))
