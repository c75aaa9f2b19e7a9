"""Layers on pictures that treat every row alone, and students that are made of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.nn.rowwise import rowwise

NETWORKS = ("softmax", "mlp", "cnn")
_LEAST_SIDE = 14
_BATCH = 2_000


def gaussian_kernel(rows: Tensor, centers: Tensor, gamma: float) -> Tensor:
    """exp(-gamma |row - center|^2), `[rows, centers]`."""
    distance = torch.cdist(rows, centers, compute_mode="use_mm_for_euclid_dist")
    return torch.exp(-gamma * distance.square())


def _require_batch(x: Tensor) -> None:
    """A layer of torch takes three dimensions for one picture, and would then mix what are rows here."""
    if x.dim() != 4:
        raise InputError(f"pictures: expected [rows, channels, height, width]; got {x.dim()} dimensions")


@rowwise("Every row becomes a picture of its own.")
class AsPictures(nn.Module):
    """Rows of pixels to pictures with one channel."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, 1, height, width]`."""
        return x.reshape(-1, 1, *self.shape)


@rowwise("A convolution over the pixels of one picture; what is not a batch of pictures is refused.")
class PictureConv(nn.Conv2d):
    """A convolution on batches."""

    def forward(self, x: Tensor) -> Tensor:
        """One layer."""
        _require_batch(x)
        return super().forward(x)


@rowwise("The largest of neighboring pixels of one picture; what is not a batch of pictures is refused.")
class PicturePool(nn.MaxPool2d):
    """Pooling on batches."""

    def forward(self, x: Tensor) -> Tensor:
        """One layer."""
        _require_batch(x)
        pooled: Tensor = super().forward(x)
        return pooled


@rowwise("A row is compared with centers that are public; rows do not meet.")
class KernelStudent(nn.Module):
    """Weighted Gaussian kernels around public centers, on what `look` makes of a row."""

    centers: Tensor
    weights: Tensor
    gamma: Tensor

    def __init__(self, look: nn.Module, columns: int, centers: int, classes: int) -> None:
        super().__init__()
        self.look = look
        self.register_buffer("centers", torch.zeros(centers, columns))
        self.register_buffer("weights", torch.zeros(centers, classes))
        self.register_buffer("gamma", torch.ones(()))

    @torch.no_grad()
    def forward(self, x: Rows) -> Tensor:
        """Class scores, in batches."""
        gamma, parts = float(self.gamma), dense_rows(x).split(_BATCH)
        return torch.cat([gaussian_kernel(self.look(rows), self.centers, gamma) @ self.weights for rows in parts])


def picture_network(kind: str, shape: tuple[int, int], classes: int, generator: torch.Generator) -> nn.Module:
    """A classifier of rows of pixels: softmax regression, one hidden layer, or the CNN usual in work on DP-SGD."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # layers of torch draw first weights from the global generator
        return nn.Sequential(*picture_layers(kind, shape, classes))


def picture_layers(kind: str, shape: tuple[int, int], classes: int) -> list[nn.Module]:
    """The layers of `picture_network`, with first weights from the global generator."""
    pixels = shape[0] * shape[1]
    if kind == "softmax":
        return [nn.Linear(pixels, classes)]
    if kind == "mlp":
        return [nn.Linear(pixels, 200), nn.Sigmoid(), nn.Linear(200, classes)]
    if kind != "cnn":
        raise InputError(f"unknown image model '{kind}'; {did_you_mean(kind, NETWORKS)}")
    if min(shape) < _LEAST_SIDE:
        raise InputError(f"cnn: expected images of at least {_LEAST_SIDE} x {_LEAST_SIDE}; got {shape[0]} x {shape[1]}")
    front = [
        AsPictures(shape),
        PictureConv(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        PicturePool(2, 1),
        PictureConv(16, 32, 4, stride=2),
        nn.ReLU(),
        PicturePool(2, 1),
        nn.Flatten(),
    ]
    with torch.no_grad():
        width = nn.Sequential(*front)(torch.zeros(1, pixels)).shape[1]
    return [*front, nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, classes)]
