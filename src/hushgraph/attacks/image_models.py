"""Small image classifiers to invert: softmax regression, an MLP and a CNN, with a plain training loop."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean

KINDS = ("softmax", "mlp", "cnn")


def image_model(kind: str, shape: tuple[int, int], classes: int) -> nn.Module:
    """A classifier of grey images `[n, 1, height, width]`."""
    pixels = shape[0] * shape[1]
    if kind == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, classes))
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 200), nn.Sigmoid(), nn.Linear(200, classes))
    if kind == "cnn":
        small = (shape[0] // 4) * (shape[1] // 4)
        return nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * small, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )
    raise InputError(f"unknown image model '{kind}'; {did_you_mean(kind, KINDS)}")


def train_images(
    model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float = 1e-3, batch_size: int = 128, seed: int = 0
) -> nn.Module:
    """Plain Adam on shuffled batches; `x` is `[n, height, width]` in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch].unsqueeze(1)), y[batch]).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def image_accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Accuracy in percent."""
    return 100.0 * float((model(x.unsqueeze(1)).argmax(dim=1) == y).float().mean())
