"""Small image classifiers to invert: softmax regression, an MLP and a CNN, with a plain training loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.attacks.base import Progress, silent
from hushgraph.errors import InputError, did_you_mean

KINDS = ("softmax", "mlp", "cnn")
_LEAST_SIDE = 14
_AT_ONCE = 2000


def image_model(kind: str, shape: tuple[int, int], classes: int) -> nn.Module:
    """A classifier of gray images `[n, 1, height, width]`."""
    pixels = shape[0] * shape[1]
    if kind == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, classes))
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 200), nn.Sigmoid(), nn.Linear(200, classes))
    if kind == "cnn":
        return _cnn(shape, classes)
    raise InputError(f"unknown image model '{kind}'; {did_you_mean(kind, KINDS)}")


def _cnn(shape: tuple[int, int], classes: int) -> nn.Module:
    """Two convolutions with strides and wide kernels and two dense layers: the shape usual in work on DP-SGD."""
    if min(shape) < _LEAST_SIDE:
        raise InputError(f"cnn: expected images of at least {_LEAST_SIDE} x {_LEAST_SIDE}; got {shape[0]} x {shape[1]}")
    front = nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = front(torch.zeros(1, 1, *shape)).shape[1]
    return nn.Sequential(*front, nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, classes))


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
    """Accuracy in percent."""
    hits = sum(int((model(part.unsqueeze(1)).argmax(dim=1) == real).sum()) for part, real in _parts(x, y))
    return 100.0 * hits / len(x)


def _parts(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A few thousand images at a time, so that memory does not grow with their number."""
    return zip(x.split(_AT_ONCE), y.split(_AT_ONCE), strict=True)
