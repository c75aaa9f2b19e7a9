"""Digits and faces for benchmarks/class_dp.py and moments.py: splits, augmented faces, and strips of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.attacks.images import image_grid, png

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
_SHOWN = 10
_LOOKED_AT = 1000  # the last test pictures, which settings were chosen on
_TRAIN_FACES, _COPIES = 7, 10


def digits(name: str = "mnist") -> Data:
    """60,000 private pictures; every second test picture is public, and the others test, but for the last 1,000."""
    data = hg.datasets.load(name)
    test = data.test_mask.nonzero().squeeze(1)
    data.public_mask, data.test_mask = (torch.zeros_like(data.train_mask) for _ in range(2))
    data.public_mask[test[::2]] = True
    data.test_mask[test[1:-_LOOKED_AT:2]] = True
    data.original_mask, data.centered, data.pixels = torch.ones_like(data.train_mask), False, data.x
    return data


def faces() -> Data:
    """40 people at half size: of each, 7 originals and 10 changed copies of each of them train, 3 originals test.

    Rows have their mean taken off; `pixels` are the pictures as they are.
    """
    found = hg.datasets.load("orl_faces")
    height, width = found.image_shape
    x = found.x.view(-1, height, width)[:, ::2, ::2].contiguous()
    order = torch.argsort(found.y, stable=True).view(40, -1)
    train, test = order[:, :_TRAIN_FACES].flatten(), order[:, _TRAIN_FACES:].flatten()
    made = torch.Generator().manual_seed(0)
    copies = torch.cat([_changed(x[train], made) for _ in range(_COPIES)])
    data = Data(
        x=torch.cat([x[train], copies, x[test]]).flatten(1),
        y=torch.cat([found.y[train]] * (_COPIES + 1) + [found.y[test]]),
        edge_index=torch.empty((2, 0), dtype=torch.int64),
        image_shape=tuple(x.shape[1:]),
        class_names=list(found.class_names),
        name="orl_faces",
    )
    data.pixels, data.x, data.centered = data.x, Centered()(data.x), True
    number = torch.arange(len(data.y))
    data.original_mask = number < len(train)
    data.train_mask = number < len(train) * (_COPIES + 1)
    data.test_mask, data.val_mask = ~data.train_mask, torch.zeros_like(data.train_mask)
    return data


class Centered(nn.Module):
    """Takes the mean of each row off it."""

    def forward(self, rows: Tensor) -> Tensor:
        """The same shape."""
        return rows - rows.mean(dim=1, keepdim=True)


def _changed(images: Tensor, made: torch.Generator) -> Tensor:
    """Each picture moved by up to two pixels each way, perhaps mirrored, and a little lighter or darker."""
    moved = torch.nn.functional.pad(images.unsqueeze(1), (2, 2, 2, 2), mode="replicate").squeeze(1)
    height, width = images.shape[1:]
    found = torch.empty_like(images)
    for number, image in enumerate(moved):
        top, left = torch.randint(5, (2,), generator=made).tolist()
        found[number] = image[top : top + height, left : left + width]
    mirrored = torch.rand(len(found), generator=made) < 0.5
    found[mirrored] = found[mirrored].flip(2)
    light = 0.9 + 0.2 * torch.rand(len(found), 1, 1, generator=made)
    return (found * light).clamp(0.0, 1.0)


def strip(name: str, images: Tensor) -> None:
    """The first ten pictures side by side, in docs/pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(png(image_grid(np.asarray(images[:_SHOWN]), _SHOWN)))
