"""Classifiers of images as targets, and the two inversions side by side, with pictures for the report."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph.attacks.base import Progress, Target, silent
from hushgraph.attacks.inversion import EnhancedInversion, Inversion, OriginalInversion, class_distances
from hushgraph.errors import InputError
from hushgraph.methods.evaluation import EVALUATION
from hushgraph.nn.pictures import NETWORKS, picture_layers

KINDS = NETWORKS
_AT_ONCE = 2000
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


def image_model(kind: str, shape: tuple[int, int], classes: int) -> nn.Module:
    """A classifier of gray images `[n, 1, height, width]`."""
    return nn.Sequential(nn.Flatten(), *picture_layers(kind, shape, classes))


def train_images(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    lr: float = 1e-3,
    batch_size: int = 128,
    seed: int = 0,
    progress: Progress = silent,
) -> nn.Module:
    """Plain Adam on shuffled batches; `x` is `[n, height, width]` in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for epoch in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch].unsqueeze(1)), y[batch]).backward()
            optimizer.step()
        progress("training", epoch + 1, epochs)
    return model.eval()


@torch.no_grad()
def image_accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Accuracy in percent; a few thousand images at a time, so that memory does not grow with their number."""
    parts = zip(x.split(_AT_ONCE), y.split(_AT_ONCE), strict=True)
    return 100.0 * sum(int((model(part.unsqueeze(1)).argmax(dim=1) == real).sum()) for part, real in parts) / len(x)


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
        "note": EVALUATION,
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
