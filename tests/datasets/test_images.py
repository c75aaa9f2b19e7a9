"""Files of pictures are read as records without edges, with the file's own split and a public part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets.images import read_images
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph


def _file(folder: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (6, 3, 4), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8),
        "x_test": rng.integers(0, 256, (5, 3, 4), dtype=np.uint8),
        "y_test": np.array([0, 1, 2, 0, 1], dtype=np.uint8),
    }
    arrays.update(changes)
    path = folder / "pictures.npz"
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_pictures_are_rows_of_gray_values_and_the_files_parts_are_the_split(tmp_path: Path) -> None:
    path = _file(tmp_path)
    data = hg.datasets.load(path, num_classes=3)
    stored = np.load(path)
    assert np.allclose(data.x.numpy(), np.concatenate([stored["x_train"], stored["x_test"]]).reshape(11, 12) / 255)
    assert data.image_shape == (3, 4)
    assert data.edge_index.shape == (2, 0)
    assert data.train_mask.nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test_mask.nonzero().flatten().tolist() == [6, 7, 8, 9, 10]
    assert not data.val_mask.any()


def test_public_pictures_are_in_no_split(tmp_path: Path) -> None:
    checked = check_graph(hg.datasets.load(_file(tmp_path), num_classes=3, public=3), needs_edges=False)
    assert checked.public.tolist() == [6, 7, 8]
    assert checked.test.tolist() == [9, 10]
    assert checked.metadata.num_public == 3


def test_a_file_in_one_part_gets_a_random_split(tmp_path: Path) -> None:
    parts = dict.fromkeys(("x_train", "y_train", "x_test", "y_test"))
    path = _file(tmp_path, **parts, x=np.zeros((20, 2, 2), dtype=np.uint8), y=np.arange(20) % 4)
    data = hg.datasets.load(path, num_classes=4)
    assert int(data.train_mask.sum() + data.val_mask.sum() + data.test_mask.sum()) == 20


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"y_test": None}, {}, "missing: y_test"),
        ({"x_test": np.full((5, 3, 4), 256)}, {}, "gray values from 0 to 255 in x_test"),
        ({}, {"num_classes": 2}, "classes from 0 to 1; got 0 to 2"),
        ({}, {"public": 6}, "public: expected from 0 to 5"),
        ({"x_test": np.zeros((5, 2, 4), dtype=np.uint8)}, {}, "pictures of one shape"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_images(_file(tmp_path, **changes), **options)


def test_a_public_mask_that_meets_a_split_is_refused(tmp_path: Path) -> None:
    data = read_images(_file(tmp_path), num_classes=3, public=2)
    data.public_mask[0] = True
    with pytest.raises(InputError, match="disjoint"):
        check_graph(data, needs_edges=False)
