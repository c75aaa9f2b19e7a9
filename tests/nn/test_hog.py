"""Histograms of oriented gradients: against a naive loop, and row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.nn.hog import HOG
from hushgraph.nn.rowwise import require_rowwise


def naive(image: np.ndarray, cell: int, bins: int) -> np.ndarray:
    height, width = image.shape
    at = np.pad(image, 1, mode="edge")
    cells = np.zeros((height // cell, width // cell, bins))
    for i in range(cells.shape[0] * cell):
        for j in range(cells.shape[1] * cell):
            down, across = at[i + 2, j + 1] - at[i, j + 1], at[i + 1, j + 2] - at[i + 1, j]
            place = (math.atan2(down, across) % math.pi) / math.pi * bins
            low, share = int(place) % bins, place - int(place)
            cells[i // cell, j // cell, low] += (1 - share) * math.hypot(down, across) / cell**2
            cells[i // cell, j // cell, (low + 1) % bins] += share * math.hypot(down, across) / cell**2
    found = []
    for i in range(cells.shape[0] - 1):
        for j in range(cells.shape[1] - 1):
            part = cells[i : i + 2, j : j + 2].ravel()
            part = np.minimum(part / math.sqrt((part**2).sum() + 1e-6), 0.2)
            found.append(part / math.sqrt((part**2).sum() + 1e-6))
    grays = image[: height // 2 * 2, : width // 2 * 2].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    return np.concatenate([np.stack(found, axis=1).ravel(), 0.6 * grays.ravel()])


@pytest.mark.parametrize(("shape", "cell", "bins"), [((28, 28), 4, 8), ((14, 11), 3, 9)])
def test_it_is_what_a_loop_over_pixels_computes(shape: tuple[int, int], cell: int, bins: int) -> None:
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    hog = HOG(shape[0] * shape[1], shape[0], cell, bins)
    found = hog(images.flatten(1))
    assert found.shape == (3, hog.width_out)
    expected = np.stack([naive(image.double().numpy(), cell, bins) for image in images])
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


def test_a_picture_is_described_by_itself() -> None:
    hog = HOG(64)
    require_rowwise(hog)
    rows = torch.rand(2500, 64, generator=torch.Generator().manual_seed(1))
    together = hog(rows)
    changed = rows.clone()
    changed[1200] = 0.0
    kept = torch.arange(2500) != 1200
    assert torch.equal(hog(changed)[kept], together[kept])
    assert hog(rows[:0]).shape == (0, hog.width_out)


def test_pictures_without_a_block_and_other_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="at least 8 pixels"):
        HOG(7 * 28, 7)
    with pytest.raises(InputError, match="height times width"):
        HOG(65)
