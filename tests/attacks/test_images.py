from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from hushgraph.attacks.images import compare_inversions, data_uri, image_grid, image_target, png, read_images
from hushgraph.attacks.inversion import EnhancedInversion, OriginalInversion
from hushgraph.errors import InputError


def squares(path: Path, classes: int = 12) -> Path:
    """Images of 12 x 12, a bright square at a place of its own for each class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), 6)
    x = rng.integers(0, 30, size=(len(y), 12, 12)).astype(np.uint8)
    for number, label in enumerate(y):
        row, column = 3 * (label // 4), 3 * (label % 4)
        x[number, row : row + 3, column : column + 3] = 250
    np.savez(path, x=x, y=y)
    return path


def test_both_attacks_are_compared_by_class_with_a_grid_for_every_ten_classes(tmp_path: Path) -> None:
    data = read_images(squares(tmp_path / "squares.npz"))
    target = image_target(data, "softmax", epochs=60)
    assert target.notes["accuracy"] > 99
    found = compare_inversions(target, data, original=OriginalInversion(steps=50), enhanced=EnhancedInversion(steps=50))
    assert list(found["grids"]) == ["classes 0 to 9", "classes 10 to 11"]
    assert list(found["grids"]["classes 0 to 9"]) == ["training mean", "original", "enhanced"]
    assert all(strip.startswith("data:image/png;base64,") for strip in found["grids"]["classes 10 to 11"].values())
    assert found["note"] == "not private: evaluation"
    for by_name in found["distances"].values():
        assert {len(values) for values in by_name.values()} == {12}
        # The mean of a class is nearer to its images than a black picture is.
        assert np.mean(by_name["training mean"]) < np.mean(by_name["a black picture"])


def test_training_repeats_with_its_seed_and_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    data = read_images(squares(tmp_path / "squares.npz", 3))
    state = torch.random.get_rng_state()
    models = [image_target(data, "mlp", epochs=2, seed=seed).needs("network") for seed in (1, 1, 2)]
    assert bool((torch.random.get_rng_state() == state).all())
    first, second, third = (next(iter(model.parameters())) for model in models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_files_that_are_no_images_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", x=np.zeros((4, 9), dtype=np.uint8), y=np.zeros(4))
    with pytest.raises(InputError, match="height, width"):
        read_images(tmp_path / "flat.npz")
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    with pytest.raises(InputError, match="images x and classes y"):
        read_images(tmp_path / "other.npz")
    with pytest.raises(InputError, match="expected an npz file"):
        read_images(tmp_path / "missing.npz")


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
