"""Pictures as records: a table without edges, one row of gray values from 0 to 1 per picture.

A file holds `x_train`, `y_train`, `x_test`, `y_test`, or `x` and `y` alone: pictures `[n, height, width]` of whole gray
values from 0 to 255, and their classes from 0. Nothing in a file is ever unpickled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from hushgraph.datasets.archive import Archive
from hushgraph.errors import InputError

_WHITE = 255.0


def read_images(path: str | Path, *, num_classes: int | None = None, public: int = 0) -> Data:
    """Read a file of pictures as records: `x` [n, height * width], `y`, no edges, and `image_shape`.

    num_classes: the number of classes, a public fact; without it the largest label decides.
    public: so many of the file's test pictures, from the first on, are public knowledge: `public_mask` marks them, and
        they are in no split. The others stay in `test_mask`.

    A file with a training part and a test part comes with that split and an empty `val_mask`.
    """
    with Archive(path) as archive:
        parts = [name for name in ("_train", "_test") if f"x{name}" in archive] or [""]
        archive.require([f"{kind}{part}" for part in parts for kind in "xy"], "a file of pictures holds")
        pictures = [_pictures(archive, f"x{part}") for part in parts]
        labels = [archive.integers(f"y{part}", (len(rows),)) for part, rows in zip(parts, pictures)]
    if len({rows.shape[1:] for rows in pictures}) > 1:
        raise InputError(f"{path}: expected pictures of one shape; got {[rows.shape[1:] for rows in pictures]}")
    y = torch.from_numpy(np.concatenate(labels))
    classes = int(y.max()) + 1 if num_classes is None else num_classes
    if not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise InputError(f"{path}: expected classes from 0 to {classes - 1}; got {int(y.min())} to {int(y.max())}")
    rows = np.concatenate(pictures)
    data = Data(
        x=torch.from_numpy(rows.reshape(len(rows), -1)),
        edge_index=torch.empty((2, 0), dtype=torch.int64),
        y=y,
        num_nodes=len(rows),
        class_names=[str(number) for number in range(classes)],
        image_shape=tuple(rows.shape[1:]),
        name=Path(path).stem,
    )
    return _with_parts(data, len(pictures[0]) if len(parts) == 2 else None, public)


def _pictures(archive: Archive, name: str) -> NDArray[np.float32]:
    rows = archive.numbers(name, (None, None, None))
    if rows.size and not 0.0 <= float(rows.min()) <= float(rows.max()) <= _WHITE:
        raise InputError(f"{archive.path}: expected gray values from 0 to 255 in {name}; got others")
    rows /= _WHITE
    return rows


def _with_parts(data: Data, trains: int | None, public: int) -> Data:
    """The split that the file makes, and the pictures that are public."""
    count = int(data.num_nodes)
    room = 0 if trains is None else count - trains
    if not 0 <= public <= room:
        raise InputError(f"public: expected from 0 to {room}, the number of test pictures; got {public!r}")
    if trains is None:
        return data
    number = torch.arange(count)
    data.train_mask, data.val_mask = number < trains, torch.zeros(count, dtype=torch.bool)
    data.test_mask = number >= trains + public
    if public:
        data.public_mask = (number >= trains) & ~data.test_mask
    return data
