"""What the runs of studies/class-dp.yaml do: models with noise by record, by part of a class or by class; inversion.

Digits: 60,000 private pictures; every second test picture is public and the others test, but for the last 1,000, on
which settings were chosen. Faces: 40 people at half size; of each, 7 originals and ten changed copies of each of them
train, and 3 originals test, so that the split comes before the copies.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.attacks.images import image_grid, png
from hushgraph.attacks.inversion import EnhancedInversion, Metric, class_distances
from hushgraph.methods.class_dp import ClassDP
from hushgraph.study.lab import Lab

Metrics = dict[str, float | None]
PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
_SHOWN = 10
_LOOKED_AT = 1000
_TRAIN_FACES, _COPIES = 7, 10
_ATTACKS = {
    "mnist": EnhancedInversion(),
    "orl_faces": EnhancedInversion(steps=150, lr=0.05, l1=0.0, btv=1e-4, starts=1, spread=0.0, metric="ssim"),
}


def trained(lab: Lab) -> Metrics:
    """Accuracy, and the epsilon that the given noise is proved to have."""
    return _trained(lab)[1]


def inverted(lab: Lab) -> Metrics:
    """The same, and how far the reconstruction of each class is from the nearest original of it that trained.

    The pictures of seed 0 go to docs/pictures.
    """
    model, found = _trained(lab)
    data, name = _data(lab), _name(lab)
    centered = Centered() if data.centered else nn.Identity()
    network = nn.Sequential(nn.Flatten(), centered, model.network.eval()).requires_grad_(False)
    images = _ATTACKS[name].reconstruct(network, len(data.class_names), tuple(data.image_shape)).clamp(0.0, 1.0)
    if lab.seed == 0:
        noise = cast(ClassDP, lab.method).noise_multiplier
        protected = "nothing" if noise is None or lab.unit is None else f"{lab.unit.name}-{noise:g}"
        _strip(f"inversion-{name}-{protected}", images)
    return {**found, **_judged(images, data, _metric(lab))}


def black(lab: Lab) -> Metrics:
    """What a black picture of every class is worth, which is known without any model."""
    data = _data(lab)
    return _judged(torch.zeros(len(data.class_names), *data.image_shape), data, _metric(lab))


def _trained(lab: Lab) -> tuple[hg.Model, Metrics]:
    model = lab.method.fit(_data(lab), lab.unit, lab.budget, ledger=lab.ledger, seed=lab.seed)
    accuracy = model.metrics["accuracy"]
    return model, {"test_accuracy": accuracy["test"], "proved_epsilon": model.plan.epsilon}


def _judged(images: Tensor, data: Data, metric: Metric) -> Metrics:
    train = data.train_mask & data.original_mask
    x, y = data.pixels[train].view(-1, *data.image_shape).numpy(), data.y[train].numpy()
    distances = class_distances(images.numpy(), x, y, metric)
    by_class = {f"distance_{number}": one for number, one in enumerate(distances[:_SHOWN])}
    return {"distance": float(np.mean(distances)), **by_class}


def _strip(name: str, images: Tensor) -> None:
    """The first ten pictures side by side."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(png(image_grid(np.asarray(images[:_SHOWN]), _SHOWN)))


# The data


def _name(lab: Lab) -> str:
    assert lab.cell.dataset is not None
    return lab.cell.dataset.name


def _metric(lab: Lab) -> Metric:
    return "ssim" if _name(lab) == "orl_faces" else "euclidean"


def _data(lab: Lab) -> Data:
    return _faces() if _name(lab) == "orl_faces" else _digits()


@lru_cache(maxsize=1)
def _digits() -> Data:
    data = hg.datasets.load("mnist")
    test = data.test_mask.nonzero().squeeze(1)
    data.public_mask, data.test_mask = (torch.zeros_like(data.train_mask) for _ in range(2))
    data.public_mask[test[::2]] = True
    data.test_mask[test[1:-_LOOKED_AT:2]] = True
    data.original_mask, data.centered, data.pixels = torch.ones_like(data.train_mask), False, data.x
    return data


@lru_cache(maxsize=1)
def _faces() -> Data:
    """Rows have their mean taken off; `pixels` are the pictures as they are."""
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
    moved = nn.functional.pad(images.unsqueeze(1), (2, 2, 2, 2), mode="replicate").squeeze(1)
    height, width = images.shape[1:]
    found = torch.empty_like(images)
    for number, image in enumerate(moved):
        top, left = torch.randint(5, (2,), generator=made).tolist()
        found[number] = image[top : top + height, left : left + width]
    mirrored = torch.rand(len(found), generator=made) < 0.5
    found[mirrored] = found[mirrored].flip(2)
    light = 0.9 + 0.2 * torch.rand(len(found), 1, 1, generator=made)
    return (found * light).clamp(0.0, 1.0)
