"""Classifiers of images as targets, and the two inversions side by side, with pictures for the report."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from hushgraph.attacks.base import Progress, Target, silent
from hushgraph.attacks.distances import class_distances
from hushgraph.attacks.image_models import image_accuracy, image_model, train_images
from hushgraph.attacks.inversion import EnhancedInversion, Inversion, OriginalInversion
from hushgraph.errors import InputError
from hushgraph.report.pictures import data_uri, image_grid

_COLUMNS = 10
_SSIM_PER_CLASS = 1000  # structural similarity is slow: it is taken to the first so many images of each class
_EXAMPLES, _FEWEST_EPOCHS = 24_000, 3


def read_images(path: str | os.PathLike[str]) -> Data:
    """Gray images from an npz file: bytes `x_train` (or `x`) `[n, height, width]`, and classes `y_train` (or `y`)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            end = "_train" if "x_train" in arrays else ""
            x, y = arrays[f"x{end}"], arrays[f"y{end}"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: expected an npz file with images x and classes y; {error}") from error
    if x.ndim != 3 or len(x) != len(y) or x.dtype != np.uint8:
        raise InputError(f"{path}: expected bytes [n, height, width] and n classes; got {x.dtype} {list(x.shape)}")
    return Data(x=torch.from_numpy(x).float() / 255.0, y=torch.from_numpy(y.astype(np.int64)))


def image_target(
    data: Data, kind: str, *, epochs: int | None = None, seed: int = 0, progress: Progress = silent
) -> Target:
    """A classifier without privacy, trained on all images; by default for 24,000 examples and at least 3 epochs."""
    shape, classes = (int(data.x.shape[1]), int(data.x.shape[2])), int(data.y.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # PyTorch draws first weights from the global generator
        model = image_model(kind, shape, classes)
    rounds = epochs or max(_FEWEST_EPOCHS, round(_EXAMPLES / len(data.x)))
    train_images(model, data.x, data.y, epochs=rounds, seed=seed, progress=progress)
    accuracy = image_accuracy(model, data.x, data.y)
    nobody = torch.empty(0, classes)
    return Target(f"{kind} on {len(data.x)} images, no privacy", nobody, network=model, notes={"accuracy": accuracy})


def compare_inversions(
    target: Target,
    data: Data,
    *,
    original: Inversion | None = None,
    enhanced: Inversion | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Both attacks on one classifier: distances by class in both measures, and pictures, as reports read them."""
    attacks = {"original": original or OriginalInversion(), "enhanced": enhanced or EnhancedInversion()}
    found = {name: attack.run(target, data, progress) for name, attack in attacks.items()}
    images = {name: np.array(result.details["images"], dtype=np.float32) for name, result in found.items()}
    means = np.stack([data.x[data.y == label].mean(dim=0).numpy() for label in range(len(images["original"]))])
    shown = {"training mean": means, **images}
    judged = {**shown, "a black picture": np.zeros_like(means)}
    distances = {
        metric: {name: _distances(pictures, data, metric) for name, pictures in judged.items()}
        for metric in ("euclidean", "ssim")
    }
    return {
        "name": "model inversion",
        "target": target.name,
        "assumes": attacks["enhanced"].assumes,
        "figures": _figures(distances) | {"train accuracy": target.notes.get("accuracy")},
        "distances": distances,
        "distances before clipping": {
            name: result.details["distances before clipping"] for name, result in found.items()
        },
        "confidence": {name: result.details["confidence"] for name, result in found.items()},
        "grids": _grids(shown),
    }


def _distances(images: np.ndarray, data: Data, metric: str) -> list[float]:
    x, y = data.x.numpy(), data.y.numpy()
    if metric == "euclidean":
        return class_distances(images, x, y, "euclidean")
    first = np.concatenate([np.flatnonzero(y == label)[:_SSIM_PER_CLASS] for label in range(len(images))])
    return class_distances(images, x[first], y[first], "ssim")


def _figures(distances: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric, by_name in distances.items():
        word = {"euclidean": "Euclidean distance", "ssim": "1 - SSIM"}[metric]
        closer = sum(a < b for a, b in zip(by_name["enhanced"], by_name["original"], strict=True))
        found[f"classes where enhanced is closer, {word}"] = f"{closer} of {len(by_name['original'])}"
        found |= {f"mean {word}, {name}": float(np.mean(values)) for name, values in by_name.items()}
    return found


def _grids(shown: dict[str, np.ndarray]) -> dict[str, dict[str, str]]:
    """Strips of up to ten classes: one picture per class in each."""
    classes = len(next(iter(shown.values())))
    found = {}
    for first in range(0, classes, _COLUMNS):
        last = min(first + _COLUMNS, classes)
        strips = {name: data_uri(image_grid(images[first:last], last - first)) for name, images in shown.items()}
        found[f"classes {first} to {last - 1}"] = strips
    return found
